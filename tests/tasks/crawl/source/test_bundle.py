"""Bundles: the skills of a listing, their files within limits, and what files at their root say."""

from __future__ import annotations

import hashlib
import json
import posixpath
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.parquet import read_frame
from storage.root import Root
from storage.schemas import RAW_DOCUMENTS, Dropped, Finding, RawDocument
from storage.state import listed_table, seen_table
from tasks.crawl.source.bundle import (
    Bundle,
    BundledSkill,
    Content,
    DocumentLimits,
    SourceEntry,
    consume,
    plan,
    read_skill,
    take_bundle,
)
from tasks.crawl.source.project import Project, project_of
from tests.support.crawl.crawling import Crawler, grows
from tests.support.marketplace.repository import Repository
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World
from tests.tasks.crawl.conftest import WorkTree

FOLDERS = st.lists(st.sampled_from(["a", "A", "b", "ü x"]), max_size=3).map("/".join)
NAMES = st.sampled_from(["SKILL.md", "skill.md", "run.sh", "LICENSE", "Copying.txt", "notes.md"])
PATHS = st.sets(st.tuples(FOLDERS, NAMES).map(lambda p: posixpath.join(*p)), min_size=1, max_size=25)
CONTENTS = st.dictionaries(st.sampled_from([f"f{n}" for n in range(9)]), st.binary(max_size=12))


@given(PATHS)
def test_every_skill_file_is_taken_or_dropped_and_ids_are_unique(paths: set[str]) -> None:
    rows = plan((SourceEntry(path) for path in paths), "ada/herbs", "spec")
    skills = [row for row in rows if isinstance(row, BundledSkill)]
    lost = [row for row in rows if isinstance(row, Dropped)]
    named = {path for path in paths if posixpath.basename(path).lower() == "skill.md"}
    assert {s.entry.path for s in skills} | {d.detail for d in lost} == named
    assert len({s.doc_id.casefold() for s in skills}) == len(skills)
    assert {d.lost_to for d in lost} <= {s.doc_id for s in skills}
    assert {d.reason for d in lost} <= {"duplicate_id"}


@pytest.mark.parametrize(
    ("path", "doc_id"),
    [
        ("/SKILL.md", "ada/herbs"),
        ("a//SKILL.md", "ada/herbs/a"),
        ("../SKILL.md", "ada/herbs"),
        ("deep/" * 20_000 + "SKILL.md", "ada/herbs/" + ("deep/" * 40)[:-1]),
    ],
    ids=["absolute", "an empty part", "above the root", "100 KB deep"],
)
def test_a_path_that_is_not_plain_is_dropped_and_its_neighbours_are_taken(path: str, doc_id: str) -> None:
    rows = plan([SourceEntry(path), SourceEntry("mint/SKILL.md")], "ada/herbs", "spec")
    assert [row.reason for row in rows if isinstance(row, Dropped)] == ["unreadable"]
    assert {row.doc_id for row in rows} == {doc_id, "ada/herbs/mint"}


@given(PATHS)
def test_a_file_belongs_to_the_nearest_skill_above_it(paths: set[str]) -> None:
    rows = plan((SourceEntry(path) for path in paths), "ada/herbs", "spec")
    folders = {posixpath.dirname(p) for p in paths if posixpath.basename(p).lower() == "skill.md"}
    for skill in (row for row in rows if isinstance(row, BundledSkill)):
        for file in skill.files:
            above = [f for f in folders if f == "" or f"{file.folder}/".startswith(f"{f}/")]
            assert max(above, key=len) == skill.entry.folder
        inside = {posixpath.join(skill.entry.folder, folder) for folder in skill.nested}
        assert inside <= folders - {skill.entry.folder}
        below = {f for f in folders if f"{f}/".startswith(f"{skill.entry.folder}/") or not skill.entry.folder}
        assert all(any(f"{f}/".startswith(f"{n}/") for n in inside) for f in below - {skill.entry.folder})
        for licence in skill.licences:
            assert licence.folder == "" or f"{skill.entry.folder}/".startswith(f"{licence.folder}/")
        depths = [len(licence.folder) for licence in skill.licences]
        assert depths == sorted(depths, reverse=True)


