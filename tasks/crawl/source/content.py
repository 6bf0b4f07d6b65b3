"""Reads the content of one skill within limits: its text, its files' digests, its licence texts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from storage.schemas import BundledFile, Dropped, Finding, LicenceFile, RawDocument
from tasks.crawl.source.bundle import BundledSkill, SourceEntry


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    """The most that is taken of one document, in bytes and numbers of files, and of one git repository."""

    document_bytes: int = 2_000_000
    bundle_files: int = 2_000
    bundle_bytes: int = 50_000_000
    licence_bytes: int = 100_000
    repository_paths: int = 500_000


DEFAULT_LIMITS = DocumentLimits()


class Content(NamedTuple):
    """A file that was read: its first bytes, its size in bytes, and its SHA-256."""

    head: bytes
    size: int
    sha256: str


# Yields a file's bytes in pieces; raises OSError where they cannot be read.
Reader = Callable[[SourceEntry], Iterator[bytes]]


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


def wanted(skill: BundledSkill, limits: DocumentLimits) -> list[SourceEntry]:
    """Return the files that reading a skill opens; a bundle with too many files is not opened."""
    files = skill.files if len(skill.files) <= limits.bundle_files else ()
    return [skill.entry, *files, *skill.licences]


def read_skill(
    skill: BundledSkill,
    read: Reader,
    limits: DocumentLimits,
    source: str,
    **origin: Any,  # noqa: ANN401
) -> RawDocument | Dropped:
    """Return a skill with these fields of its `origin`, or why its SKILL.md could not be read.

    Over `limits.document_bytes` the content is None, and a finding says why. Other files of the bundle that
    cannot be read become findings too.
    """
    try:
        text = consume(read(skill.entry), limits.document_bytes)
    except OSError as error:
        return Dropped(skill.doc_id, source, "unreadable", f"{skill.entry.path}: {_why(error)}")
    fits = text.size <= limits.document_bytes
    findings = [] if fits else [too_large(text.size, limits.document_bytes)]
    findings += [_odd(entry) for entry in skill.odd]
    files = _read_files(skill, read, limits, findings)
    licences = tuple(_read_licences(skill, read, limits, findings))
    return RawDocument(
        skill.doc_id, source, content=text.head if fits else None, size=text.size, raw_hash=text.sha256,
        path=skill.entry.path, files=files, licence_files=licences, findings=tuple(findings), **origin,
    )  # fmt: skip


def _why(error: OSError) -> str:
    return error.strerror or str(error)


def _odd(entry: SourceEntry) -> Finding:
    if entry.kind == "link":
        return Finding("bundle.symlink", "warning", f"{entry.path} is a symbolic link and is not followed")
    return Finding("bundle.unreadable", "warning", f"{entry.path}: {entry.note}")


def _read_files(
    skill: BundledSkill, read: Reader, limits: DocumentLimits, findings: list[Finding]
) -> tuple[BundledFile, ...] | None:
    """Return the bundle in the order of paths, or None where it exceeds a limit; adds to `findings`."""
    if len(skill.files) > limits.bundle_files:
        message = f"{len(skill.files):,} files, more than the limit of {limits.bundle_files:,}"
        findings.append(Finding("bundle.too-large", "warning", message))
        return None
    below = len(skill.entry.folder) + 1 if skill.entry.folder else 0
    files: list[BundledFile] = []
    left = limits.bundle_bytes

    def within_limit(pieces: Iterator[bytes]) -> Iterator[bytes]:
        # Pieces are counted as they come: one huge file must not be read to its end.
        nonlocal left
        for piece in pieces:
            left -= len(piece)
            if left < 0:
                return
            yield piece

    for entry in skill.files:
        found = _consume(entry, within_limit(read(entry)), 0, "bundle.unreadable", findings)
        if left < 0:
            message = f"more than the limit of {limits.bundle_bytes:,} bytes"
            findings.append(Finding("bundle.too-large", "warning", message))
            return None
        if found is not None:
            files.append(BundledFile(entry.path[below:], found.size, found.sha256))
    return tuple(files)


def _read_licences(
    skill: BundledSkill, read: Reader, limits: DocumentLimits, findings: list[Finding]
) -> Iterator[LicenceFile]:
    for entry in skill.licences:
        found = _consume(entry, read(entry), limits.licence_bytes, "licence.unreadable", findings)
        if found is not None:
            yield LicenceFile(entry.path, found.sha256, found.head.decode("utf-8", errors="replace"))


def _consume(
    entry: SourceEntry, pieces: Iterator[bytes], keep: int, code: str, findings: list[Finding]
) -> Content | None:
    try:
        return consume(pieces, keep)
    except OSError as error:
        findings.append(Finding(code, "warning", f"{entry.path}: {_why(error)}"))
        return None
