"""The engine that runs an exported encoder: OpenVINO, or ONNX Runtime to check vectors of before.

OpenVINO computes in bf16 where the processor does, else in float32; vectors in bf16 have a cosine of .9999 to
those in float32.
"""

from __future__ import annotations

import importlib
import itertools
import os
import queue
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tasks.models.protocols import Vectors

# Windows of one length are batched up to this many tokens: larger batches fall out of the processor's caches
# (4,096 take a ninth longer), smaller ones pay the call more often. Without padding no answer depends on what
# else is asked, to the last bit; mixed lengths are 2 % faster, multiples of 8 tokens 5 % slower.
_BATCH_TOKENS = 1024
# In float32 it does above 80 tokens, where OpenVINO takes another product of matrices (seen with AVX2, where
# batches of 80 are no slower).
_BATCH_TOKENS_F32 = 80
# OpenVINO keeps what it compiled for a shape, by default 5,000 pieces: 20,000 skills took it to 1.4 GB. 512
# take half of that, and 3 % longer. These save another .2 GB in a process of parse, and cost 1 %.
_SHAPES_KEPT = 96
_FIRST = 4  # texts, and tokens of each, of the first call
Feed = Mapping[str, npt.NDArray[Any]]
SMALL, COMPILED = "model.xml", "model.blob"  # OpenVINO's own form, and what it makes of that for a processor
_BF16 = "BF16"
_CONVERTER = "openvino.tools.ovc"
_LOADING = threading.Lock()


class Engine(Protocol):
    """Runs one model; several threads may call it at once, each on a core of its own."""

    name: str
    inputs: frozenset[str]
    batch_tokens: int  # texts of one length are batched up to so many

    def run(self, feed: Feed) -> Vectors:
        """Return the model's first output, of an encoder its tokens' states, `(texts, tokens, dimension)`.

        `feed` holds `inputs` by name.
        """


class OpenVino:
    """Runs a model by OpenVINO, by so many threads a call each; its `name` says in which precision.

    `model` is a file that `save` wrote, one of OpenVINO's own form or of ONNX, which takes longer to load and
    more memory, or the content of one of ONNX.
    """

    def __init__(self, model: Path | bytes, threads: int) -> None:
        library = _openvino()
        core = library.Core()
        precision = "bf16" if _has_bf16(core) else "f32"
        # Pinned, the threads of two processes share one core, and another stays idle.
        options = {
            "INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": threads,
            "ENABLE_CPU_PINNING": False, "CPU_RUNTIME_CACHE_CAPACITY": _SHAPES_KEPT,
        }  # fmt: skip
        self.name = f"OpenVINO {precision}"
        self.batch_tokens = _BATCH_TOKENS if precision == "bf16" else _BATCH_TOKENS_F32
        if isinstance(model, Path) and model.name == COMPILED:
            # Weights stay in the mapped file, where other processes share them.
            self._mapped = library.Tensor(np.memmap(model, np.uint8, "c"), shared_memory=True)
            self._model = core.import_model(self._mapped, "CPU", options)
        else:
            read = core.read_model(model if isinstance(model, bytes) else str(model))
            self._model = core.compile_model(read, "CPU", options)
        self.inputs = frozenset(port.any_name for port in self._model.inputs)
        self._idle: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._warm()

    def _warm(self) -> None:
        """Make the first call, which takes 30 ms more: who loads a model ahead need not wait for it."""
        feed = dict[str, npt.NDArray[Any]]()
        for port in self._model.inputs:
            # After texts of one token, OpenVINO 2026.4 returns what is no number for some longer ones.
            shape = [size.get_min_length() or _FIRST for size in port.partial_shape]
            feed[port.any_name] = np.ones(shape, port.element_type.to_dtype())
        self.run(feed)

    def save(self, file: Path) -> None:
        """Write what was compiled, which loads in half the time by the same OpenVINO and processor."""
        file.write_bytes(self._model.export_model().getbuffer())

    def run(self, feed: Feed) -> Vectors:
        """Return the model's first output."""
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
    batch_tokens = _BATCH_TOKENS

    def __init__(self, model: Path) -> None:
        # Threads that share one small inference spend much of it waiting for each other.
        self._session = _session(str(model), intra_op_num_threads=1)
        self.inputs = frozenset(port.name for port in self._session.get_inputs())

    def run(self, feed: Feed) -> Vectors:
        """Return the model's first output."""
        return np.asarray(self._session.run(None, dict(feed))[0])


