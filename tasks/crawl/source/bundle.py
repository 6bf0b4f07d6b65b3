"""Bundles: the skills in a listing of paths, each read within limits with the files that belong to it."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from storage.schemas import BundledFile, Dropped, FileContent, Finding, LicenceFile, RawDocument
from tasks.crawl.source.identity import doc_key, make_doc_id, path_key

_LICENCE = re.compile(r"licen[cs]e|copying", re.IGNORECASE)
# Every folder above an entry is looked up: without limits, one path of 64 KB has 2 GB of them.
_LONGEST_PATH, _DEEPEST = 4_096, 100  # characters, folders
_LONGEST_NAME = 255  # bytes: what file systems take
LINK_BYTES = 4_096  # of the target of a link: a longer one leads nowhere
_SHOWN = 5  # paths that a finding names
NESTED = "bundle.nested"  # a finding whose message is the folder of a skill inside another's
_MOST_LICENCES = 20  # files, the nearest first: each skill has all that lie in the folders above it


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


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """One path of a source."""

    path: str  # relative to the source's root, with `/`
    # `unreadable` is no file, folder or link, or access to it is denied.
    kind: Literal["file", "link", "submodule", "unreadable"] = "file"
    key: str = ""  # the id of a git object, or the path as the file system spells it
    note: str = ""  # the target of a link, or why the entry is unreadable
    size: int = 0  # bytes, as the source says before they are read; 0 too where it does not say

    @property
    def folder(self) -> str:
        """The folder it lies in; empty for the source's root."""
        return posixpath.dirname(self.path)

    @property
    def name(self) -> str:
        """The last part of its path."""
        return posixpath.basename(self.path)

    @property
    def names_skill(self) -> bool:
        """Whether it is called SKILL.md, in any letter case."""
        return self.name.lower() == "skill.md"


# Reads a file, and keeps its first bytes, so many at most; raises OSError where it cannot be read.
Reader = Callable[[SourceEntry, int], Content]


@dataclass(frozen=True, slots=True)
class BundledSkill:
    """A SKILL.md that will be read, with the files that belong to it."""

    doc_id: str
    entry: SourceEntry  # the SKILL.md
    files: tuple[SourceEntry, ...]  # below its folder, without those of nested skills
    odd: tuple[SourceEntry, ...]  # links and unreadable entries below its folder
    licences: tuple[SourceEntry, ...]  # of its folder, then of each folder above it
    nested: tuple[str, ...] = ()  # folders right below its own, or deeper, of other skills, relative to it

    def sized(self, sizes: Mapping[str, int]) -> BundledSkill:
        """Return the skill with the sizes of its entries by their keys."""

        def told(entries: Iterable[SourceEntry]) -> tuple[SourceEntry, ...]:
            return tuple(replace(entry, size=sizes.get(entry.key, 0)) for entry in entries)

        return replace(
            self, entry=told([self.entry])[0], files=told(self.files), licences=told(self.licences)
        )


def plan(entries: Iterable[SourceEntry], repository: str, source: str) -> list[BundledSkill | Dropped]:
    """Return the skills to read and dropped entries in the order of paths; ids begin with `repository`."""
    listing = _Listing(sorted(map(checked, entries), key=lambda e: e.path))
    survivors: dict[str, str] = {}
    rows: list[BundledSkill | Dropped] = []
    for entry in listing.entries:
        doc_id = make_doc_id(repository, entry.folder if entry.names_skill else entry.path)
        if entry.names_skill and entry.kind == "file":
            if survivor := survivors.get(doc_key(doc_id)):
                rows.append(Dropped(doc_id, source, "duplicate_id", entry.path, lost_to=survivor))
            else:
                survivors[doc_key(doc_id)] = doc_id
                rows.append(listing.skill(doc_id, entry))
        elif detail := listing.why_not_taken(entry):
            reason = "symlink" if entry.kind == "link" else entry.kind
            rows.append(Dropped(doc_id, source, reason, detail))
    return rows


def links_out(rows: Iterable[object]) -> str:
    """Return which links to folders out of a source were not followed, and what to do; empty: none."""
    links = [
        r.detail for r in rows if isinstance(r, Dropped) and r.reason == "symlink" and " -> /" in r.detail
    ]
    shown = ", ".join(link[:300] for link in links[:_SHOWN]) + (", ..." if len(links) > _SHOWN else "")
    said = f"{len(links):,} links were not followed: {shown}; name what they lead to as sources"
    return said if links else ""


def checked(entry: SourceEntry) -> SourceEntry:
    """Return an entry with a plain path; any other is `unreadable`, under a path that can be looked up."""
    parts = entry.path.split("/")
    if len(entry.path) > _LONGEST_PATH or len(parts) > _DEEPEST:
        note = f"its path has {len(entry.path):,} characters and {len(parts):,} parts"
        return SourceEntry(entry.path[:200].strip("/"), "unreadable", entry.key, note)
    if {"", ".", ".."}.isdisjoint(parts):
        return entry
    plain = "/".join(part for part in parts if part not in {"", ".", ".."})
    return SourceEntry(plain, "unreadable", entry.key, f"{entry.path!r} is no plain path")


