from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from storage.blobs import BlobStore
from storage.errors import StorageError
from storage.schemas import LicenceFile, RawDocument
from tasks.crawl.source.directory import DirectorySource
from tasks.refine.export.export import export_corpus
from tasks.refine.licences.policy import LicencePolicy
from tests.support.roots.nights import HandSource, Nights, raw, with_files

TEXT = "---\nname: {0}\ndescription: Bakes {0}.\nlicense: {1}\n---\nLet the {0} rise.\n"
NOTICE = b"MIT License\n\nCopyright (c) 2026 Ann\n"
FILES = {
    "scripts/run me.sh": b"#!/bin/sh\necho rise\n",
    "assets/loaf.png": b"\x89PNG\r\n" + bytes(range(256)),
    "LICENSE.txt": NOTICE,
    "empty": b"",
}


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path / "root")


def document(name: str, files: dict[str, bytes], licence: str = "MIT", **origin: Any) -> RawDocument:  # noqa: ANN401
    return with_files(raw(f"o/r/{name}", TEXT.format(name, licence).encode(), **origin), files)


def exported(nights: Nights, out: Path, *documents: object) -> Path:
    nights.run(HandSource("git+https://example.org/o/r", *documents))
    policy, classes = LicencePolicy(unknown="allow"), ["allow", "metadata-only"]
    export_corpus(nights.root, out, format="folder", licences=classes, policy=policy, now=nights.now)
    return out / "skills" / "o" / "r"


def below(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_folder_gets_its_files_and_a_crawl_of_it_finds_them(nights: Nights, tmp_path: Path) -> None:
    bread = exported(nights, tmp_path / "out", document("bread", FILES)) / "bread"
    assert {p: c for p, c in below(bread).items() if p not in ("SKILL.md", "PROVENANCE.json")} == FILES
    again = [row for row in DirectorySource(str(bread)).read() if getattr(row, "contents", None)]
    assert {f.path: f.content for f in again[0].contents}.items() >= FILES.items()
    told = json.loads((bread / "PROVENANCE.json").read_text("utf-8"))["files"]
    assert {f["path"]: f["file"] for f in told} == {path: path for path in FILES}


def test_a_licence_in_the_bundle_is_not_written_twice(nights: Nights, tmp_path: Path) -> None:
    skill = document("bread", {"LICENSE.txt": NOTICE}, path="bread/SKILL.md")
    sha = hashlib.sha256(NOTICE).hexdigest()
    given = (
        LicenceFile("bread/LICENSE.txt", sha, NOTICE.decode()),
        LicenceFile("bread/LICENSE-MIT", "0", "MIT"),
    )
    bread = exported(nights, tmp_path / "out", replace(skill, licence_files=given)) / "bread"
    assert sorted(below(bread)) == ["LICENSE.2", "LICENSE.txt", "PROVENANCE.json", "SKILL.md"]
    told = json.loads((bread / "PROVENANCE.json").read_text("utf-8"))["licence_files"]
    assert {f["path"]: f["file"] for f in told} == {
        "bread/LICENSE.txt": "LICENSE.txt",
        "bread/LICENSE-MIT": "LICENSE.2",
    }


def test_files_that_would_replace_others_get_other_names(nights: Nights, tmp_path: Path) -> None:
    files = {
        "PROVENANCE.json": b"1", "skill.md": b"2", "run.sh": b"3", "Run.sh": b"4", ".git/config": b"5",
        "n" * 300: b"6", "sub/SKILL.md": b"7", "..\\..\\up": b"8",
    }  # fmt: skip
    folder = exported(nights, tmp_path / "out", document("bread", files), document("bread/sub", {"x": b"9"}))
    found = below(folder)
    told = {
        f["path"]: found[f"bread/{f['file']}"] for f in json.loads(found["bread/PROVENANCE.json"])["files"]
    }
    assert told == files
    assert sorted({p.name for p in tmp_path.iterdir()}) == ["out", "root"]
    assert not [p for p in found if "/.git" in p or ".." in p]
    texts = [content for path, content in found.items() if path.endswith("SKILL.md")]
    assert sum(b"Let the bread" in text for text in texts) == 2


def test_the_files_of_what_is_not_allowed_stay_behind(nights: Nights, tmp_path: Path) -> None:
    closed = document("closed", FILES, licence="GPL-3.0")
    denied = document("denied", FILES, licence="Proprietary")
    folder = exported(nights, tmp_path / "out", document("bread", {"a": b"1"}), closed, denied)
    assert sorted(p.name for p in folder.iterdir()) == ["bread"]
    assert not any(content in FILES.values() for content in below(tmp_path / "out").values() if content)


def test_a_lost_file_fails_the_export_as_a_whole(nights: Nights, tmp_path: Path) -> None:
    exported(nights, tmp_path / "one", document("bread", {"a": b"1"}))
    store = BlobStore(nights.root)
    store.delete(store.digests())
    with pytest.raises(StorageError, match="is missing"):
        exported(nights, tmp_path / "out", document("bread", {"a": b"1"}))
    assert not (tmp_path / "out").exists()