def computes_bf16() -> bool:
    """Tell whether this processor computes in bf16 itself."""
    return _has_bf16(_openvino().Core())


def compiles_as() -> str:
    """Return what compiled models depend on besides the model: OpenVINO's version, and the processor."""
    library = _openvino()
    told = (library.Core().get_property("CPU", n) for n in ("FULL_DEVICE_NAME", "OPTIMIZATION_CAPABILITIES"))
    return " ".join(map(str, (library.get_version(), *told)))


def _has_bf16(core: Any) -> bool:  # noqa: ANN401 (the library's)
    return _BF16 in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def batches_of(lengths: Sequence[int], tokens: int, threads: int = 1) -> list[list[int]]:
    """Return the places of windows of so many tokens each, in batches of one length, the longest first.

    A batch has at most so many `tokens`, and at most the share of one of the `threads`.
    """
    # At the end no thread waits long for another.
    order = sorted(range(len(lengths)), key=lambda at: -lengths[at])
    share = -(-len(lengths) // threads)
    found = []
    for length, group in itertools.groupby(order, lambda at: lengths[at]):
        same, size = list(group), max(1, min(share, tokens // max(1, length)))
        found += [same[start : start + size] for start in range(0, len(same), size)]
    return found


def whole_model(graph: bytes, weights: Mapping[str, npt.NDArray[np.floating[Any]]]) -> bytes:
    """Return a model of ONNX with its weights inside, as float32, from a graph that was kept without.

    Raises:
        KeyError: `weights` lacks one of those that the graph names.
    """
    import onnx  # noqa: PLC0415 (for models that are kept so)

    model = onnx.load_model_from_string(graph)
    for held in model.graph.initializer:
        if held.data_location == onnx.TensorProto.EXTERNAL:
            value = np.ascontiguousarray(weights[held.name], dtype=np.float32)
            held.CopyFrom(onnx.numpy_helper.from_array(value, held.name))
    content: bytes = model.SerializeToString()
    return content


def save_small(model: Path, target: Path) -> None:
    """Write a model of ONNX in OpenVINO's own form, `target` and a file of weights, in half their bytes.

    Weights in 16 bits turn a vector by a cosine of about 1e-6.
    """
    library = _openvino()
    library.save_model(library.Core().read_model(str(model)), str(target), compress_to_fp16=True)


def save_folded(model: bytes, target: Path) -> None:
    """Write a model of ONNX whose constants are worked out."""
    onnxruntime = _onnxruntime()
    basic = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    _session(model, graph_optimization_level=basic, optimized_model_filepath=str(target))


def _session(model: str | bytes, **options: Any) -> Any:  # noqa: ANN401 (the library's)
    onnxruntime = _onnxruntime()
    held = onnxruntime.SessionOptions()
    for name, value in {"log_severity_level": 3, **options}.items():
        setattr(held, name, value)
    return onnxruntime.InferenceSession(model, held, providers=["CPUExecutionProvider"])


def _onnxruntime() -> Any:  # noqa: ANN401 (loaded late: OpenVINO does most)
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # which would keep a database in the user's home
    return importlib.import_module("onnxruntime")


def _openvino() -> Any:  # noqa: ANN401 (it has no types)
    """Return OpenVINO without its converter of models, which writes to the user's home and reports."""
    loaded: dict[str, Any] = sys.modules
    with _LOADING:
        blocked = _CONVERTER not in loaded
        if blocked:
            loaded[_CONVERTER] = None
        try:
            found = importlib.import_module("openvino")
        finally:
            if blocked:
                loaded.pop(_CONVERTER, None)
        # Its table of types is made when it is first asked; threads that ask at once wait for each other for
        # ever, one for the table, one for Python's lock.
        found.Type.i64.to_dtype()
        return found
