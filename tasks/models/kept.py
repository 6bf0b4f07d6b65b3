"""An encoder that encodes each text once: equal texts share a vector, and vectors are kept across nights."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from storage.root import Root
from storage.vectors import VectorStore, text_hash
from tasks.models.encoder import load_encoder
from tasks.models.protocols import IndexEncoder, Vectors

log = logging.getLogger(__name__)


def export_here(root: str, folder: str) -> str:
    """Return the folder of an export on this machine, brought from the root where another machine made it."""
    path = Path(folder)
    return folder if path.is_dir() else str(Root(root).fetch(f"models/{path.name}"))


def vectors_of(root: Root, card: dict[str, Any]) -> VectorStore:
    """Return the vectors that are kept of an encoder, by all that its card says of it."""
    identity = hashlib.sha256(json.dumps(card, sort_keys=True).encode()).hexdigest()[:16]
    return VectorStore(root, identity, int(card["dimension"]))


@functools.lru_cache(maxsize=2)
def load_kept_encoder(root: str, folder: str) -> KeptEncoder:
    """Return the encoder of an export over the vectors that this root keeps, loaded once a process."""
    encoder = load_encoder(export_here(root, folder))
    return KeptEncoder(encoder, vectors_of(Root(root), encoder.card))


class KeptEncoder:
    """Encodes what has no vector yet, and keeps it; implements IndexEncoder as the encoder inside does.

    Args:
        encoder: Makes the vectors.
        store: Its vectors so far.
    """

    def __init__(self, encoder: IndexEncoder, store: VectorStore) -> None:
        self.card, self._encoder, self._store = encoder.card, encoder, store

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector a text, float32 of shape `(len(texts), dimension)`.

        Raises:
            StorageError: What is kept is damaged; the message names the file, which may be deleted.
        """
        hashes = [text_hash(text) for text in texts]
        vectors, made = self._store.complete(
            hashes, lambda missing: self._encoder.encode([texts[i] for i in missing])
        )
        log.info("%d texts: %d encoded, the others share a vector or had one", len(texts), made)
        return vectors

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text, without special tokens."""
        return self._encoder.count(texts)

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Return each token's character span in `text`, in order."""
        return self._encoder.offsets(text)
