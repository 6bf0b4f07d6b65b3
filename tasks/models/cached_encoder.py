"""The cached encoder, which encodes each text once: equal texts share a vector, kept below a root."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from storage.root import Root
from storage.vectors import StateStore, VectorStore, text_hash
from tasks.models.encoder import load_encoder
from tasks.models.protocols import IndexEncoder, Vectors
from tasks.models.token_states import encoded, packing

log = logging.getLogger(__name__)


def export_here(root: str, folder: str) -> str:
    """Return the folder of an export on this machine, brought from the root where another machine made it."""
    path = Path(folder)
    return folder if path.is_dir() else str(Root(root).fetch(f"models/{path.name}"))


def vectors_of(root: Root, card: dict[str, Any]) -> VectorStore:
    """Return the vectors that are kept of an encoder, by all that its card says of it."""
    return VectorStore(root, _identity(card), int(card["dimension"]))


def kept_states(root: Root, card: dict[str, Any]) -> StateStore:
    """Return the packed states that are kept of an encoder, by its card and by how they are packed."""
    return StateStore(root, _identity({**card, "packing": packing()}), int(card["dimension"]))


def _identity(said: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


@functools.lru_cache(maxsize=2)
def load_kept_encoder(root: str, folder: str) -> KeptEncoder:
    """Return the encoder of an export over the vectors that this root keeps, loaded once a process."""
    encoder = load_encoder(export_here(root, folder))
    return KeptEncoder(encoder, Root(root))


class KeptEncoder:
    """Encodes what has no vector yet, and keeps it; implements IndexEncoder and StateEncoder.

    Args:
        encoder: Makes vectors, and states if it can.
        root: Where it keeps them.
    """

    def __init__(self, encoder: IndexEncoder, root: Root) -> None:
        self.card, self._encoder = encoder.card, encoder
        self._vectors, self._states = vectors_of(root, encoder.card), kept_states(root, encoder.card)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector for each text, float32 of shape `(len(texts), dimension)`.

        Raises:
            StorageError: What is kept is damaged; the message names the file, which may be deleted.
        """
        hashes = [text_hash(text) for text in texts]
        vectors, made = self._vectors.complete(
            hashes, lambda missing: self._encoder.encode([texts[i] for i in missing])
        )
        log.info("%d texts: %d encoded, the others share a vector or had one", len(texts), made)
        return vectors

    def encode_states(self, texts: Sequence[str]) -> tuple[Vectors, list[bytes]]:
        """Return what `encode` does, and each text's packed states, empty if the encoder has none."""
        hashes = [text_hash(text) for text in texts]
        by_hash = dict(zip(hashes, texts, strict=True))
        keys = list(by_hash)
        had_vector, vectors = self._vectors.find(keys)
        had_states, states = self._states.find(keys)
        missing = np.flatnonzero(~(had_vector & had_states))
        if len(missing):
            made, packed = encoded(self._encoder, [by_hash[keys[i]] for i in missing])
            # What was kept stays as it is: only what was not is taken of what is made together.
            lacking = ~had_vector[missing]
            vectors[missing[lacking]] = made[lacking]
            self._vectors.add([keys[i] for i in missing[lacking]], made[lacking])
            lacking = ~had_states[missing]
            states[missing[lacking]] = np.array(packed, dtype=object)[lacking]
            self._states.add([keys[i] for i in missing[lacking]], states[missing[lacking]])
        log.info("%d texts: %d encoded, the others share what was made or kept", len(texts), len(missing))
        place = {key: i for i, key in enumerate(keys)}
        at = [place[key] for key in hashes]
        return vectors[at], states[at].tolist()

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text, without special tokens."""
        return self._encoder.count(texts)

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Return each token's character span in `text`, in order."""
        return self._encoder.offsets(text)
