"""The flow that refines: side by side in processes, or one batch after another in its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from storage.errors import StorageError
from storage.root import Root
from storage.state import (
    aliases_table,
    documents_table,
    edges_table,
    folded_table,
    nodes_table,
    parsed_table,
    refined_table,
)
from storage.vectors import FOLDER as VECTORS
from storage.vectors import STATES
from tasks.crawl.collect import collect
from tasks.crawl.local.directory import DirectorySource
from tasks.parse import shells as parse_shells
from tasks.refine import plan, shells
from tasks.refine.batch import refine_batch
from tasks.refine.workers import WORTH_IT
from tests.support.processes import slow_but
from tests.support.roots.many_skills import many_skills
from tests.support.roots.skill_root import Export, SkillRoot

NOW = datetime(2026, 3, 1, 2, tzinfo=UTC)
ROUTE = "\n".join(f"{n}. Walk {n} hundred steps along path {n} and rest there." for n in range(1, 30))
# By shelf and skill; `walk` lies on two shelves, one of which has it with one line more, too.
SHELVES = {
    "hills": {
        "walk": ROUTE,
        "walk-home": f"{ROUTE}\nThen go home.",
        "tent": "Pitch the tent where the ground is dry, with its door off the wind.",
    },
    "lakes": {"walk": ROUTE, "canoe": "Kneel in the middle of the canoe and paddle on both sides in turn."},
    "woods": {"blank": ""},
    "coast": {"tide": "Read the tide table before you go out on the sand, and be back an hour early."},
}
WANTED = {
    "documents": 4, "no_body": 1, "duplicate": 1, "near_duplicate": 1, "risks_added": [], "opinions": None,
    "account": None,
}  # fmt: skip
_BUSY = threading.Lock()


def noting_its_process(root: Root, raw_parts: list[str], **given: object) -> dict[str, Any]:
    """Refine a batch as ever; leave a file that says which process did, and refuse to be one of two in it."""
    if not _BUSY.acquire(blocking=False):
        msg = "another batch is being refined in this process"
        raise RuntimeError(msg)
    try:
        root.write(f"noted/{plan.batch_name(raw_parts)}", str(os.getpid()).encode())
        return refine_batch(root, raw_parts, **given)  # type: ignore[arg-type]
    finally:
        _BUSY.release()


@pytest.fixture
def crawled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Root]:
    """Return what makes a root of that name, with a raw part a shelf; each of them is a batch."""
    monkeypatch.setattr(plan, "PARTS_PER_BATCH", 1)
    monkeypatch.setattr(shells, "refine_batch", noting_its_process)
    for shelf, skills in SHELVES.items():
        for name, body in skills.items():
            file = tmp_path / shelf / name / "SKILL.md"
            file.parent.mkdir(parents=True)
            file.write_text(f"---\nname: {name}\ndescription: How to {name}.\n---\n{body}\n")

    def crawl(name: str) -> Root:
        root = Root(tmp_path / name)
        for shelf in SHELVES:
            collect(DirectorySource(str(tmp_path / shelf)), root, run_id="20260301", now=NOW)
        return root

    return crawl


def refined(root: Root, workers: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    from flows.refine import refine

    monkeypatch.setenv("SKILLERY_WORKERS", str(workers))
    counts: dict[str, Any] = refine(str(root.folder), run_id="20260301")
    return counts


def noted(root: Root) -> list[int]:
    return [int(root.read(file)) for file in root.files("noted")]


def everything(root: Root) -> list[pl.DataFrame]:
    tables = [table(root).read() for table in (documents_table, folded_table, refined_table, aliases_table)]
    return [table.drop("since", strict=False).sort("doc_id") for table in tables]


def test_a_corpus_refined_in_processes_is_the_one_refined_in_this_process_alone(
    no_server: None, crawled: Callable[[str], Root], monkeypatch: pytest.MonkeyPatch
) -> None:
    apart, alone = crawled("apart"), crawled("alone")
    assert refined(apart, 2, monkeypatch) == refined(alone, 1, monkeypatch) == WANTED
    assert len(noted(apart)) == len(noted(alone)) == len(SHELVES) >= WORTH_IT
    assert os.getpid() not in noted(apart)
    assert set(noted(alone)) == {os.getpid()}
    for one, other in zip(everything(apart), everything(alone), strict=True):
        assert one.equals(other)


def test_a_few_batches_are_refined_one_after_another_in_this_process(
    no_server: None, crawled: Callable[[str], Root], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = crawled("root")
    monkeypatch.setattr(plan, "PARTS_PER_BATCH", 2)
    assert refined(root, 8, monkeypatch) == WANTED
    assert noted(root) == [os.getpid()] * 2


@pytest.mark.parametrize("workers", slow_but({1}, [1, 2]))
def test_a_batch_that_fails_ends_the_run_and_leaves_its_documents_to_the_next(
    workers: int, no_server: None, crawled: Callable[[str], Root], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = crawled("root")
    part = root.files("raw/documents", ".parquet")[-1]
    lost = root.read(part)
    root.delete(part)
    with pytest.raises(StorageError, match=r"\.parquet is missing"):
        refined(root, workers, monkeypatch)
    assert documents_table(root).read().is_empty()
    root.write(part, lost)
    assert refined(root, 1, monkeypatch) == WANTED


SKILLS = 24


@pytest.fixture
def lent(monkeypatch: pytest.MonkeyPatch) -> list[Executor | None]:
    """What each batch was given to run in; batches have four documents or more."""
    found: list[Executor | None] = []
    runs = parse_shells.run_in

    def noting(executor: Executor | None, work: Callable[[], Any]) -> Any:  # noqa: ANN401 (the batch's)
        found.append(executor)
        return runs(executor, work)

    monkeypatch.setattr(parse_shells, "run_in", noting)
    monkeypatch.setattr("tasks.parse.corpus.DOCUMENTS_PER_BATCH", 4)
    return found


@pytest.fixture(scope="module")
def refined_root(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> SkillRoot:
    """A root whose corpus is refined, and nothing of it parsed."""
    root = SkillRoot.below(tmp_path_factory.mktemp("refined"), minilm_export, many_skills(SKILLS))
    root.crawl()
    return root


def parsed(
    root: Root, workers: int, monkeypatch: pytest.MonkeyPatch, index: str = "all"
) -> list[pl.DataFrame]:
    """Return all rows that a parse writes."""
    from flows.parse import parse

    monkeypatch.setenv("SKILLERY_WORKERS", str(workers))
    assert parse(root.uri, index)["documents"] == SKILLS
    tables = [nodes_table(root), edges_table(root), parsed_table(root)]
    kept = [Path(root.at(folder)) for folder in (VECTORS, STATES)] if index == "all" else []
    made = [pl.read_parquet(f"{folder}/*/*.parquet").unique("text_hash").sort("text_hash") for folder in kept]
    return [*(table.read() for table in tables), *made]


def test_a_corpus_parsed_in_processes_is_byte_for_byte_that_of_this_process(
    refined_root: SkillRoot, tmp_path: Path, lent: list[Executor | None], no_server: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    alone = parsed(refined_root.copied(tmp_path / "alone").root, 1, monkeypatch)
    assert set(lent) == {None}
    batches = len(lent)
    lent.clear()
    apart = parsed(refined_root.copied(tmp_path / "apart").root, 2, monkeypatch)
    assert len(lent) == batches > 2
    assert None not in lent
    assert alone[0].height > SKILLS
    for one, other in zip(alone, apart, strict=True):
        assert one.equals(other)


def test_few_batches_are_parsed_here_and_fewer_are_worth_processes_where_vectors_are_made(
    refined_root: SkillRoot, tmp_path: Path, lent: list[Executor | None], no_server: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    # What is lent is noted; no process is started for it.
    monkeypatch.setattr(parse_shells, "run_in", lambda lends, work: (lent.append(lends), work())[1])
    monkeypatch.setattr("tasks.parse.corpus.DOCUMENTS_PER_BATCH", 14)
    root = refined_root.copied(tmp_path / "skills").root
    parsed(root, 2, monkeypatch, "skills")
    assert lent == [None, None]
    assert not root.exists("vectors")
    parsed(refined_root.copied(tmp_path / "all").root, 2, monkeypatch)
    assert len(lent) == 4
    assert None not in lent[2:]