class _Listing:
    def __init__(self, entries: list[SourceEntry]) -> None:
        self.entries = entries
        self._skill_folders = {e.folder for e in entries if e.names_skill and e.kind == "file"}
        self._folders = {folder for e in entries for folder in _upwards(e.folder)}
        self._licences: dict[str, list[SourceEntry]] = defaultdict(list)
        self._members: dict[str | None, list[SourceEntry]] = defaultdict(list)
        self._nested: dict[str | None, list[str]] = defaultdict(list)
        for folder in sorted(self._skill_folders - {""}):
            self._nested[self._skill_above(posixpath.dirname(folder))].append(folder)
        for entry in entries:
            self._members[self._skill_above(entry.folder)].append(entry)
            if entry.kind == "file" and _LICENCE.match(entry.name):
                self._licences[entry.folder].append(entry)

    def skill(self, doc_id: str, entry: SourceEntry) -> BundledSkill:
        members = [e for e in self._members[entry.folder] if not e.names_skill]
        files = tuple(e for e in members if e.kind == "file")
        odd = tuple(e for e in members if e.kind in {"link", "unreadable"})
        licences = tuple(e for folder in _upwards(entry.folder) for e in self._licences[folder])
        nested = (posixpath.relpath(folder, entry.folder or ".") for folder in self._nested[entry.folder])
        return BundledSkill(doc_id, entry, files, odd, licences, tuple(nested))

    def why_not_taken(self, entry: SourceEntry) -> str:
        """Return the detail of an entry that may hide a skill; empty if it cannot."""
        if entry.kind == "submodule":
            return entry.path
        if entry.kind == "unreadable":
            return f"{entry.path}: {entry.note}"
        if entry.kind != "link":
            return ""
        target = posixpath.normpath(posixpath.join(entry.folder, entry.note))
        outside = target.startswith(("/", ".."))
        hides = entry.names_skill or target == "." or target in self._folders
        # A link out of the source, inside a skill's folder, is a finding on that skill instead.
        if hides or (outside and self._skill_above(entry.folder) is None):
            return f"{entry.path} -> {entry.note}"
        return ""

    def _skill_above(self, folder: str) -> str | None:
        return next((f for f in _upwards(folder) if f in self._skill_folders), None)


def _upwards(folder: str) -> Iterator[str]:
    """Yield a folder and every folder above it, the root (empty) last."""
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]
    yield ""


@dataclass(frozen=True, slots=True)
class Bundle:
    """The files beside a SKILL.md, None where a limit is exceeded, and the bytes of those that are kept."""

    files: tuple[BundledFile, ...] | None
    contents: tuple[FileContent, ...] = ()


def take_bundle(
    files: Sequence[SourceEntry], read: Reader, limits: DocumentLimits, found: list[Finding], folder: str = ""
) -> Bundle:
    """Return the bundle of the skill in `folder`; add to `found` what is unreadable, left out or badly named.

    In the order given, each file that fits into what is left of the limits is kept. Nothing is read of a
    bundle that is over its limits by the sizes of its entries.
    """
    if len(files) > limits.bundle_files:
        found.append(_too_large(f"{len(files):,} files, more than the limit of {limits.bundle_files:,}"))
        return Bundle(None)
    below = len(folder) + 1 if folder else 0
    taken: list[BundledFile] = []
    contents: list[FileContent] = []
    unread, room = limits.bundle_bytes - sum(entry.size for entry in files), limits.kept_bytes
    for entry in files if unread >= 0 else ():
        path, keeps = entry.path[below:], len(contents) < limits.kept_files and entry.size <= room
        try:
            content = read(entry, room if keeps else 0)
        except OSError as error:
            found.append(Finding("bundle.unreadable", "warning", f"{path}: {_why(error)}"))
            continue
        unread += entry.size - content.size
        if unread < 0:
            break
        taken.append(BundledFile(path, content.size, content.sha256))
        if keeps and content.size <= room:
            contents.append(FileContent(path, content.head))
            room -= content.size
    if unread < 0:
        found.append(_too_large(f"more than the limit of {limits.bundle_bytes:,} bytes"))
        return Bundle(None)
    kept = {file.path for file in contents}
    found += _not_kept([file.path for file in taken if file.path not in kept], limits)
    found += _on_names([file.path for file in taken])
    return Bundle(tuple(taken), tuple(contents))


def _too_large(message: str) -> Finding:
    return Finding("bundle.too-large", "warning", message)


