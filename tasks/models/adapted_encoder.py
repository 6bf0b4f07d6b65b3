"""The adapted encoder: all-MiniLM-L6-v2 with low-rank adapters, which reads texts into token states.

After Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022 (equation 3). The adapters
are packaged; the weights that they change are those of the default encoder, whatever encoder an index is of.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from storage.errors import ModelMismatch
from storage.folder import threads_of_process
from storage.seal import seal_folder
from tasks.models.engine import batches_of
from tasks.models.model_cache import engine_of_graph, is_whole, model_cache, put_in_place
from tasks.models.onnx_export import PACKAGED, resolve
from tasks.models.preloaded import loaded_once
from tasks.models.protocols import Vectors
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
FIRST, LAST, UNKNOWN = 101, 102, 100  # ids of special tokens: around a text, and for what has none
_VECTORS, _TOKENS_VERSION = "vectors.npy", 1  # raised when tokens are read otherwise
_OF_BASE = "bert."  # the graph names the encoder's weights as its file does, below this
_IN_GRAPH = ("encoder.layer.", "embeddings.LayerNorm.")
_WINDOW = 254  # tokens that are read at once, beside the two special ones


class ReadTokens(NamedTuple):
    """The states of a text's tokens, shape `(tokens, 384)`, and each token's character span."""

    states: Vectors
    spans: list[tuple[int, int]]


def is_base(card: Mapping[str, Any]) -> bool:
    """Tell whether the encoder of a card is the default one, whose vectors adapted states are near to."""
    return str(card["revision"]) == PACKAGED[BASE][2]


class AdaptedEncoder:
    """Reads texts with the adapted encoder.

    `adapters` are arrays `LAYER.MATRIX.a`, shape `(rank, inputs)`, and `.b`, `(outputs, rank)`; others are
    not read. Each of the `threads` makes one call of `states` at a time.

    Raises:
        ModelMismatch: The packaged base weights are not those that the adapters were trained on.
    """

    def __init__(self, adapters: Mapping[str, Any], threads: int = 1) -> None:
        folder = _base_folder()
        self._tokenizer = whole_tokenizer(folder)
        held = _Weights(folder / WEIGHTS)
        place, kind = (f"embeddings.{name}_embeddings.weight" for name in ("position", "token_type"))
        self._places, self._kinds = held.read(place), held.read(kind)
        self._words = held.mapped("embeddings.word_embeddings.weight")
        graph = resources.files("tasks.models").joinpath(GRAPH).read_bytes()

        def weights() -> dict[str, Vectors]:
            inside = (name for name in held.tensors if name.startswith(_IN_GRAPH))
            return {_OF_BASE + name: held.read(name) + _added(name, adapters) for name in inside}

        identity = [PACKAGED[BASE][2].encode(), str(SCALE).encode(), *_told(adapters)]
        self._engine = engine_of_graph(graph, weights, identity, threads)

    def read(self, text: str) -> ReadTokens:
        """Return the states of a text's tokens; a long text is read in windows of 254 tokens."""
        found = self._tokenizer.encode(text, add_special_tokens=False)
        windows = [found.ids[at : at + _WINDOW] for at in range(0, len(found.ids), _WINDOW)]
        states = [self.states([[FIRST, *ids, LAST]])[0, 1:-1] for ids in windows]
        return ReadTokens(np.concatenate([np.empty((0, WIDTH), np.float32), *states]), list(found.offsets))

    def ids(self, text: str) -> list[int]:
        """Return the ids of a text's tokens, without special ones."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def states(self, ids: Sequence[Sequence[int]], second: int = _WINDOW + 2) -> Vectors:
        """Return the states of the tokens of texts of one length, shape `(texts, tokens, 384)`.

        `ids` hold the special tokens; from the place `second` on, tokens are of a pair's second text.
        """
        tokens = np.array(ids, dtype=np.int64)
        kinds = (np.arange(tokens.shape[1]) >= second).astype(np.int64)
        around = self._places[: tokens.shape[1]] + self._kinds[kinds]
        return self._engine.run({INPUT: self._words[tokens] + around})

    def told(
        self, texts: Sequence[Sequence[int]], tell: Callable[[Vectors], Vectors], threads: int,
        second: int = _WINDOW + 2,
    ) -> Vectors:  # fmt: skip
        """Return what `tell` makes of the states of each text; texts of one length are read together.

        `texts` are ids with special tokens; of states, shape `(texts, tokens, 384)`, `tell` makes something
        with a row a text; `threads` batches are read at a time.
        """

        def read(batch: list[int]) -> Vectors:
            return tell(self.states([texts[place] for place in batch], second))

        batches = batches_of([len(text) for text in texts], self._engine.batch_tokens, threads)
        if not batches:
            return np.zeros(0, dtype=np.float32)
        if min(threads, len(batches)) < 2:
            made = [*map(read, batches)]
        else:
            with ThreadPoolExecutor(threads) as pool:
                made = list(pool.map(read, batches))
        found = np.concatenate(made)
        back = np.empty_like(found)
        back[[place for batch in batches for place in batch]] = found
        return back


class _Weights:
    """The tensors of a safetensors file, read one by one: a mapped file would count as memory as a whole."""

    def __init__(self, file: Path) -> None:
        with file.open("rb") as stream:
            self.tensors = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
            self._file, self._start = file, stream.tell()

    def read(self, name: str) -> Vectors:
        shape, (begin, end) = self.tensors[name]["shape"], self.tensors[name]["data_offsets"]
        held = np.fromfile(self._file, np.float32, (end - begin) // 4, offset=self._start + begin)
        return held.reshape(shape)

    def mapped(self, name: str) -> Vectors:
        """Return a tensor of which few rows are read: of 30,522 words a task has some dozens."""
        told = self.tensors[name]
        with self._file.open("rb") as stream:
            file = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        file.madvise(mmap.MADV_RANDOM)  # else the disk is asked for all rows around each
        begin, end = told["data_offsets"]
        return np.frombuffer(file, np.float32, (end - begin) // 4, self._start + begin).reshape(told["shape"])


def base_tokenizer() -> Tokenizer:
    """Return the tokenizer of the default encoder, whatever encoder an index is of; nobody may set it."""
    return whole_tokenizer(_base_folder())


def token_vectors() -> Vectors:
    """Return the unit vectors of tokens by id, shape `(ids, 384)`, as the default encoder reads each alone.

    They are kept in the model cache, where it can be written: reading all of them takes five seconds.
    """

    def make(scratch: Path) -> None:
        made = scratch / "made"
        made.mkdir()
        np.save(made / _VECTORS, _read_alone())
        seal_folder(made)

    try:
        kept = model_cache() / f"tokens-{_TOKENS_VERSION}-{PACKAGED[BASE][2][:24]}"
        if not (kept / _VECTORS).is_file() or not is_whole(kept):
            put_in_place(kept, make)
        found = np.load(kept / _VECTORS)
    except OSError:
        found = _read_alone()
    return np.asarray(found, dtype=np.float32)


def _read_alone() -> npt.NDArray[np.float16]:
    texts = [[FIRST, token, LAST] for token in range(base_tokenizer().get_vocab_size())]
    threads = threads_of_process()
    found = AdaptedEncoder({}, threads).told(texts, lambda states: states.mean(axis=1), threads)
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), dtype=np.float16)


@loaded_once(1)
def _base_folder() -> Path:
    folder, found = resolve(BASE)
    if found != PACKAGED[BASE][2]:
        msg = f"{folder} does not hold the weights of {BASE} that package {PACKAGED[BASE][0]} carries"
        raise ModelMismatch(msg)
    return Path(folder)


def _told(adapters: Mapping[str, Any]) -> Iterator[bytes]:
    for name in sorted(name for name in adapters if name[0].isdigit()):
        yield name.encode()
        yield np.ascontiguousarray(adapters[name]).tobytes()


def _added(name: str, adapters: Mapping[str, Any]) -> Vectors | float:
    """Return what its adapter adds to a weight, as it lies in the file; 0 if it has none."""
    adapter = name.removeprefix("encoder.layer.").removesuffix(".weight")
    if f"{adapter}.a" not in adapters:
        return 0.0
    a, b = (np.asarray(adapters[f"{adapter}.{side}"], dtype=np.float32) for side in "ab")
    return np.asarray(SCALE * (b @ a), dtype=np.float32)