@given(st.lists(st.binary(max_size=9)), st.integers(0, 40))
def test_consuming_keeps_the_first_bytes_whatever_the_pieces(pieces: list[bytes], keep: int) -> None:
    whole = b"".join(pieces)
    assert consume(pieces, keep) == consume([whole], keep)
    assert consume(pieces, keep)[:2] == (whole[:keep], len(whole))


def take(files: dict[str, bytes], limits: DocumentLimits | None = None) -> tuple[Bundle, list[Finding]]:
    found: list[Finding] = []
    entries = [SourceEntry(path, size=len(content)) for path, content in files.items()]
    limits = limits or DocumentLimits()
    return take_bundle(entries, lambda e, keep: consume([files[e.path]], keep), limits, found), found


def codes(found: list[Finding]) -> list[str]:
    return [finding.code for finding in found]


@given(CONTENTS, st.integers(0, 10), st.integers(0, 60))
def test_what_is_kept_is_within_limits_the_rest_named(files: dict[str, bytes], most: int, size: int) -> None:
    bundle, found = take(files, DocumentLimits(kept_files=most, kept_bytes=size))
    kept = {file.path: file.content for file in bundle.contents}
    assert bundle.files is not None
    assert {f.path: (f.size, f.sha256) for f in bundle.files} == {
        path: (len(content), hashlib.sha256(content).hexdigest()) for path, content in files.items()
    }
    assert kept.items() <= files.items()
    assert len(kept) <= most
    assert sum(map(len, kept.values())) <= size
    left = [path for path in files if path not in kept]
    assert codes(found) == ["bundle.not-kept"] * bool(left)
    if left:
        assert found[0].message.startswith(f"{len(left)} files are over the limit")
        assert left[0] in found[0].message
    # Nothing is left out that would still have fitted when its turn came.
    assert len(kept) == most or all(len(files[p]) > size - sum(map(len, kept.values())) for p in left)


def unread(entry: SourceEntry, keep: int) -> Content:
    msg = f"{entry.path}: nothing may be read, to keep {keep} bytes"
    raise AssertionError(msg)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([SourceEntry(str(n)) for n in range(5000)], "5,000 files, more than the limit of 2,000"),
        ([SourceEntry(str(n), size=26_000_000) for n in range(2)], "more than the limit of 50,000,000 bytes"),
    ],
)
def test_a_bundle_over_its_limits_is_named_and_not_read(entries: list[SourceEntry], message: str) -> None:
    found: list[Finding] = []
    assert take_bundle(entries, unread, DocumentLimits(), found) == Bundle(None)
    assert found == [Finding("bundle.too-large", "warning", message)]


def test_a_bundle_of_unknown_size_is_read_to_the_limit() -> None:
    read: list[str] = []

    def thousand(entry: SourceEntry, keep: int) -> Content:
        read.append(entry.path)
        return consume([b"0" * 1000], keep)

    found: list[Finding] = []
    entries = [SourceEntry(f"f{n}") for n in range(100)]
    assert take_bundle(entries, thousand, DocumentLimits(bundle_bytes=10_000), found) == Bundle(None)
    assert (codes(found), len(read)) == (["bundle.too-large"], 11)


@pytest.mark.parametrize("name", ["SKILL.md", "LICENSE"])
def test_a_text_too_large_by_its_size_is_named_and_not_read(name: str) -> None:
    entries = [SourceEntry("a/SKILL.md"), SourceEntry("LICENSE")]
    entries = [replace(e, key=e.path, size=60_000_000 if e.name == name else 0) for e in entries]
    (skill,) = plan(entries, "ada/herbs", "spec")
    assert isinstance(skill, BundledSkill)

    def read(entry: SourceEntry, keep: int) -> Content:
        return unread(entry, keep) if entry.size else consume([b"text"], keep)

    document = read_skill(skill, read, DocumentLimits(), "spec")
    assert isinstance(document, RawDocument)
    code = {"SKILL.md": "document.too-large", "LICENSE": "licence.unreadable"}[name]
    assert code in codes(list(document.findings))


