"""The context model: MiniLM with its upper half trained to tell node types.

Its graph is shipped without weights. The embeddings and lower layers are the packaged encoder's own; the
upper layers and the head are shipped as 8-bit integers with a scale a row and become floats when loaded.
"""

from __future__ import annotations

import functools
import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file
from tokenizers import Encoding, Tokenizer

from storage.folder import threads_of_process
from storage.schemas import NODE_TYPES
from tasks.models.engine import batches_of
from tasks.models.model_cache import engine_of_graph
from tasks.models.onnx_export import resolve
from tasks.models.protocols import Vectors
from tasks.models.tokens import whole_tokenizer
from tasks.parse.classify.local import softmax
from tasks.parse.classify.protocol import FragmentInContext

_HEADINGS, _BEFORE, _TEXT, _AFTER = 24, 32, 100, 24  # tokens
_LONGEST = 16  # characters a token that are looked at, so that no text keeps the tokenizer busy


class Window(NamedTuple):
    """Token ids with their special tokens; the fragment's own are `ids[start:end]`."""

    ids: list[int]
    start: int
    end: int


def windows(fragments: Sequence[FragmentInContext], tokenizer: Tokenizer) -> list[Window]:
    """Return one window a fragment, in order, of at most 185 tokens.

    Args:
        fragments: Texts, headings and neighbours of any length.
        tokenizer: Of a BERT; it must neither truncate nor pad.
    """
    texts = [text for fragment in fragments for text in texts_read(fragment)]
    encoded: list[Encoding] = tokenizer.encode_batch(texts, add_special_tokens=False)
    ids = [one.ids for one in encoded]
    first, between = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    found = []
    for at in range(0, len(ids), 4):
        headings, before = ids[at][-_HEADINGS:], ids[at + 1][-_BEFORE:]
        text, after = ids[at + 2][:_TEXT], ids[at + 3][:_AFTER]
        lead = [first, *headings, between, *before, between]
        found.append(Window([*lead, *text, between, *after, between], len(lead), len(lead) + len(text)))
    return found


def texts_read(fragment: FragmentInContext) -> tuple[str, str, str, str]:
    """Return headings, what precedes, the fragment with its block, what follows: cut to what may count."""
    return (
        " > ".join(fragment.heading_path)[-_LONGEST * _HEADINGS :],
        (fragment.previous or "")[-_LONGEST * _BEFORE :],
        f"{fragment.block}: {fragment.text[: _LONGEST * _TEXT]}",
        (fragment.next or "")[: _LONGEST * _AFTER],
    )


BASE = "sentence-transformers/all-MiniLM-L6-v2"
GRAPH, WEIGHTS = "data/context-2.onnx", "data/context-2.npz"
INPUTS = ("ids", "mask", "inside")
_OF_BASE = "bert."  # the graph names the encoder's weights as its file does, below this
_USED = ("embeddings.word", "embeddings.position_e", "embeddings.token", "embeddings.Layer", "encoder.layer.")
_SCALE = ".scale"
_AT_ONCE = 4096  # fragments whose windows are held at a time
Floats = npt.NDArray[np.floating[Any]]


class ContextModel:
    """Tells node types by reading fragments in their context.

    Args:
        graph: The ONNX graph, whose weights are all external.
        tuned: Returns the weights that differ from the base's, by their names in the graph.
        identity: What changes whenever they do.

    Raises:
        ModelMismatch: The packaged base weights are not those that this model was trained on.
    """

    def __init__(self, graph: bytes, tuned: Callable[[], Mapping[str, Floats]], identity: str) -> None:
        source, revision = resolve(BASE)
        folder = Path(source)

        def weights() -> dict[str, Floats]:
            held = load_file(folder / "model.safetensors")
            base = {f"{_OF_BASE}{name}": held[name] for name in held if name.startswith(_USED)}
            return {**base, **tuned()}

        self._tokenizer = whole_tokenizer(folder)
        self._engine = engine_of_graph(
            graph, weights, [revision.encode(), identity.encode()], threads_of_process()
        )

    def probabilities(self, fragments: Sequence[FragmentInContext]) -> npt.NDArray[np.float64]:
        """Return the probability of each of `NODE_TYPES`, shape `(len(fragments), 6)`."""
        given = np.zeros((len(fragments), len(NODE_TYPES)))
        for start in range(0, len(fragments), _AT_ONCE):
            some = windows(fragments[start : start + _AT_ONCE], self._tokenizer)
            given[start : start + len(some)] = self._read(some)
        return given

    def _read(self, some: Sequence[Window]) -> npt.NDArray[np.float64]:
        batches = batches_of([len(window.ids) for window in some])
        given = np.empty((len(some), len(NODE_TYPES)), dtype=np.float32)
        with ThreadPoolExecutor(min(threads_of_process(), len(batches))) as pool:
            found = pool.map(lambda batch: self._infer([some[at] for at in batch]), batches)
            for batch, scores in zip(batches, found, strict=True):
                given[batch] = scores
        return softmax(given)

    def _infer(self, some: Sequence[Window]) -> Vectors:
        return self._engine.run(dict(zip(INPUTS, padded(some), strict=True)))


def padded(some: Sequence[Window]) -> tuple[npt.NDArray[np.int64], ...]:
    """Return ids, which are no padding, and which are the fragment's own; `(windows, longest)` each."""
    ids = np.zeros((len(some), max(len(window.ids) for window in some)), dtype=np.int64)
    mask, inside = np.zeros_like(ids), np.zeros_like(ids)
    for row, window in enumerate(some):
        ids[row, : len(window.ids)] = window.ids
        mask[row, : len(window.ids)] = 1
        inside[row, window.start : window.end] = 1
    return ids, mask, inside


@functools.lru_cache(maxsize=1)
def packaged_context_model() -> ContextModel:
    """Return the context model that is shipped, loaded once a process."""
    graph, weights = (resources.files("tasks.parse").joinpath(name) for name in (GRAPH, WEIGHTS))
    return ContextModel(graph.read_bytes(), lambda: unpacked(weights.read_bytes()), packaged_identity())


@functools.lru_cache(maxsize=1)
def packaged_identity() -> str:
    """Return 16 hex digits that change with the context model that is shipped."""
    data = resources.files("tasks.parse")
    files = (data.joinpath(name).read_bytes() for name in (GRAPH, WEIGHTS))
    return hashlib.sha256(b"".join(files)).hexdigest()[:16]


def packed(weights: Mapping[str, Floats]) -> bytes:
    """Return weights as a compressed NumPy archive: matrices as 8-bit integers, the rest with 16 bits."""
    held: dict[str, npt.NDArray[Any]] = {}
    for name, value in weights.items():
        if value.ndim < 2:
            held[name] = value.astype(np.float16)
            continue
        scale = np.maximum(np.abs(value).max(axis=1, keepdims=True), 1e-9) / 127
        held[name] = np.round(value / scale).astype(np.int8)
        held[name + _SCALE] = scale.astype(np.float32)
    out = io.BytesIO()
    np.savez_compressed(out, allow_pickle=False, **held)
    return out.getvalue()


def unpacked(content: bytes) -> dict[str, npt.NDArray[np.float32]]:
    """Return what `packed` held, as single precision."""
    with np.load(io.BytesIO(content), allow_pickle=False) as held:
        return {
            name: held[name].astype(np.float32) * held.get(name + _SCALE, 1)
            for name in held.files
            if not name.endswith(_SCALE)
        }
