"""Wherever a process that forgets dies, asked again it ends the same, and nothing comes back in between."""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import polars as pl
import pytest

from storage.blobs import BlobStore
from storage.errors import UnknownDocument
from storage.lance.served import PUBLISHED, SERVED, published_versions, require_served
from storage.lance.tables import NODES, SKILLS
from storage.root import Root
from storage.state import documents_table, read_sources, seen_table
from tasks.crawl.backfill import rebuilt_days
from tasks.refine.filters import FilterLimits
from tasks.refine.plan import plan_refine
from tasks.retrieve.versions.forget import ForgetReport, forget
from tasks.retrieve.versions.retention import drop_blobs
from tests.support.roots.forgetting import (
    COPY,
    FIRST,
    HEAD,
    SECOND,
    TARGET,
    copy_of,
    holding,
    refined_past,
    rye,
)
from tests.support.roots.hand_written import BEES, BIKE, BREAD
from tests.support.roots.skill_root import Make, SkillRoot
from tests.support.roots.vendor import connect, open_at

NOW = datetime(2026, 1, 2, 3, tzinfo=UTC)
# What changes something on disk: each is a moment to die at.
_STEPS = {"write", "delete", "rewrite", "tag", "keep_only", "delete_unfinished", "make_indices"}


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def copy(filled: SkillRoot, tmp_path: Path) -> Callable[[str], Root]:
    def make(name: str) -> Root:
        return Root(shutil.copytree(filled.root.folder, tmp_path / name, symlinks=True))

    return make


@contextmanager
def dying_at(number: int) -> Iterator[list[str]]:
    """Let the step of that number, from 0, begin no more; yield the steps taken."""
    steps: list[str] = []

    def watch(frame: FrameType, event: str, _: Any) -> None:  # noqa: ANN401 (the interpreter's own)
        code = frame.f_code
        if event == "call" and code.co_name in _STEPS and "storage" in Path(code.co_filename).parts:
            steps.append(code.co_name)
            if len(steps) > number:
                raise Killed

    sys.setprofile(watch)
    try:
        yield steps
    finally:
        sys.setprofile(None)


def asked(root: Root) -> ForgetReport:
    return forget(root, TARGET, run_id="gone", now=NOW)


def end(root: Root) -> dict[str, Any]:
    """Return all that is left, order and file names of tables' parts aside."""
    files = [f for f in root.files("", ".parquet") if not f.startswith("models/")]
    frames = {f: pl.read_parquet(root.at(f)) for f in files}
    left: dict[str, Any] = {f: sorted(map(str, frame.rows())) for f, frame in frames.items()}
    served, db = require_served(root), connect(root)
    assert served.nodes is not None
    for name, version in ((SKILLS, served.skills), (NODES, served.nodes)):
        table = open_at(db, name, version)
        assert [v["version"] for v in table.list_versions()] == [version]
        left[name] = sorted(map(str, table.search().to_arrow().to_pylist()))
    # How many versions a table went through depends on where it was killed; the pointer names the last. The
    # digests of files depend on the time.
    pointers = (SERVED, f"{PUBLISHED}/", "state/manifests/", "state/file-digests.json")
    others = (f for f in root.files("state") if not f.endswith(".parquet") and not f.startswith(pointers))
    assert published_versions(root) == [served]
    return left | {f: root.read(f) for f in others}


def steps_of(root: Root) -> list[str]:
    with dying_at(10_000) as steps:
        asked(root)
    return steps


def check_mended(copy: Callable[[str], Root], points: list[int]) -> None:
    """Kill it at each of these steps, and ask again."""
    whole = copy("whole")
    report = asked(whole)
    expected = end(whole)
    for number in points:
        root = copy(str(number))
        with pytest.raises(Killed), dying_at(number):
            asked(root)
        require_answers(root)
        again = asked(root)
        assert end(root) == expected, f"after step {number}"
        assert (again.doc_ids, again.copies) == (report.doc_ids, report.copies)
        assert holding(root) == set()
        shutil.rmtree(root.folder)


