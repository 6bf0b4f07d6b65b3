"""The flow that parses: side by side in processes, or one batch after another in its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from storage.root import Root
from storage.state import edges_table, nodes_table, parsed_table
from tasks.parse import shells
from tests.support.roots.many_skills import many_skills
from tests.support.roots.skill_root import Export, SkillRoot

pytestmark = pytest.mark.prefect
SKILLS = 24


@pytest.fixture
def lent(monkeypatch: pytest.MonkeyPatch) -> list[Executor | None]:
    """What each batch was given to run in; batches have four documents or more."""
    found: list[Executor | None] = []
    runs = shells.run_in

    def noting(executor: Executor | None, work: Callable[[], Any]) -> Any:  # noqa: ANN401 (the batch's)
        found.append(executor)
        return runs(executor, work)

    monkeypatch.setattr(shells, "run_in", noting)
    monkeypatch.setattr("tasks.parse.corpus.DOCUMENTS_PER_BATCH", 4)
    return found


@pytest.fixture(scope="module")
def refined(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> SkillRoot:
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
    return [table.read() for table in tables]


def test_a_corpus_parsed_in_processes_is_byte_for_byte_that_of_this_process(
    refined: SkillRoot, tmp_path: Path, lent: list[Executor | None], prefect_server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    alone = parsed(refined.copied(tmp_path / "alone").root, 1, monkeypatch)
    assert set(lent) == {None}
    batches = len(lent)
    lent.clear()
    apart = parsed(refined.copied(tmp_path / "apart").root, 2, monkeypatch)

    assert len(lent) == batches > 2
    assert None not in lent
    assert alone[0].height > SKILLS
    for one, other in zip(alone, apart, strict=True):
        assert one.equals(other)


def test_few_batches_are_parsed_here_and_fewer_are_worth_processes_where_vectors_are_made(
    refined: SkillRoot, tmp_path: Path, lent: list[Executor | None], prefect_server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("tasks.parse.corpus.DOCUMENTS_PER_BATCH", 14)
    skills = parsed(refined.copied(tmp_path / "skills").root, 2, monkeypatch, "skills")

    assert lent == [None, None]
    assert skills[3].is_empty()
    parsed(refined.copied(tmp_path / "all").root, 2, monkeypatch)
    assert len(lent) == 4
    assert None not in lent[2:]
