"""Contents of a file: the texts that it holds, in archives too, and hits on what of it could not be read."""

from __future__ import annotations

import bz2
import io
import lzma
import posixpath
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from storage.schemas import FileContent, Finding, Severity
from tasks.models.visible import visible
from tasks.refine.risks.files import DISGUISED, TextFile, finding_on, scan_files
from tasks.refine.risks.kinds import is_disguised
from tasks.refine.risks.rules import Hit
from tasks.refine.text.canonical import MAX_CONTROL_SHARE, control_share
from tasks.refine.text.encodings import decode, scanned

# The most that is read of one file: bytes of a text, and bytes, members and levels of an archive; and of a
# skill, the archives that are opened, and the characters of all its texts, the shortest first.
_TEXT_BYTES, _MOST_CHARS = 2_000_000, 8_000_000
_MOST_BYTES, _MOST_MEMBERS, _DEEPEST, _MOST_ARCHIVES = 4 * 1024 * 1024, 1_000, 3, 16
# Of the directory at a ZIP's end, which is read whole before the first member.
_DIRECTORY_BYTES, _TAIL_BYTES = 200 * _MOST_MEMBERS, 70_000
# What a file begins with, and what it then is.
_PROGRAMS = {
    b"\x7fELF": "a program (ELF)", b"MZ": "a program (Windows)", b"\xcf\xfa\xed\xfe": "a program (macOS)",
    b"\xce\xfa\xed\xfe": "a program (macOS)", b"\xca\xfe\xba\xbe": "a program (macOS or Java)",
    b"\0asm": "a program (WebAssembly)", b"\x80\x02": "pickled Python", b"\x80\x03": "pickled Python",
    b"\x80\x04": "pickled Python", b"\x80\x05": "pickled Python", b"dex\n": "a program (Android)",
}  # fmt: skip
_PYC = re.compile(rb"\A[\x00-\xff]\x0d\x0d\x0a", re.DOTALL)
_CLOSED = {
    b"7z\xbc\xaf\x27\x1c": "an archive (7z)", b"Rar!\x1a\x07": "an archive (RAR)",
    b"\x28\xb5\x2f\xfd": "an archive (zstd)", b"MSCF": "an archive (CAB)", b"xar!": "an archive (xar)",
}  # fmt: skip
RUNS = re.compile(rb"[\t\n\r -~]{12,}")  # of characters that a program may be written in


class Reading(NamedTuple):
    """What of a file can be read as text, and what was found by its form alone, with the path of each."""

    texts: list[TextFile]
    hits: list[tuple[str, Hit]]


