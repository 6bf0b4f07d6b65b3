"""Reads one skill within limits: its text, its bundled files, its licence texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from storage.schemas import Dropped, Finding, LicenceFile, RawDocument
from tasks.crawl.source.bundle import BundledSkill, SourceEntry
from tasks.crawl.source.bundled_files import Bundle, take_bundle
from tasks.crawl.source.content import DocumentLimits, consume, too_large

# Yields a file's bytes in pieces; raises OSError where they cannot be read.
Reader = Callable[[SourceEntry], Iterator[bytes]]


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
    bundle = _read_files(skill, read, limits, findings)
    licences = tuple(_read_licences(skill, read, limits, findings))
    return RawDocument(
        doc_id=skill.doc_id, source=source, content=text.head if fits else None, size=text.size,
        raw_hash=text.sha256,
        path=skill.entry.path, files=bundle.files, contents=bundle.contents, licence_files=licences,
        findings=tuple(findings), **origin,
    )  # fmt: skip


def _why(error: OSError) -> str:
    return error.strerror or str(error)


def _odd(entry: SourceEntry) -> Finding:
    if entry.kind == "link":
        return Finding("bundle.symlink", "warning", f"{entry.path} is a symbolic link and is not followed")
    return Finding("bundle.unreadable", "warning", f"{entry.path}: {entry.note}")


def _read_files(skill: BundledSkill, read: Reader, limits: DocumentLimits, findings: list[Finding]) -> Bundle:
    below = len(skill.entry.folder) + 1 if skill.entry.folder else 0
    files = ((entry.path[below:], read(entry)) for entry in skill.files)
    return take_bundle(files, len(skill.files), limits, findings)


def _read_licences(
    skill: BundledSkill, read: Reader, limits: DocumentLimits, findings: list[Finding]
) -> Iterator[LicenceFile]:
    for entry in skill.licences:
        try:
            found = consume(read(entry), limits.licence_bytes)
        except OSError as error:
            findings.append(Finding("licence.unreadable", "warning", f"{entry.path}: {_why(error)}"))
            continue
        yield LicenceFile(entry.path, found.sha256, found.head.decode("utf-8", errors="replace"))
