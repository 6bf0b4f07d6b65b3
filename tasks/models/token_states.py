"""States of a text's tokens, made small enough to be kept: what the words of a request meet late.

After Khattab and Zaharia, "ColBERT", SIGIR 2020 (equation 3: the largest product of each word of the query
with the tokens of the text), with tokens in pairs, fewer dimensions and 4-bit numbers.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tasks.models.protocols import Encoder, StateEncoder, Vectors

# Whose states the packaged projection was made for; of other models none are kept.
STATE_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
FILE = Path(__file__).parent / "data" / "state_projection.npy"
GROUP = 2  # tokens that share a state
STATES_VERSION = 1  # raised only when the bytes of a text change
_STEPS = np.float32(7)  # of four bits, on either side of 0
_WIDEST = np.float32(2.7)  # root mean squares; what lies beyond is cut
_LEAST = np.float32(1e-12)


def packing() -> str:
    """Return what changes whenever the bytes of a text do."""
    return f"{STATES_VERSION}-{hashlib.sha256(packaged_projection().tobytes()).hexdigest()[:12]}"


@functools.lru_cache(maxsize=1)
def packaged_projection() -> Vectors:
    """Return what brings states of `STATE_MODEL` to fewer dimensions, shape `(384, dimensions)`."""
    return np.asarray(np.load(FILE, allow_pickle=False), dtype=np.float32)


def pack(texts: Sequence[Vectors] | Vectors) -> list[bytes]:
    """Return texts' states as bytes: two dimensions in a byte, a row for every two tokens.

    `texts` are the states of each text's tokens in order, shape `(tokens, 384)`.
    """
    sizes = [len(states) for states in texts]
    ends = np.cumsum([0, *(-(-size // GROUP) for size in sizes)])
    if not ends[-1]:
        return [b""] * len(texts)
    begins = np.cumsum([0, *sizes[:-1]])
    firsts = [np.arange(begin, begin + size, GROUP) for begin, size in zip(begins, sizes, strict=True)]
    # All at once: one product for a batch, where each text would ask for one of its own.
    rows = project(np.add.reduceat(unit(np.concatenate(texts)), np.concatenate(firsts)))
    step = _WIDEST / _STEPS * np.sqrt((rows * rows).mean(axis=1, keepdims=True))
    codes = (np.clip(np.rint(rows / np.maximum(step, _LEAST)), -_STEPS, _STEPS) + _STEPS).astype(np.uint8)
    packed = codes[:, ::2] << 4 | codes[:, 1::2]
    return [packed[first:end].tobytes() for first, end in pairwise(ends.tolist())]


def unpack(packed: bytes) -> Vectors:
    """Return unit vectors, shape `(states, dimensions)`, of what `pack` made.

    Raises:
        ValueError: The bytes are no whole number of states.
    """
    require_packed([len(packed)])
    pairs: npt.NDArray[np.uint8] = np.frombuffer(packed, dtype=np.uint8)
    codes = np.stack([pairs >> 4, pairs & 15], axis=1).astype(np.float32) - _STEPS
    return unit(codes.reshape(-1, packaged_projection().shape[1]))


def unpack_all(texts: Sequence[bytes]) -> list[Vectors]:
    """Return what `unpack` does of each text."""
    require_packed(len(packed) for packed in texts)
    size = packaged_projection().shape[1] // 2
    ends = np.cumsum([len(packed) // size for packed in texts])[:-1]
    return np.split(unpack(b"".join(texts)), ends)


def require_packed(sizes: Iterable[int]) -> None:
    """Raise `ValueError` if the bytes of a text are not a whole number of states."""
    size = packaged_projection().shape[1] // 2
    for bytes_of_text in sizes:
        if bytes_of_text % size:
            raise ValueError(f"{bytes_of_text} bytes are no whole number of states of {size} bytes")


def project(vectors: Vectors) -> Vectors:
    """Return vectors of the model, of words or texts, as unit vectors beside which states can be laid."""
    return unit(vectors @ packaged_projection())


def unit(vectors: Vectors) -> Vectors:
    """Return rows at length 1; zeros stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, _LEAST), dtype=np.float32)


def encoded(encoder: Encoder, texts: Sequence[str]) -> tuple[Vectors, list[bytes]]:
    """Return a unit vector a text, and its packed states: none from encoders that do not look so deep."""
    if isinstance(encoder, StateEncoder):
        return encoder.encode_states(texts)
    return encoder.encode(texts), [b""] * len(texts)
