from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from storage.answers import FILE, Answers
from storage.errors import Locked, NotPublished, StorageError, UnknownDocument
from storage.lance.tables import NODES, SKILLS, TableAt
from storage.lance.versions import table_names, tagged
from storage.state import aliases_table, documents_table, seen_table
from storage.tombstones import Forgotten
from tasks.evaluate.health.report import REPORT, write_report
from tasks.retrieve import served_index
from tasks.retrieve.versions.forget import ForgetReport, forget, targets_of
from tests.support.roots.forgetting import (
    COPY,
    FIRST,
    LAST,
    SECOND,
    TARGET,
    WORDS,
    copy_of,
    holding,
    rye,
)
from tests.support.roots.nights import HandSource, Nights, skill
from tests.support.roots.skill_root import SkillRoot
from tests.support.roots.vendor import connect, open_at

NOW = datetime(2026, 1, 2, 3, tzinfo=UTC)


@pytest.fixture
def root(filled: SkillRoot, tmp_path: Path) -> SkillRoot:
    """A copy of the filled root, for one test to change."""
    return filled.copied(tmp_path)


def forgotten(root: SkillRoot, target: str, run_id: str = "gone") -> ForgetReport:
    return forget(root.root, target, run_id=run_id, now=NOW)


def test_it_is_everywhere_before_and_nowhere_after_nor_merely_marked_as_deleted(root: SkillRoot) -> None:
    write_report(root.root, f"<p>{FIRST}</p>")
    for cache in ("crawl/archives", "sample", "looks", "pages"):
        root.root.write(f"state/{cache}/kept", FIRST.encode())
    before = holding(root.root, WORDS)
    assert {f.partition("/")[0] for f in before} >= {
        "raw",
        "documents",
        "nodes",
        "state",
        "backfill",
        "lance",
    }
    assert len({f for f in before if f.startswith("skills@")}) >= 3
    report = forgotten(root, TARGET)
    assert holding(root.root, WORDS) == set()
    # That something is gone, and why, stays known: its id, never its text.
    ids = {f.removeprefix("backfill/date=2025-03-02/") for f in holding(root.root, (TARGET, COPY))}
    assert {f.rpartition("/")[0] for f in ids} <= {"state/forgotten", "dropped"}
    assert (report.scope, report.doc_ids, report.copies) == ("document", (TARGET,), (COPY,))
    places = {"raw/documents", "raw/listings", "state/seen", "state/refined", "documents", "state/folded"}
    places |= {"nodes", "edges", "state/parsed", "state/aliases", "backfill"}
    assert report.removed.keys() >= places | {"state/novelty", "lance/skills", "lance/nodes"}
    assert report.removed["state/answers"] == 2
    with Answers(root.root) as kept:
        assert [answer.text for answer in kept.kept(rejected=False)] == ["hum"]
    assert not root.root.exists(REPORT)
    served = root.served()
    for name, version in ((SKILLS, served.skills), (NODES, served.nodes)):
        assert version is not None
        table = open_at(connect(root.root), name, version)
        assert list(table.tags.list()) == [served.version] == ["v-gone"]
        (metadata,) = [v["metadata"] for v in table.list_versions() if v["version"] == version]
        assert len(table.list_versions()) == 1
        assert metadata["total_data_file_rows"] == str(table.count_rows())
        assert metadata["total_deletion_file_rows"] == "0"
        assert not root.root.files(f"lance/{name}.lance/_deletions")


def answers(root: SkillRoot) -> list[Any]:
    """Return what others answer, without times, versions, and what is relative to all skills."""
    asked = root.ask()
    pages = [
        asked.page(f"local/market/{name}", "what wears out?", budget=0.5, method="mmr")
        for name in ("bees", "bike")
    ]
    found = [r for q in ("honey", "puncture") for r in asked.search(q)["results"]]
    kept = [r for r in found if r["doc_id"] not in (TARGET, COPY)]
    ignored = ("took_ms", "index_version", "rank", "score", "fit")
    return [{k: v for k, v in answer.items() if k not in ignored} for answer in [*pages, *kept]]


