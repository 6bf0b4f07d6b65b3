"""Kept encodings: nodes, vectors and token states that one page needed, for the next page in any process."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from storage.folder import put_file
from storage.schemas import Node
from tasks.models.encoder import OnnxEncoder
from tasks.models.protocols import Vectors
from tasks.models.token_states import encoded, packing

FOLDER = "state/pages"  # of the root on this machine
MOST = 256_000_000  # bytes that are kept, some 600 documents


class KeptEncodings:
    """The nodes of documents and what an encoder made of them, as files: those used longest ago go first.

    It spares time alone: where a file cannot be read or written, its content is made again. `encoder` encodes
    what is not kept; of another revision nothing is read.
    """

    def __init__(self, folder: Path, encoder: OnnxEncoder, most: int = MOST) -> None:
        self._folder, self._encoder, self._most = folder, encoder, most

    def nodes(self, made_by: Sequence[object], parse: Callable[[], list[Node]]) -> list[Node]:
        """Return what `parse` returns, which depends on `made_by` and the encoder's tokenizer alone."""
        file = self._file([*made_by, self._encoder.card["revision"]], "z")
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, zlib.error):
            rows = json.loads(zlib.decompress(file.read_bytes()))
            os.utime(file)
            return [Node(**{**row, "heading_path": tuple(row["heading_path"])}) for row in rows]
        found = parse()
        with contextlib.suppress(OSError):  # a disk that is full, or a root of others
            self._keep(file, zlib.compress(json.dumps([asdict(node) for node in found]).encode(), 1))
        return found

    def encoded(self, texts: Sequence[str]) -> tuple[Vectors, list[bytes]]:
        """Return unit vectors and packed states of texts, as `token_states.encoded` does."""
        file = self._file([self._encoder.card["revision"], packing(), *texts], "npz")
        if (kept := _read(file)) is not None:
            return kept
        found = encoded(self._encoder, texts)
        held, (vectors, states) = io.BytesIO(), found
        sizes = np.array([len(state) for state in states])
        np.savez(held, vectors=vectors, states=np.frombuffer(b"".join(states), np.uint8), sizes=sizes)
        with contextlib.suppress(OSError):
            self._keep(file, held.getvalue())
        return found

    def _file(self, made_by: Sequence[object], kind: str) -> Path:
        return self._folder / f"{hashlib.sha256(json.dumps(made_by).encode()).hexdigest()}.{kind}"

    def _keep(self, file: Path, content: bytes) -> None:
        put_file(file, content)
        known = sorted((s.st_mtime_ns, s.st_size, p) for p in self._folder.iterdir() if (s := _stat(p)))
        size = sum(bytes_ for _, bytes_, _ in known)
        for _, bytes_, oldest in known:
            if size <= self._most or oldest == file:
                return
            oldest.unlink(missing_ok=True)
            size -= bytes_


def _read(file: Path) -> tuple[Vectors, list[bytes]] | None:
    try:
        with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as held:
            ends, states = np.cumsum(held["sizes"])[:-1], held["states"]
            found = held["vectors"], [part.tobytes() for part in np.split(states, ends)]
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        return None
    with contextlib.suppress(OSError):
        os.utime(file)
    return found


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:  # another process has just removed it
        return None
