"""The content of files, read in pieces within limits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from storage.schemas import Finding


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    """The most that is taken of one document, in bytes and numbers of files, and of one git repository.

    Files beyond `kept_files` and `kept_bytes` are listed without their bytes; a bundle of more than
    `bundle_files` or `bundle_bytes` is not listed.
    """

    document_bytes: int = 2_000_000
    bundle_files: int = 2_000
    bundle_bytes: int = 50_000_000
    licence_bytes: int = 100_000
    repository_paths: int = 500_000
    kept_files: int = 512
    kept_bytes: int = 16 * 1024 * 1024


DEFAULT_LIMITS = DocumentLimits()


class Content(NamedTuple):
    """A file that was read: its first bytes, its size in bytes, and its SHA-256."""

    head: bytes
    size: int
    sha256: str


def consume(pieces: Iterable[bytes], keep: int = 0) -> Content:
    """Read pieces of bytes to their end; return their digest, their size and the first `keep` bytes."""
    head, size, digest = bytearray(), 0, hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
        head += piece[: max(0, keep - size)]
        size += len(piece)
    return Content(bytes(head), size, digest.hexdigest())


def too_large(size: int, limit: int) -> Finding:
    """Return the finding on a document whose text is left out for its size (bytes)."""
    return Finding("document.too-large", "error", f"{size:,} bytes, more than the limit of {limit:,}")