def packed_as(content: bytes) -> str | None:
    """Return how a file is packed, if it is in a way that can be undone; a ZIP may follow anything else."""
    if b"PK\5\6" in content[-_TAIL_BYTES:]:
        return "zip"
    if content[257:262] == b"ustar":
        return "tar"
    starts = {b"\x1f\x8b\x08": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz"}
    return next((name for start, name in starts.items() if content.startswith(start)), None)


@dataclass(slots=True)
class _Reader:
    """Reads one file and what is packed in it, as long as there is room for it."""

    max_control_share: float
    levels: int
    room: int = _MOST_BYTES
    members: int = _MOST_MEMBERS
    found: Reading = field(default_factory=lambda: Reading([], []))

    def read(self, content: bytes, path: str, depth: int = 0) -> None:
        """Read a file, which lies in `depth` archives."""
        packed = packed_as(content)
        if packed is not None and depth >= self.levels:
            over = f"an archive in {depth} others" if depth else f"an archive after {_MOST_ARCHIVES} others"
            # A folder of templates is no risk; no more is known of one than of a picture.
            is_office = packed == "zip" and b"[Content_Types].xml" in content and not depth
            self._say("unscanned.archive", path, over, "info" if is_office else None)
        elif packed is not None:
            self._unpack(packed, content, path, depth)
        head = content[:_TEXT_BYTES]
        if control_share(decode(head)[0]) <= self.max_control_share:
            self._text(scanned(head), path, size=len(content))
        elif packed is None or packed == "zip":
            self._binary(content, path, known=packed is not None)

    def _text(self, text: str, path: str, *, whole: bool = True, size: int = 0) -> None:
        self.found.texts.append(TextFile(text, path, whole))
        if size > _TEXT_BYTES:
            self._say("unscanned.large", path, f"{size:,} bytes, of which {_TEXT_BYTES:,} were read")

    def _binary(self, content: bytes, path: str, *, known: bool) -> None:
        head = content[: content.find(b"PK\3\4")] if known else content
        if len(head) > _TEXT_BYTES:  # what is put into a picture stands at its start or at its end
            head = head[: _TEXT_BYTES // 2] + b"\n" + head[-_TEXT_BYTES // 2 :]
        plain = head.replace(b"\0", b"")
        # A shell reads on over zeros: a script stays one, however many of them stand behind its last line.
        if not known and control_share(plain.decode("latin-1")) <= self.max_control_share:
            self._text(scanned(head), path, size=len(content))
            return
        # What an interpreter finds behind a picture or in front of an archive is text, too.
        if runs := RUNS.findall(plain):
            self._text("\n".join(run.decode("ascii") for run in runs), path, whole=False)
        if known:
            return
        what = next((said for magic, said in _PROGRAMS.items() if content.startswith(magic)), None)
        what = "compiled Python" if _PYC.match(content) else what
        closed = next((said for magic, said in _CLOSED.items() if content.startswith(magic)), None)
        if what and is_disguised(path, {"shell"}):
            self._say(DISGUISED, path, what)
        rule = "program" if what else "archive" if closed else "binary"
        self._say(f"unscanned.{rule}", path, what or closed or f"{len(content):,} bytes that are no text")

    def _say(self, rule: str, path: str, what: str, severity: Severity | None = None) -> None:
        self.found.hits.append((path, Hit(rule, 0, what, severity=severity)))

    def _unpack(self, kind: str, content: bytes, path: str, depth: int) -> None:
        unpacked = {"zip": self._zip, "tar": self._tar}.get(kind)
        try:
            for name, inside in unpacked(content, path) if unpacked else self._stream(kind, content, path):
                self.read(inside, name, depth + 1)
        except Exception as error:  # what a hostile archive makes its library raise cannot be foreseen
            self._say("unscanned.archive", path, f"a damaged archive ({kind}: {type(error).__name__})")

    def _takes(self, size: int, path: str) -> bool:
        self.members -= 1
        if self.members < 0 or size > self.room:
            self._say("unscanned.archive", path, f"{size:,} bytes in an archive, more than is read of one")
            return False
        self.room -= size
        return True

    def _stream(self, kind: str, content: bytes, path: str) -> Iterator[tuple[str, bytes]]:
        inside, rest = b"", content
        while rest and len(inside) <= self.room:
            stream = (
                zlib.decompressobj(wbits=31) if kind == "gzip"
                else bz2.BZ2Decompressor() if kind == "bzip2" else lzma.LZMADecompressor(memlimit=1 << 26)
            )  # fmt: skip
            inside += stream.decompress(rest, self.room + 1 - len(inside))
            rest = stream.unused_data
        if self._takes(len(inside), path):
            yield f"{path}!{posixpath.basename(path).rpartition('.')[0]}", inside

    def _zip(self, content: bytes, path: str) -> Iterator[tuple[str, bytes]]:
        end = content.rfind(b"PK\5\6")
        if struct.unpack_from("<L", content, end + 12)[0] > _DIRECTORY_BYTES:
            self._say("unscanned.archive", path, "an archive with more members than are read of one")
            return
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if any(content[end + 8 : end + 16]) and not archive.infolist():
                self._say("unscanned.archive", path, "an archive that lists none of its members")
            for member in archive.infolist():
                name = f"{path}!{visible(member.filename)}"
                self._place(member.filename, name)
                if member.comment and self._takes(len(member.comment), name):
                    yield f"{name}!comment", member.comment
                if member.flag_bits & 1:
                    self._say("unscanned.encrypted", name, "a file under a password")
                elif member.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
                    self._say("unscanned.archive", name, f"a file packed by method {member.compress_type}")
                elif not member.is_dir() and self._takes(member.file_size, name):
                    with archive.open(member) as file:
                        inside = file.read(member.file_size)
                    if stat.S_ISLNK(member.external_attr >> 16):
                        self._link(member.filename, inside.decode("utf-8", "replace"), name)
                    yield name, inside
        yield from self._behind(content[end + 22 :], path)

    def _tar(self, content: bytes, path: str) -> Iterator[tuple[str, bytes]]:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for member in archive:
                name = f"{path}!{visible(member.name)}"
                self._place(member.name, name)
                if member.issym() or member.islnk():
                    self._link(member.name if member.issym() else "", member.linkname, name)
                # One of a type that nobody knows is unpacked as a file.
                is_file = not (member.isdir() or member.issym() or member.islnk() or member.isdev())
                if is_file and self._takes(member.size, name):
                    file = archive.extractfile(member)
                    yield name, file.read(member.size) if file else b""
                elif self.members < 0:
                    return
            yield from self._behind(content[archive.offset :], path)

    def _behind(self, rest: bytes, path: str) -> Iterator[tuple[str, bytes]]:
        rest, name = rest.lstrip(b"\0"), f"{path}!behind its end"
        if rest and self._takes(len(rest), name):
            yield name, rest

    def _place(self, member: str, name: str) -> None:
        if leads_out("", member):
            self.found.hits.append((name, Hit("path.archive-out", 0, member)))

    def _link(self, member: str, target: str, name: str) -> None:
        if leads_out(posixpath.dirname(member), target):
            self.found.hits.append((name, Hit("path.link-out", 0, target)))


def leads_out(folder: str, target: str) -> bool:
    """Tell whether a path, from a folder below the place in which all lies, leads out of that place."""
    plain = target.replace("\\", "/")
    return bool(re.match(r"/|[A-Za-z]:|\.\.(?:/|\Z)", posixpath.normpath(posixpath.join(folder, plain))))


def read_contents(
    content: bytes, path: str, *, max_control_share: float = MAX_CONTROL_SHARE, levels: int = _DEEPEST
) -> Reading:
    """Return what a file holds: its text, or its members, as deep as they are packed, and what is unreadable.

    No content raises an error. A file that is two things at once is read as both. What is over a bound, under
    a password, damaged, a program or no text at all is a hit of a rule `unscanned`; a path or a link in an
    archive that leads out of it is one of a rule `path`. `path` is where it lies in its skill's folder, a
    member's behind a `!`; `levels` is how many archives in archives are opened.
    """
    reader = _Reader(max_control_share, levels)
    reader.read(content, path)
    return reader.found


_LINK = re.compile(r"(?= is a symbolic link to (?P<target>.*): not followed\Z)", re.DOTALL)
_NOT_FETCHED = {"bundle.not-kept", "bundle.too-large", "bundle.unreadable"}
_CUT = "..."  # stands in the message of a crawl in the middle of a long target


def crawled(findings: Sequence[Finding]) -> list[Finding]:
    """Return the risks of what a crawl met beside files: links that lead out, and what it did not fetch."""
    hits = []
    for one in findings:
        if one.code in _NOT_FETCHED:
            hits.append(Hit("unscanned.not-fetched", 0, one.message))
        # A name may hold these words, too: whichever of them are those of the crawl.
        for link in _LINK.finditer(one.message) if one.code == "bundle.symlink" else ():
            target, folder = link["target"], posixpath.dirname(one.message[: link.start()])
            if leads_out(folder, target) or _CUT in target:
                hits.append(Hit("path.link-out", 0, one.message))
    return [finding_on(rule, [*of_rule]) for rule, of_rule in groupby(sorted(hits), key=lambda hit: hit.rule)]


PathFinding = tuple[str, Finding]
_File = tuple[FileContent, bool]  # and whether it is opened if it is an archive


def scan_bundles(
    bundles: Sequence[Sequence[FileContent]], *, max_control_share: float
) -> list[list[PathFinding]]:
    """Return what is found in the files of each of many skills, with its path; equal files are scanned once.

    The errors, and the largest share of control characters, are those of `read_contents`.
    """
    found: dict[_File, list[PathFinding]] = {}
    waiting: dict[_File, Reading] = {}
    sizes: dict[_File, int] = {}
    left_out: list[dict[_File, list[PathFinding]]] = []
    wanted = [[*dict.fromkeys(_opened(files))] for files in bundles]
    for keys in wanted:
        readings = {
            (file, opens): waiting.get((file, opens))
            or read_contents(
                file.content, file.path, max_control_share=max_control_share, levels=_DEEPEST * opens
            )
            for file, opens in keys
            if (file, opens) not in found
        }
        sizes |= {key: sum(len(text.text) for text in reading.texts) for key, reading in readings.items()}
        room, cut = _MOST_CHARS, {}
        # Who fills a folder to hide a script behind it does not hide it so.
        for key in sorted(keys, key=sizes.__getitem__):
            room -= sizes[key]
            if room < 0:
                hit = Hit("unscanned.large", 0, f"{sizes[key]:,} characters, after {_MOST_CHARS:,} of others")
                cut[key] = [(key[0].path, finding_on(hit.rule, [hit]))]
        left_out.append(cut)
        waiting |= {key: reading for key, reading in readings.items() if key not in cut}
        if sum(map(sizes.__getitem__, waiting)) > _MOST_CHARS:
            found |= _scanned(waiting)
            waiting = {}
    found |= _scanned(waiting)
    return [
        [one for key in keys for one in cut.get(key) or found[key]]
        for keys, cut in zip(wanted, left_out, strict=True)
    ]


def _opened(files: Sequence[FileContent]) -> Iterator[_File]:
    archives = 0
    for file in files:
        archives += packed_as(file.content) is not None
        yield file, archives <= _MOST_ARCHIVES


def _scanned(readings: dict[_File, Reading]) -> dict[_File, list[PathFinding]]:
    of_texts = iter(scan_files([text for reading in readings.values() for text in reading.texts]))
    return {
        key: [
            *((path, finding_on(hit.rule, [hit])) for path, hit in reading.hits),
            *((text.path, one) for text in reading.texts for one in next(of_texts)),
        ]
        for key, reading in readings.items()
    }