def test_licences_beyond_the_twenty_nearest_are_counted() -> None:
    names = [f"a/LICENSE-{n:03}" for n in range(30)]
    (skill,) = plan([SourceEntry("a/b/SKILL.md"), *map(SourceEntry, names)], "ada/herbs", "spec")
    assert isinstance(skill, BundledSkill)
    document = read_skill(skill, lambda _, keep: consume([b"text"], keep), DocumentLimits(), "spec")
    assert isinstance(document, RawDocument)
    assert len(document.licence_files) == 20
    assert [f.message[:7] for f in document.findings] == ["10 more"]


def test_an_unreadable_file_is_named_and_the_others_are_taken() -> None:
    def read(entry: SourceEntry, keep: int) -> Content:
        if entry.path == "a":
            raise OSError("it is damaged")
        return consume([b"1"], keep)

    found: list[Finding] = []
    bundle = take_bundle([SourceEntry("a"), SourceEntry("b")], read, DocumentLimits(), found)
    assert [file.path for file in bundle.contents] == ["b"]
    assert found == [Finding("bundle.unreadable", "warning", "a: it is damaged")]


def test_names_that_a_file_system_cannot_hold_are_named() -> None:
    long = "n" * 300
    _, found = take({f"docs/{long}": b"", "Run.sh": b"1", "run.SH": b"2", "é": b"", "e\u0301": b"", "a": b""})
    assert {finding.code: finding.message for finding in found} == {
        "bundle.long-name": f"1 names have more than 255 bytes: docs/{'n' * 55}...{'n' * 17}",
        "bundle.same-name": "4 paths are alike but for letter case or accents: Run.sh, run.SH, é, e\u0301",
    }


LOCK = json.dumps({
    "version": 1,
    "skills": {"Sour Mint": {"sourceType": "github"}, "own": {"sourceType": "local"}},
}).encode()  # fmt: skip
PLUGIN = json.dumps({
    "$schema": "https://agent-plugins.org/schemas/1.0.0/plugin.schema.json",
    "name": "herbs", "license": "MIT",
}).encode()  # fmt: skip
DUSK = grows("mint", "Water it at dusk.")
COPIES = {
    ".claude/skills/sour-mint/SKILL.md": grows("mint"),
    ".agents/skills/own/SKILL.md": grows("own"),
    ".agents/skills/other/SKILL.md": grows("other"),
    "skills/sour-mint/SKILL.md": grows("sour-mint"),
}


def placed(kind: str, files: dict[str, bytes], tree: WorkTree, world: World) -> str:
    """Put files where a source of this kind finds them; return its spec."""
    if kind == "github":
        (world.find("ann/herbs")[0] or world.repository("ann/herbs")).commit(files)
        return "github:ann/herbs"
    for name, content in files.items():
        tree.write(name, content)
    tree.commit()
    return tree.spec if kind == "git" else f"dir:{tree.path}"


@pytest.mark.parametrize("kind", ["dir", "git", "github"])
def test_a_copy_that_the_lock_names_is_dropped_and_retired(
    kind: str, worktree: WorkTree, world: World, crawler: Crawler
) -> None:
    spec = placed(kind, COPIES, worktree, world)
    assert crawler.crawl(spec).new == 4
    placed(kind, {"skills-lock.json": LOCK}, worktree, world)
    report = crawler.crawl(spec)
    assert (report.retired, report.unchanged, report.failed) == (1, 3, {"installed-copy": 1})
    kept = {doc_id.partition("/herbs/")[2] for doc_id in crawler.held()}
    assert kept == {".agents/skills/own", ".agents/skills/other", "skills/sour-mint"}
    assert crawler.crawl(spec).unchanged == 3
    placed(kind, {"plugin.json": PLUGIN, **dict.fromkeys(COPIES, DUSK)}, worktree, world)
    crawler.crawl(spec)
    assert {row["repo_licence"] for row in crawler.raw() if row["content"] == DUSK} == {"MIT"}


@pytest.mark.parametrize(
    "file",
    [
        b"", b"[]", b"[" * 9_999, b'{"version":0,"skills":{"a":{}}}',
        b'{"version":1,"skills":[],"license":"MIT"}', PLUGIN.replace(b"MIT", b"MIT " * 60),
    ],
)  # fmt: skip
def test_a_file_of_another_form_says_nothing(file: bytes) -> None:
    assert project_of({"skills-lock.json": file, "plugin.json": file}) == Project()