def test_others_are_answered_as_before_and_the_age_of_what_is_served_stays(root: SkillRoot) -> None:
    before, served = answers(root), root.served()
    forgotten(root, TARGET)
    assert answers(root) == before
    with pytest.raises(UnknownDocument):
        root.ask().page(TARGET, "when is it done?", budget=None, method="mmr")
    now = root.served()
    assert (now.version, now.run_id, now.published_at) == ("v-gone", "gone", served.published_at)


def test_an_answer_that_was_under_way_is_given_from_the_new_version(
    root: SkillRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = root.ask()
    asked.search("honey")
    now, pointers = served_index.require_served, [root.served()]
    forgotten(root, TARGET)
    monkeypatch.setattr(
        served_index, "require_served", lambda where: pointers.pop() if pointers else now(where)
    )
    assert asked.page("local/market/bees", "mites", budget=0.5, method="mmr")["index_version"] == "v-gone"
    assert not pointers
    results = asked.search("rye bread")["results"]
    assert {r["index_version"] for r in results} == {"v-gone"}
    assert {r["doc_id"] for r in results} == {"local/market/bees", "local/market/bike"}


def contents(root: SkillRoot) -> dict[str, bytes]:
    files = [f for f in root.root.files("") if not f.startswith("models/")]
    return {f: root.root.read(f) for f in files}


def test_asked_again_it_changes_nothing_and_says_the_same(root: SkillRoot) -> None:
    first = forgotten(root, TARGET)
    before = contents(root)
    again = forgotten(root, TARGET.upper(), "again")
    assert contents(root) == before
    assert (again.doc_ids, again.copies, again.scope) == (first.doc_ids, first.copies, first.scope)
    assert (again.removed, again.served) == ({}, "v-gone")


def test_a_repository_goes_with_all_below_it(root: SkillRoot) -> None:
    report = forgotten(root, "local/market")
    assert report.scope == "repository"
    assert report.doc_ids == (
        "local/market/bees", "local/market/bike", COPY, TARGET,
    )  # fmt: skip
    assert holding(root.root, (*WORDS, "varroa", "vulcanising")) == set()
    assert root.ask().search("rye bread")["results"] == []


@pytest.mark.slow
def test_nodes_that_are_left_for_later_are_cleaned_too(root: SkillRoot) -> None:
    root.index(nodes=False)
    assert root.served().nodes is None
    forgotten(root, TARGET)
    assert holding(root.root) == set()
    served = root.served()
    assert served.nodes is None
    assert served.nodes_base == tagged(root.root, NODES)[served.version]
    assert TableAt(root.root, NODES, served.nodes_base).count() > 0
    built = root.index()
    assert built.nodes is not None
    assert built.vectors_new == 0


def test_a_root_that_serves_nothing_loses_what_a_refused_build_left(
    skill_root: Callable[[dict[str, str]], SkillRoot],
) -> None:
    root = skill_root({"rye": rye(FIRST), "bees": rye("hive")})
    root.crawl()
    root.parse()
    root.build()
    report = forgotten(root, TARGET)
    assert (report.served, table_names(root.root)) == (None, [])
    assert not root.root.files("lance", ".lance")
    assert holding(root.root, (FIRST,)) == set()
    with pytest.raises(NotPublished):
        root.served()
    assert root.index().skills_rows == 1


def test_an_alias_leads_to_its_text(skill_root: Callable[[dict[str, str]], SkillRoot]) -> None:
    root = skill_root({"rye": rye(FIRST), "bees": rye("hive")})
    root.publish()
    (root.market / "rye").rename(root.market / "loaf")
    root.night += 1
    root.publish()
    kinds = aliases_table(root.root).read().select("doc_id", "survivor", "kind").rows()
    assert kinds == [(TARGET, "local/market/loaf", "retired")]
    report = forgotten(root, TARGET)
    assert report.doc_ids == ("local/market/loaf", TARGET)
    assert holding(root.root, (FIRST,)) == set()
    assert documents_table(root.root).read()["doc_id"].to_list() == ["local/market/bees"]


@pytest.mark.slow
def test_a_text_that_another_document_went_on_from_stays_with_that_one(
    skill_root: Callable[[dict[str, str]], SkillRoot],
) -> None:
    root = skill_root({"fork": copy_of(FIRST), "bees": rye("hive")})
    root.publish()
    root.write("fork", copy_of(SECOND))
    root.write("origin", rye(FIRST))
    root.night += 1
    root.publish()
    report = forgotten(root, "local/market/fork")
    assert report.copies == ()
    assert holding(root.root, (SECOND,)) == set()
    assert "local/market/origin" in documents_table(root.root).read()["doc_id"]
    body = documents_table(root.root).read().filter(doc_id="local/market/origin")["body_hash"][0]
    assert not Forgotten.load(root.root).covers("new/id", None, body)


def test_a_text_that_another_document_holds_now_is_not_kept_from_coming_back(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    nights.run(HandSource("dir:d", skill("m/r/fork", "Knead it.")))
    nights.run(HandSource("dir:d", skill("m/r/fork", "Bake it."), skill("m/r/origin", "Knead it.")))
    stones = targets_of(nights.root, "m/r/fork").tombstones
    (held,) = documents_table(nights.root).read().filter(doc_id="m/r/origin").to_dicts()
    assert sum(stone.body_hash is not None for stone in stones) == 1
    assert held["body_hash"] not in {stone.body_hash for stone in stones}
    assert held["raw_hash"] not in {stone.raw_hash for stone in stones}


def test_an_unknown_id_is_named_with_those_near_it(root: SkillRoot) -> None:
    before = contents(root)
    with pytest.raises(UnknownDocument, match="'local/market/ryes'; near it are local/market/rye"):
        forgotten(root, "local/market/ryes")
    assert contents(root) == before


@pytest.mark.slow
def test_ids_that_only_begin_alike_stay(skill_root: Callable[[dict[str, str]], SkillRoot]) -> None:
    root = skill_root({"rye": rye(FIRST), "rye2": rye(SECOND), "ryebread/rye": rye(LAST)})
    root.publish()
    forgotten(root, TARGET)
    left = ["local/market/rye2", "local/market/ryebread/rye"]
    assert sorted(documents_table(root.root).read()["doc_id"]) == left
    assert sorted(seen_table(root.root).read()["doc_id"]) == left


def test_damaged_answers_are_named_when_all_else_is_clean(root: SkillRoot) -> None:
    root.root.write(FILE, b"neither a database nor an answer, however long it goes on like this" * 50)
    with pytest.raises(StorageError, match=r"answers\.sqlite cannot be read.*forget again"):
        forgotten(root, TARGET)
    assert holding(root.root, WORDS) == set()
    root.root.delete(FILE)
    assert "state/answers" not in forgotten(root, TARGET).removed


def test_a_backfill_under_way_is_waited_for(root: SkillRoot) -> None:
    day = root.root.at("backfill/date=2025-03-02")
    script = _HOLD.format(place=day)
    with subprocess.Popen([sys.executable, "-c", script], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(Locked, match="backfill"):
            forgotten(root, TARGET)
        other.kill()
    assert Forgotten.load(root.root).covers(TARGET)
    assert TARGET in documents_table(root.root).read()["doc_id"]
    forgotten(root, TARGET)
    assert holding(root.root, WORDS) == set()


_HOLD = """
import sys
from storage.locks import writer_lock
from storage.root import Root
with writer_lock(Root({place!r})):
    sys.stdout.write("held\\n")
    sys.stdout.flush()
    sys.stdin.read()
"""