def test_killed_around_the_change_of_what_is_served_and_asked_again_it_ends_the_same(
    copy: Callable[[str], Root],
) -> None:
    steps = steps_of(copy("counted"))
    assert set(steps) >= _STEPS - {"delete"}
    tables = steps.index("rewrite")
    served = tables + steps[tables:].index("write")
    check_mended(copy, [served])


@pytest.mark.slow
def test_killed_at_any_step_and_asked_again_it_ends_the_same(copy: Callable[[str], Root]) -> None:
    check_mended(copy, list(range(len(steps_of(copy("counted"))))))


def require_answers(root: Root) -> None:
    """Let pass a root whose served versions can be read."""
    served = require_served(root)
    assert served.nodes is not None
    for name, version in ((SKILLS, served.skills), (NODES, served.nodes)):
        table = open_at(connect(root), name, version)
        assert "local/market/bees" in table.search().to_arrow()["doc_id"].to_pylist()


def test_a_night_after_a_kill_leaves_out_what_is_only_half_gone(copy: Callable[[str], Root]) -> None:
    root = copy("half")
    with pytest.raises(Killed), dying_at(8):
        asked(root)
    assert TARGET in seen_table(root).read()["doc_id"]
    plan_refine(root, FilterLimits())
    plan = pl.read_parquet(root.at("state/plans/refine.parquet"))
    gone = plan.filter(pl.col("doc_id").is_in([TARGET, COPY]))
    assert set(gone["action"]) <= {"remove"}


@pytest.fixture
def root(skill_root: Callable[[dict[str, str]], SkillRoot]) -> SkillRoot:
    """A root that has forgotten a skill which its source still holds."""
    made = skill_root({"rye": rye(FIRST), "bees": BEES})
    made.publish()
    forget(made.root, TARGET, run_id="gone", now=NOW)
    return made


def test_a_source_that_still_holds_it_is_read_without_it_whatever_it_says_now(root: SkillRoot) -> None:
    root.write("bees", BEES.replace("varroa", "moths"))
    root.write("rye", rye(SECOND))
    root.write("another", rye(FIRST))  # the same bytes under another id
    root.publish()
    assert holding(root.root, (FIRST, SECOND, HEAD)) == set()
    assert documents_table(root.root).read()["doc_id"].to_list() == ["local/market/bees"]
    (record,) = read_sources(root.root).values()
    assert record["failed"] == {"forgotten": 2}


def test_the_same_body_under_another_head_is_dropped_when_it_is_refined(root: SkillRoot) -> None:
    root.write("another", copy_of(FIRST))
    root.publish()
    assert documents_table(root.root).read()["doc_id"].to_list() == ["local/market/bees"]
    left = holding(root.root, (FIRST,))
    assert {f.partition("/")[0] for f in left} == {"raw"}
    assert forget(root.root, "local/market/another", run_id="more", now=NOW).removed
    assert holding(root.root, (FIRST, HEAD)) == set()


SHARED, ALONE, OLD = b"echo shared qzxvkrusten\n", b"echo alone wqjxzlaibe\n", b"echo old zvqxjteige\n"
KEY = b"ghp_" + b"a8Kd02LmQz7Xw4Bn6Vt9Yc1Ue3Ri5Os8PjHf"


@pytest.fixture
def root_blobs(skill_root: Make) -> SkillRoot:
    """Bread and bees share a file; bread has one alone, one with a key, and had another one before."""
    made = skill_root({"bread": BREAD, "bees": BEES, "bike": BIKE})
    for name in ("bread", "bees"):
        made.write_file(name, "scripts/shared.sh", SHARED)
    made.write_file("bread", "scripts/alone.sh", OLD)
    made.publish()
    made.write_file("bread", "scripts/alone.sh", ALONE)
    made.write_file("bread", "keys.env", b"TOKEN=" + KEY + b"\n")
    made.publish()
    return made


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def forgotten(root_blobs: SkillRoot, target: str) -> ForgetReport:
    return forget(root_blobs.root, target, run_id="gone", now=NOW)


