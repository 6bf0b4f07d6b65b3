"""The cached encoder, which encodes each text once: equal texts share a vector, kept below a root."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from storage.errors import ModelMismatch
from storage.root import Root
from storage.vectors import StateStore, VectorStore, text_hash
from tasks.models.encoder import OnnxEncoder, load_encoder
from tasks.models.protocols import IndexEncoder, Vectors
from tasks.models.token_states import encoded, packing

log = logging.getLogger(__name__)
# What made the first vectors of a folder, and its vectors of a few texts: another engine, or the same in
# another precision, makes these again before it adds to them.
ENGINE = "engine.json"
LEAST = 0.999  # the least cosine of a text's vectors by two engines; bf16 and float32 have .9999
_BEFORE = "ONNX Runtime"  # what made the vectors that lie there without the file
_PROBES = (
    "Knead the dough.",
    "Use when the hive hums at night, or when bees are found in front of it in the morning.",
    "`git rebase --onto main feature~3 feature`",
    "Loosen the bolt, slide the blade out, and wipe it with an oiled cloth. Leave a bent blade blunt.",
)


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
    encoder, place = load_encoder(export_here(root, folder)), Root(root)
    store = vectors_of(place, encoder.card)

    def agree() -> None:
        require_agreement(place, store.folder, encoder, empty=not place.files(store.folder, ".parquet"))

    return KeptEncoder(encoder, place, agree)


class KeptEncoder:
    """Encodes what has no vector yet, and keeps it below a root; implements IndexEncoder and StateEncoder.

    `agree` is called once before it makes the first, and may raise; `made` is how many texts it has encoded.
    """

    def __init__(self, encoder: IndexEncoder, root: Root, agree: Callable[[], None] = lambda: None) -> None:
        self.card, self._encoder, self.made = encoder.card, encoder, 0
        self._agree = functools.lru_cache(maxsize=1)(agree)
        self._vectors, self._states = vectors_of(root, encoder.card), kept_states(root, encoder.card)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector for each text, float32 of shape `(len(texts), dimension)`.

        Raises:
            StorageError: What is kept is damaged; the message names the file, which may be deleted.
            ModelMismatch: What is kept was made by another engine, and its vectors differ.
        """

        def make(missing: list[int]) -> Vectors:
            self._agree()
            return self._encoder.encode([texts[i] for i in missing])

        vectors, made = self._vectors.complete([text_hash(text) for text in texts], make)
        self.made += made
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
            self.made += len(missing)
            self._agree()
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


def require_agreement(root: Root, folder: str, encoder: OnnxEncoder, *, empty: bool) -> None:
    """Note what makes the vectors of a folder, or check that the encoder's engine makes the same.

    `empty` says whether the folder holds no vectors yet. A line in the log says when another engine goes on.

    Raises:
        ModelMismatch: A vector of another engine has a cosine below `LEAST` to that of the first.
    """
    path = f"{folder}/{ENGINE}"
    held = root.read_json(path)
    if held is None and not empty:
        held = {"engine": _BEFORE, "vectors": encoder.by_onnx_runtime().encode(_PROBES).tolist()}
        root.write_json(path, held)
    if held is None:
        root.write_json(path, {"engine": encoder.engine, "vectors": encoder.encode(_PROBES).tolist()})
    elif held["engine"] != encoder.engine:
        first, vectors = held["engine"], np.asarray(held["vectors"], dtype=np.float32)
        least = float((vectors * encoder.encode(_PROBES)).sum(axis=1).min())
        if not least >= LEAST:
            raise ModelMismatch(
                f"{folder} was made with {first}, this machine encodes with {encoder.engine}, and their "
                f"vectors differ (cosine {least:.4f}): delete that folder, and `skillery rebuild` encodes "
                "everything anew"
            )
        log.info("vectors of %s are continued with %s: cosine %.5f at least", first, encoder.engine, least)
