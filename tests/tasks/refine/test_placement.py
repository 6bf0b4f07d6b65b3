from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from storage.parquet import write_frame
from storage.root import Root
from storage.schemas import DOCUMENTS
from storage.state import documents_table, folded_table
from tasks.refine import update as placing
from tasks.refine.plan import STAGED
from tasks.refine.update import SORTED, StagedDocuments, place

IDS = [f"skill-{n}" for n in range(30)]


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def stage(root: Root, doc_ids: list[str], body: str = "new") -> None:
    for number, doc_id in enumerate(doc_ids):
        columns = {name: [None] for name in DOCUMENTS}
        row = pl.DataFrame({**columns, "doc_id": [doc_id], "body": [body]}, schema=DOCUMENTS)
        write_frame(root, f"{STAGED}/{number:02d}.parquet", row, DOCUMENTS)


def held(root: Root) -> tuple[dict[str, str], dict[str, str]]:
    tables = documents_table(root), folded_table(root)
    documents, folded = (dict(t.read().select("doc_id", "body").sort("doc_id").iter_rows()) for t in tables)
    return documents, folded


@pytest.mark.parametrize("fits", [True, False])
def test_every_staged_document_lands_where_it_belongs(
    root: Root, monkeypatch: pytest.MonkeyPatch, fits: bool
) -> None:
    if not fits:
        monkeypatch.setattr(placing, "_MAX_BYTES", 1000)
    stage(root, IDS)
    place(root, replaced=IDS, moved=[], copies=IDS[:7])
    assert held(root) == (dict.fromkeys(sorted(IDS[7:]), "new"), dict.fromkeys(sorted(IDS[:7]), "new"))
    assert bool(root.files(SORTED)) is not fits


def test_what_a_run_that_died_had_sorted_is_not_taken_twice(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "_MAX_BYTES", 1000)
    stage(root, IDS)
    StagedDocuments(root)
    arrivals = StagedDocuments(root)
    found = pl.concat([arrivals.of(partition) for partition in range(64)])
    assert sorted(found["doc_id"]) == sorted(IDS)


def test_documents_become_copies_and_come_back_unchanged(root: Root) -> None:
    stage(root, IDS[:4], "old")
    place(root, replaced=IDS[:4], moved=[], copies=IDS[:2])
    root.delete(STAGED)
    stage(root, IDS[3:5])
    place(root, replaced=IDS[3:5], moved=[IDS[0], IDS[2]], copies=IDS[1:3])
    assert held(root) == ({IDS[0]: "old", IDS[3]: "new", IDS[4]: "new"}, {IDS[1]: "old", IDS[2]: "old"})


def test_what_is_replaced_by_nothing_leaves(root: Root) -> None:
    stage(root, IDS[:4], "old")
    place(root, replaced=IDS[:4], moved=[], copies=IDS[:2])
    root.delete(STAGED)
    place(root, replaced=[IDS[0], IDS[2]], moved=[], copies=[IDS[1]])
    assert held(root) == ({IDS[3]: "old"}, {IDS[1]: "old"})