def test_no_blob_of_the_forgotten_skill_alone_is_left_and_none_of_another_is_lost(
    root_blobs: SkillRoot,
) -> None:
    assert forgotten(root_blobs, "local/market/bread").removed["blobs"] == 3
    assert BlobStore(root_blobs.root).digests() == [sha(SHARED)]
    words = tuple(content.split()[2].decode() for content in (ALONE, OLD))
    assert holding(root_blobs.root, (*words, KEY.decode(), "redacted:github-token")) == set()
    assert BlobStore(root_blobs.root).read(sha(SHARED)) == SHARED
    forgotten(root_blobs, "local/market/bees")
    assert BlobStore(root_blobs.root).digests() == []
    assert holding(root_blobs.root, ("qzxvkrusten",)) == set()


def test_blobs_of_past_days_go_too(root_blobs: SkillRoot) -> None:
    past = refined_past(root_blobs)
    assert [day.uri for day in rebuilt_days(root_blobs.root)] == [past.uri]
    assert sha(ALONE) in BlobStore(past).digests()
    forgotten(root_blobs, "local/market/bread")
    assert BlobStore(past).digests() == [sha(SHARED)]


def test_a_key_is_in_raw_alone_and_a_file_that_changed_goes_with_retention_but_from_raw(
    root_blobs: SkillRoot,
) -> None:
    # A key is in raw alone.
    places = {file.partition("/")[0] for file in holding(root_blobs.root, (KEY.decode(),))}
    assert places == {"raw"}
    # A file that changed goes with retention and stays in raw.
    assert sha(OLD) in BlobStore(root_blobs.root).digests()
    assert drop_blobs(root_blobs.root) == 1
    assert sha(OLD) not in BlobStore(root_blobs.root).digests()
    assert sha(ALONE) in BlobStore(root_blobs.root).digests()
    assert drop_blobs(root_blobs.root) == 0
    assert {f.partition("/")[0] for f in holding(root_blobs.root, ("zvqxjteige",))} == {"raw"}


def test_a_file_that_changes_alone_has_nothing_parsed_or_encoded_again(root_blobs: SkillRoot) -> None:
    encoded = len(root_blobs.encoder.encoded)
    root_blobs.write_file("bees", "scripts/shared.sh", b"echo another\n")
    root_blobs.crawl()
    assert root_blobs.parse() == {"documents": 0, "nodes": 0, "edges": 0, "vectors": 0}
    built = root_blobs.index()
    assert (built.vectors_new, len(root_blobs.encoder.encoded)) == (0, encoded)
    assert sha(b"echo another\n") in BlobStore(root_blobs.root).digests()


def test_the_end_of_an_id_forgets_that_document_alone_and_says_which(root_blobs: SkillRoot) -> None:
    asked, bread, others = "market/Bread", "local/market/bread", ["local/market/bees", "local/market/bike"]
    report = forgotten(root_blobs, asked)
    assert (report.target, report.scope, report.doc_ids) == (bread, "document", (bread,))
    assert documents_table(root_blobs.root).read()["doc_id"].sort().to_list() == others
    assert forgotten(root_blobs, asked).removed == {}


def test_nothing_is_forgotten_for_what_may_mean_several(root_blobs: SkillRoot) -> None:
    root_blobs.write("old/bread", BREAD.replace("name: bread", "name: old bread"))
    root_blobs.crawl()
    with pytest.raises(
        UnknownDocument, match=r"it may mean local/market/bread, local/market/old/bread: give"
    ):
        forgotten(root_blobs, "bread")
    assert len(BlobStore(root_blobs.root).digests()) == 4
