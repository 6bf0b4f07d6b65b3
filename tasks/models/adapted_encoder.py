"""The adapted encoder: all-MiniLM-L6-v2 with low-rank adapters, which reads one text into token states.

After Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022 (equation 3). The adapters
are packaged; the weights that they change are those of the default encoder, whatever encoder an index is of.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from storage.errors import ModelMismatch
from tasks.models.onnx_export import PACKAGED, resolve
from tasks.models.protocols import Vectors
from tasks.models.runtime import onnxruntime
from tasks.models.tokens import whole_tokenizer

BASE, WEIGHTS = "sentence-transformers/all-MiniLM-L6-v2", "model.safetensors"
GRAPH, INPUT = "data/adapted-1.onnx", "embedded"  # the graph without weights
LAYERS, WIDTH = 6, 384
# The matrices of one layer that have an adapter.
MATRICES = (
    "attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
    "intermediate.dense", "output.dense",
)  # fmt: skip
SCALE = 2.0  # of what an adapter adds
_OF_BASE = "bert."  # the graph names the encoder's weights as its file does, below this
_IN_GRAPH = ("encoder.layer.", "embeddings.LayerNorm.")
_PROBE = range(2000, 2016)  # some tokens
_WINDOW = 254  # tokens that are read at once, beside the two special ones


class ReadTokens(NamedTuple):
    """The states of a text's tokens, shape `(tokens, 384)`, and each token's character span."""

    states: Vectors
    spans: list[tuple[int, int]]


def is_base(card: Mapping[str, Any]) -> bool:
    """Return whether the encoder of a card is the default one, whose vectors adapted states are near to."""
    return str(card["revision"]).removesuffix("-int8") == PACKAGED[BASE][2]


class AdaptedEncoder:
    """Reads texts with the adapted encoder, on one thread.

    Args:
        adapters: Arrays `LAYER.MATRIX.a`, shape `(rank, inputs)`, and `.b`, `(outputs, rank)`; others are not
            read.

    Raises:
        ModelMismatch: The packaged base weights are not those that the adapters were trained on.
    """

    def __init__(self, adapters: Mapping[str, Any]) -> None:
        folder = _base_folder()
        self._tokenizer = whole_tokenizer(folder)
        held = _Weights(folder / WEIGHTS)
        names = [name for name in held.tensors if name.startswith(_IN_GRAPH)]
        block = np.empty(sum(held.matrix_size(name) for name in names), dtype=np.float32)
        weights = dict(_added_up(held, names, adapters, block))
        place, kind = (f"embeddings.{name}_embeddings.weight" for name in ("position", "token_type"))
        self._places: Vectors = held.read(place) + held.read(kind)[0]
        self._words = held.mapped("embeddings.word_embeddings.weight")
        self._session = _session(list(weights), list(weights.values()))
        # The session packs matrices into memory of its own, and reads vectors where they lie.
        self._kept = [value for value in weights.values() if len(value.shape()) == 1]
        if self._reads(block):
            self._kept = [block, *dict(_added_up(held, names, adapters, block)).values(), *weights.values()]

    def _reads(self, block: Vectors) -> bool:
        """Tell whether the session still reads matrices where they were given to it, which spoils them."""
        before = self._states(list(_PROBE))
        block.fill(np.nan)
        return not np.array_equal(before, self._states(list(_PROBE)))

    def read(self, text: str) -> ReadTokens:
        """Return the states of a text's tokens; a long text is read in windows of 254 tokens."""
        found = self._tokenizer.encode(text, add_special_tokens=False)
        windows = [found.ids[at : at + _WINDOW] for at in range(0, len(found.ids), _WINDOW)]
        states = [self._states(ids) for ids in windows]
        return ReadTokens(np.concatenate([np.empty((0, WIDTH), np.float32), *states]), list(found.offsets))

    def _states(self, ids: list[int]) -> Vectors:
        first, last = (self._tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]"))
        words = self._words[[first, *ids, last]]
        states: Vectors = self._session.run(None, {INPUT: (words + self._places[: len(words)])[None]})[0][0]
        return states[1:-1]


class _Weights:
    """The tensors of a safetensors file, read one by one: a mapped file would count as memory as a whole."""

    def __init__(self, file: Path) -> None:
        with file.open("rb") as stream:
            self.tensors = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
            self._file, self._start = file, stream.tell()

    def matrix_size(self, name: str) -> int:
        """Return how many numbers a matrix has; 0 of a vector."""
        shape = self.tensors[name]["shape"]
        return int(np.prod(shape)) if len(shape) > 1 else 0

    def read(self, name: str) -> Vectors:
        """Return a tensor."""
        shape, (begin, end) = self.tensors[name]["shape"], self.tensors[name]["data_offsets"]
        held = np.fromfile(self._file, np.float32, (end - begin) // 4, offset=self._start + begin)
        return held.reshape(shape)

    def mapped(self, name: str) -> Vectors:
        """Return a tensor of which few rows are read: of 30,522 words a task has some dozens."""
        told = self.tensors[name]
        at = self._start + told["data_offsets"][0]
        return np.memmap(self._file, np.float32, "r", at, tuple(told["shape"]))


def _base_folder() -> Path:
    folder, found = resolve(BASE)
    if found != PACKAGED[BASE][2]:
        msg = f"{folder} does not hold the weights of {BASE} that package {PACKAGED[BASE][0]} carries"
        raise ModelMismatch(msg)
    return Path(folder)


def _added_up(
    held: _Weights, names: Sequence[str], adapters: Mapping[str, Any], block: Vectors
) -> Iterator[tuple[str, onnxruntime.OrtValue]]:
    """Yield weights with what is added to them, by their names in the graph.

    Matrices are put into one block, which goes back to the system as a whole.
    """
    at = 0
    for name in names:
        value = held.read(name)
        value += _added(name, adapters)
        if value.ndim > 1:
            block[at : at + value.size] = value.reshape(-1)
            value, at = block[at : at + value.size].reshape(value.shape), at + value.size
        yield _OF_BASE + name, onnxruntime.OrtValue.ortvalue_from_numpy(value)


def _added(name: str, adapters: Mapping[str, Any]) -> Vectors | float:
    """Return what its adapter adds to a weight, as it lies in the file; 0 if it has none."""
    adapter = name.removeprefix("encoder.layer.").removesuffix(".weight")
    if f"{adapter}.a" not in adapters:
        return 0.0
    a, b = (np.asarray(adapters[f"{adapter}.{side}"], dtype=np.float32) for side in "ab")
    return np.asarray(SCALE * (b @ a), dtype=np.float32)


def _session(names: list[str], values: list[onnxruntime.OrtValue]) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    # As in the encoder: threads that share one small inference wait for each other.
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.enable_cpu_mem_arena = False  # it would keep some 20 MB for buffers that one text needs
    options.add_external_initializers(names, values)
    graph = resources.files("tasks.models").joinpath(GRAPH).read_bytes()
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