BASIL = "beds/basil"
BESIDE = {
    "scripts/water.sh": b"#!/bin/sh\necho water\n",
    "assets/leaf.png": b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40,
    "docs/caf\u00e9 au lait.md": b"# Notes\n",
    "empty.txt": b"",
}
BEDS = {
    f"{BASIL}/SKILL.md": grows("basil"),
    **{f"{BASIL}/{path}": content for path, content in BESIDE.items()},
}
SPEC = "github:ann/garden"


@pytest.fixture
def bedded(world: World) -> Repository:
    repository = world.repository("ann/garden")
    repository.commit({**BEDS, "beds/chard/SKILL.md": grows("chard")})
    return repository


def newest_row(root: Root, name: str = "basil") -> dict[str, Any]:
    """Return the newest raw row of a skill."""
    (seen,) = (r for r in seen_table(root).read().to_dicts() if r["doc_id"].endswith(f"/{name}"))
    return read_frame(root, seen["raw_part"], RAW_DOCUMENTS).filter(doc_id=seen["doc_id"]).to_dicts()[-1]


def kept_of(root: Root, name: str = "basil") -> dict[str, bytes]:
    return {file["path"]: file["content"] for file in newest_row(root, name)["contents"]}


@pytest.mark.parametrize("kind", ["dir", "git", "github"])
def test_every_source_keeps_the_bytes_of_a_bundle(
    kind: str, worktree: WorkTree, world: World, bedded: Repository, crawler: Crawler
) -> None:
    spec = SPEC if kind == "github" else placed(kind, BEDS, worktree, world)
    assert crawler.crawl(spec).state == "complete"
    assert kept_of(crawler.root) == BESIDE
    assert {f["path"]: (f["size"], f["sha256"]) for f in newest_row(crawler.root)["files"]} == {
        path: (len(content), hashlib.sha256(content).hexdigest()) for path, content in BESIDE.items()
    }


def test_a_file_changes_its_skill_alone(bedded: Repository, crawler: Crawler, market: Marketplace) -> None:
    crawler.crawl(SPEC)
    before = crawler.root.files("raw")
    market.clear_requests()
    bedded.commit({"README.md": b"Another commit, and the same skills.\n"})
    assert crawler.crawl(SPEC).unchanged == 2
    assert {r.kind for r in market.requests}.isdisjoint({"archive", "raw"})
    assert crawler.root.files("raw") == before
    bedded.commit({f"{BASIL}/scripts/water.sh": b"#!/bin/sh\necho less water\n"})
    report = crawler.crawl(SPEC)
    assert (report.changed, report.unchanged) == (1, 1)
    assert kept_of(crawler.root)["scripts/water.sh"] == b"#!/bin/sh\necho less water\n"


def test_a_bundle_that_was_only_listed_is_read_when_its_repository_is_looked_at(
    bedded: Repository, crawler: Crawler, market: Marketplace
) -> None:
    crawler.crawl(SPEC)
    rows = (table := listed_table(crawler.root)).read()  # as a version noted it that kept no bytes
    table.upsert(rows.with_columns(digest=pl.col("digest").str.replace(r"^.*:", "")))
    report = crawler.crawl(SPEC)
    assert (report.state, report.failed) == ("complete", {})
    assert kept_of(crawler.root) == BESIDE
    market.clear_requests()
    assert crawler.crawl(SPEC).unchanged == 2
    assert [(r.kind, r.status) for r in market.requests] == [("commit", 304)]
    report = crawler.crawl(SPEC, keep_files=1)  # so do other limits
    assert (report.changed, report.unchanged, sorted(kept_of(crawler.root))) == (1, 1, [min(BESIDE)])


def test_other_limits_read_a_folder_again(worktree: WorkTree, world: World, crawler: Crawler) -> None:
    spec, root, outcomes = placed("dir", BEDS, worktree, world), crawler.root, []
    for most in (0, 0, 512, 1):
        report = crawler.crawl(spec, keep_files=most)
        outcomes.append((report.new, report.changed, sorted(kept_of(root))))
    assert outcomes == [(1, 0, []), (0, 0, []), (0, 1, sorted(BESIDE)), (0, 1, [min(BESIDE)])]
    assert "bundle.not-kept" in {finding["code"] for finding in newest_row(root)["findings"]}
