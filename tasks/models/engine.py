"""The engine that runs an exported encoder: OpenVINO, or ONNX Runtime for weights of eight bits.

OpenVINO computes in bf16 where the processor does, else in float32; vectors in bf16 have a cosine of .9999 to
those in float32.
"""

from __future__ import annotations

import functools
import importlib
import os
import queue
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tasks.models.protocols import Vectors

Feed = Mapping[str, npt.NDArray[np.int64]]
_BF16 = "BF16"
_CONVERTER = "openvino.tools.ovc"


class Engine(Protocol):
    """Runs one model; several threads may call it at once, each on a core of its own."""

    name: str
    inputs: frozenset[str]

    def run(self, feed: Feed) -> Vectors:
        """Return the tokens' states, shape `(texts, tokens, dimension)`; `feed` holds `inputs` by name."""


class OpenVino:
    """Runs a model by OpenVINO; its `name` says in which precision.

    Args:
        model: A file of OpenVINO's own form, or of ONNX, which takes longer to load and more memory.
        threads: Calls at a time, each on one thread.
    """

    def __init__(self, model: Path, threads: int) -> None:
        core = _openvino().Core()
        fast = _BF16 in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        precision = "bf16" if fast else "f32"
        options = {
            "INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": threads,
        }  # fmt: skip
        self.name = f"OpenVINO {precision}"
        self._model = core.compile_model(str(model), "CPU", options)
        self.inputs = frozenset(port.any_name for port in self._model.inputs)
        self._idle: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run(self, feed: Feed) -> Vectors:
        """Return the tokens' states."""
        with self._request() as request:
            request.infer(dict(feed), share_inputs=True)
            # What it points to is the request's own, which the next call overwrites.
            return np.array(request.get_output_tensor(0).data, dtype=np.float32)

    @contextmanager
    def _request(self) -> Iterator[Any]:
        """Lend a request that no other thread has; there come to be as many as threads call at once."""
        try:
            request = self._idle.get_nowait()
        except queue.Empty:
            request = self._model.create_infer_request()
        try:
            yield request
        finally:
            self._idle.put(request)


class OnnxRuntime:
    """Runs a model by ONNX Runtime in the numbers that it holds."""

    name = "ONNX Runtime"

    def __init__(self, model: Path) -> None:
        from tasks.models.runtime import onnxruntime  # noqa: PLC0415 (OpenVINO does most)

        options = onnxruntime.SessionOptions()
        # Threads that share one small inference spend much of it waiting for each other.
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self.inputs = frozenset(port.name for port in self._session.get_inputs())

    def run(self, feed: Feed) -> Vectors:
        """Return the tokens' states."""
        return np.asarray(self._session.run(None, dict(feed))[0])


def save_small(model: Path, target: Path) -> None:
    """Write a model of ONNX in OpenVINO's own form, `target` and a file of weights, in half their bytes.

    Weights in 16 bits turn a vector by a cosine of about 1e-6.
    """
    library = _openvino()
    library.save_model(library.Core().read_model(str(model)), str(target), compress_to_fp16=True)


def _openvino() -> Any:  # noqa: ANN401 (it has no types)
    """Return OpenVINO without its converter of models, which writes to the user's home and reports."""
    loaded: dict[str, Any] = sys.modules
    blocked = _CONVERTER not in loaded
    if blocked:
        loaded[_CONVERTER] = None
    try:
        return importlib.import_module("openvino")
    finally:
        if blocked:
            loaded.pop(_CONVERTER, None)


@functools.lru_cache(maxsize=2)
def engine_of(model: Path, _changed: int, *, quantised: bool) -> Engine:
    """Return the engine of a model's file, loaded once a process for all its encoders."""
    return OnnxRuntime(model) if quantised else OpenVino(model, os.cpu_count() or 1)
