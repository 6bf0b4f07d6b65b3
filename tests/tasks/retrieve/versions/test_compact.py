from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from storage.lance.tables import NODES
from tasks.retrieve.index.build import Built
from tasks.retrieve.versions.publish import publish
from tasks.retrieve.versions.retention import (
    check_compacted,
    clean_tables,
    compact_tables,
    retain_versions,
    table_files,
)
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import SkillRoot
from tests.support.roots.vendor import connect, open_at

Make = Callable[[dict[str, str]], SkillRoot]


@pytest.fixture
def scattered(skill_root: Make, monkeypatch: pytest.MonkeyPatch) -> SkillRoot:
    """Return a root whose tables lie in several files, as if nothing had been compacted when published."""
    root = skill_root(SKILLS)
    with monkeypatch.context() as patched:
        patched.setattr("storage.lance.tables.make_indices", lambda *_: None)
        for name in ("tea", "bread", "bees"):
            root.write(name, SKILLS[name] + "\nWash your hands afterwards.\n")
            root.crawl()
            root.parse()
            built, card = root.build(), root.encoder.card
            publish(root.root, built, card=card, path=root.model, run_id=root.run_id, now=root.now)
    return root


def rows(root: SkillRoot, version: int) -> list[dict[str, object]]:
    table = open_at(connect(root.root), NODES, version)
    return sorted(table.search().to_arrow().to_pylist(), key=lambda row: str(row["node_id"]))


def test_small_files_become_one_with_the_same_rows(scattered: SkillRoot) -> None:
    served = scattered.served()
    assert served.nodes is not None

    built, tables = compact_tables(scattered.root)

    assert built.changed
    assert built.nodes is not None
    assert [t.files_before > t.files_after == 1 for t in tables] == [True, True]
    assert all(check.passed for check in check_compacted(scattered.root, built))
    assert rows(scattered, built.nodes) == rows(scattered, served.nodes)
    assert scattered.served() == served


def test_a_compacted_version_has_all_its_rows_indexed(scattered: SkillRoot) -> None:
    built, _ = compact_tables(scattered.root)

    table = open_at(connect(scattered.root), "skills", built.skills)
    assert {column for index in table.list_indices() for column in index.columns} == {"doc_id", "doc_key"}
    assert [index.num_unindexed_rows for index in table.list_indices()] == [0, 0]


def test_what_is_compact_already_makes_no_new_version(skill_root: Make) -> None:
    root = skill_root(SKILLS)
    root.publish()
    served = root.served()

    built, tables = compact_tables(root.root)

    assert (built.changed, built.skills, built.nodes) == (False, served.skills, served.nodes)
    assert [(t.files_before, t.files_after) for t in tables] == [(1, 1), (1, 1)]
    assert check_compacted(root.root, built) == []


def test_a_table_that_lost_a_row_or_changed_one_is_refused(scattered: SkillRoot) -> None:
    built, _ = compact_tables(scattered.root)
    table = connect(scattered.root).open_table(NODES)
    table.delete("node_id = 'local/market/tea#0'")
    table.update(where="node_id = 'local/market/bees#0'", values={"text": "Let the bees be."})
    spoilt = Built(built.skills, int(table.version), built.skills_rows, built.nodes_rows, 0, changed=True)

    checks = {check.check: check for check in check_compacted(scattered.root, spoilt)}

    assert not checks["nodes.rows_that_differ"].passed
    assert checks["nodes.rows_that_differ"].value == 2
    assert checks["skills.rows_that_differ"].passed


def test_files_that_no_published_version_needs_go_and_answers_stay(skill_root: Make) -> None:
    root = skill_root(SKILLS)
    margin = timedelta(seconds=1)
    for hours in (1, 2):
        root.write("bread", f"{SKILLS['bread']}\nLet it cool for {hours} hours.\n")
        root.publish()
    time.sleep(2 * margin.total_seconds())
    root.write("bread", f"{SKILLS['bread']}\nLet it cool for a night.\n")
    root.publish()
    answer = root.ask().search("how long does dough rise")["results"]
    retain_versions(root.root, 1, now=root.now + timedelta(days=30))
    before = table_files(root.root)

    clean_tables(root.root, margin)

    assert table_files(root.root) < before
    assert root.ask().search("how long does dough rise")["results"] == answer
