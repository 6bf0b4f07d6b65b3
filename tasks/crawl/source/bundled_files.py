"""Takes the bundled files of a skill within limits: what they are called, their digests, bytes to keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from storage.schemas import BundledFile, FileContent, Finding
from tasks.crawl.source.content import DocumentLimits, consume
from tasks.crawl.source.identity import path_key

_LONGEST_NAME = 255  # bytes: what file systems take
_SHOWN = 5  # paths that a finding names


@dataclass(frozen=True, slots=True)
class Bundle:
    """The files beside a SKILL.md, None where a limit is exceeded, and the bytes of those that are kept."""

    files: tuple[BundledFile, ...] | None
    contents: tuple[FileContent, ...] = ()


class _TooLarge(Exception):
    """The bundle exceeds its limit of bytes."""


def take_bundle(
    files: Iterable[tuple[str, Iterator[bytes]]], count: int, limits: DocumentLimits, found: list[Finding]
) -> Bundle:
    """Return the bundle of a skill; add to `found` what is unreadable, left out, or badly named.

    In the order given, each file that fits into what is left of the limits is kept.

    Args:
        files: Each file's path, relative to the skill's folder, and its bytes in pieces, which may raise
            OSError where they cannot be read.
        count: The number of files.
        limits: The most that is taken.
        found: Findings on the document.
    """
    if count > limits.bundle_files:
        found.append(_too_large(f"{count:,} files, more than the limit of {limits.bundle_files:,}"))
        return Bundle(None)
    taken: list[BundledFile] = []
    contents: list[FileContent] = []
    budget = _Budget(limits)
    try:
        for path, pieces in files:
            try:
                read = consume(budget.counted(pieces), budget.left_to_keep)
            except OSError as error:
                found.append(Finding("bundle.unreadable", "warning", f"{path}: {error.strerror or error}"))
                continue
            taken.append(BundledFile(path, read.size, read.sha256))
            if budget.keeps(read.size):
                contents.append(FileContent(path, read.head))
    except _TooLarge:
        found.append(_too_large(f"more than the limit of {limits.bundle_bytes:,} bytes"))
        return Bundle(None)
    kept = {file.path for file in contents}
    found += _not_kept([file.path for file in taken if file.path not in kept], limits)
    found += _on_names([file.path for file in taken])
    return Bundle(tuple(taken), tuple(contents))


class _Budget:
    """Counts bytes read and kept."""

    def __init__(self, limits: DocumentLimits) -> None:
        self._unread, self._bytes, self._files = limits.bundle_bytes, limits.kept_bytes, limits.kept_files

    @property
    def left_to_keep(self) -> int:
        return self._bytes if self._files else 0

    def counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        # Pieces are counted as they come: one huge file must not be read to its end.
        for piece in pieces:
            self._unread -= len(piece)
            if self._unread < 0:
                raise _TooLarge
            yield piece

    def keeps(self, size: int) -> bool:
        """Tell whether a file of this size is kept, and count it if it is."""
        if not self._files or size > self._bytes:
            return False
        self._files, self._bytes = self._files - 1, self._bytes - size
        return True


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