def _not_kept(paths: list[str], limits: DocumentLimits) -> list[Finding]:
    if not paths:
        return []
    most = f"{limits.kept_files:,} files and {limits.kept_bytes:,} bytes"
    message = f"{len(paths):,} files are over the limit of {most}, and listed without their bytes"
    return [Finding("bundle.not-kept", "warning", f"{message}: {_some(paths)}")]


def _on_names(paths: list[str]) -> list[Finding]:
    """Return findings on paths that some file system cannot hold, or takes for one."""
    found = []
    if long := [p for p in paths if any(len(part.encode()) > _LONGEST_NAME for part in p.split("/"))]:
        message = f"{len(long):,} names have more than {_LONGEST_NAME} bytes: {_some(long)}"
        found.append(Finding("bundle.long-name", "warning", message))
    times = Counter(map(path_key, paths))
    if alike := [path for path in paths if times[path_key(path)] > 1]:
        message = f"{len(alike):,} paths are alike but for letter case or accents: {_some(alike)}"
        found.append(Finding("bundle.same-name", "warning", message))
    return found


def _some(paths: list[str]) -> str:
    shown = [path if len(path) <= 80 else f"{path[:60]}...{path[-17:]}" for path in paths[:_SHOWN]]
    more = f" and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
    return ", ".join(shown) + more


def wanted(skill: BundledSkill, limits: DocumentLimits) -> list[SourceEntry]:
    """Return the files that reading a skill opens: none that is over a limit, by number or by size."""
    fits = len(skill.files) <= limits.bundle_files and sum(e.size for e in skill.files) <= limits.bundle_bytes
    licences = [entry for entry in skill.licences[:_MOST_LICENCES] if entry.size <= limits.document_bytes]
    text = [skill.entry] if skill.entry.size <= limits.bundle_bytes else []
    return [*text, *(skill.files if fits else ()), *licences]


def read_skill(
    skill: BundledSkill | Dropped,
    read: Reader,
    limits: DocumentLimits,
    source: str,
    **origin: Any,  # noqa: ANN401
) -> RawDocument | Dropped:
    """Return a skill with these fields of its `origin`, or why its SKILL.md could not be read.

    A row that was dropped is returned as it is. Over `limits.document_bytes` the content is None, and a
    finding says why. A text larger than a bundle may be is not read: `raw_hash` is the digest of its key and
    its size. Other files of the bundle that cannot be read become findings too.
    """
    if isinstance(skill, Dropped):
        return skill
    entry = skill.entry
    if entry.size > limits.bundle_bytes:
        text = Content(b"", entry.size, hashlib.sha256(f"{entry.key} {entry.size}".encode()).hexdigest())
    else:
        try:
            text = read(entry, 0 if entry.size > limits.document_bytes else limits.document_bytes)
        except OSError as error:
            return Dropped(skill.doc_id, source, "unreadable", f"{entry.path}: {_why(error)}")
    fits = text.size <= limits.document_bytes
    findings = [] if fits else [too_large(text.size, limits.document_bytes)]
    findings += [_odd(entry) for entry in skill.odd]
    findings += [Finding(NESTED, "info", folder) for folder in skill.nested]
    bundle = take_bundle(skill.files, read, limits, findings, entry.folder)
    licences = tuple(_read_licences(skill, read, limits, findings))
    return RawDocument(
        doc_id=skill.doc_id, source=source, content=text.head if fits else None, size=text.size,
        raw_hash=text.sha256,
        path=entry.path, files=bundle.files, contents=bundle.contents, licence_files=licences,
        findings=tuple(findings), **origin,
    )  # fmt: skip


def _why(error: OSError) -> str:
    return error.strerror or str(error)


def _odd(entry: SourceEntry) -> Finding:
    if entry.kind == "link":
        leads = f" to {_some([entry.note])}" if entry.note else ""
        return Finding("bundle.symlink", "warning", f"{entry.path} is a symbolic link{leads}: not followed")
    return Finding("bundle.unreadable", "warning", f"{entry.path}: {entry.note}")


def _read_licences(
    skill: BundledSkill, read: Reader, limits: DocumentLimits, findings: list[Finding]
) -> Iterator[LicenceFile]:
    for entry in skill.licences[:_MOST_LICENCES]:
        try:
            if entry.size > limits.document_bytes:
                raise OSError(f"{entry.size:,} bytes, more than the limit of {limits.document_bytes:,}")
            found = read(entry, limits.licence_bytes)
        except OSError as error:
            findings.append(Finding("licence.unreadable", "warning", f"{entry.path}: {_why(error)}"))
            continue
        yield LicenceFile(entry.path, found.sha256, found.head.decode("utf-8", errors="replace"))
    if (more := len(skill.licences) - _MOST_LICENCES) > 0:
        message = f"{more:,} more files of a licence, beside the {_MOST_LICENCES} nearest, are not read"
        findings.append(Finding("licence.unreadable", "warning", message))
