from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from storage.errors import SchemaMismatch
from storage.parquet import write_frame
from storage.root import Root
from tasks.crawl.git.source import FOLDER
from tasks.evaluate.health.as_served import (
    METHODS,
    REQUESTS,
    ask_probes,
    latency_rows,
    page_sample,
    route_sample,
    sample_requests,
)
from tasks.evaluate.health.history import HISTORY, append_history, count_rows, dropped_of, read_history
from tasks.evaluate.health.probes import Probe, served_probes
from tasks.evaluate.measures.evidence import EvidenceQuery, fold_text, read_queries
from tasks.parse.classify.local import LocalClassifier
from tasks.retrieve.served_index import ServedIndex
from tests.support.roots.hand_written import SKILLS, skill
from tests.support.roots.skill_root import MINILM, SkillRoot

NIGHT = datetime(2025, 3, 1, 4, 0, tzinfo=UTC)


def row(value: float) -> dict[str, Any]:
    return {
        "probe": "sentence to skill", "leg": "dense", "queries": 9, "measure": "hit@10", "value": value,
        "low": value / 2, "high": 1.0,
    }  # fmt: skip


def test_evaluations_are_added_one_after_another(tmp_path: Path) -> None:
    root = Root(tmp_path)
    file = append_history(root, "v-1", [row(0.5), row(0.25)], now=NIGHT)
    append_history(root, "v-2", [row(0.75)], now=NIGHT + timedelta(days=1))
    history = read_history(root)
    assert history.select("version", "value").rows() == [("v-1", 0.5), ("v-1", 0.25), ("v-2", 0.75)]
    assert history["evaluated_at"].to_list() == [NIGHT, NIGHT, NIGHT + timedelta(days=1)]
    assert history.row(0, named=True) == {**row(0.5), "version": "v-1", "evaluated_at": NIGHT}
    assert pl.read_parquet(tmp_path / file)["value"].to_list() == [0.5, 0.25]


def test_of_two_evaluations_at_once_neither_loses_its_rows(tmp_path: Path) -> None:
    root = Root(tmp_path)
    append_history(root, "v-2", [row(0.5)], now=NIGHT + timedelta(microseconds=1))
    append_history(root, "v-2", [row(0.25)], now=NIGHT)
    assert read_history(root)["value"].to_list() == [0.25, 0.5]


def test_an_evaluation_without_figures_adds_no_rows(tmp_path: Path) -> None:
    root = Root(tmp_path)
    append_history(root, "v-1", [row(0.5)], now=NIGHT)
    append_history(root, "v-2", [], now=NIGHT + timedelta(days=1))
    assert read_history(root).height == 1


def test_a_figure_of_whole_numbers_is_kept(tmp_path: Path) -> None:
    root = Root(tmp_path)
    append_history(root, "v-1", [{**row(1), "value": 1, "low": 1, "high": 1}], now=NIGHT)
    assert read_history(root)["value"].to_list() == [1.0]


def test_a_damaged_file_takes_one_evaluation_with_it_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = Root(tmp_path)
    broken = append_history(root, "v-1", [row(0.5)], now=NIGHT)
    append_history(root, "v-2", [row(0.75)], now=NIGHT + timedelta(days=1))
    (tmp_path / broken).write_bytes(b"PAR1 no more")
    with caplog.at_level(logging.WARNING):
        assert read_history(root)["version"].to_list() == ["v-2"]
    assert broken in caplog.text


def test_a_file_of_a_newer_version_is_not_passed_over(tmp_path: Path) -> None:
    root = Root(tmp_path)
    newer = pl.DataFrame({"verdict": ["good"]})
    write_frame(root, f"{HISTORY}/20260101-v-9.parquet", newer, newer.schema)
    with pytest.raises(SchemaMismatch):
        read_history(root)


def test_a_history_of_one_file_is_gone_on_with(tmp_path: Path) -> None:
    root = Root(tmp_path)
    file = append_history(root, "v-1", [row(0.5)], now=NIGHT)
    (tmp_path / file).rename(tmp_path / "reports/evaluation.parquet")
    append_history(root, "v-2", [row(0.75)], now=NIGHT + timedelta(days=1))
    assert read_history(root)["version"].to_list() == ["v-1", "v-2"]


Make = Callable[[dict[str, str]], SkillRoot]

MITES = EvidenceQuery(
    "q1", "local/market/bees", "what helps against varroa mites", (("oxalic acid in December",),)
)
PATCH = EvidenceQuery(
    "q2", "local/market/bike", "mend a flat tyre", (("vulcanising glue",), ("sandpaper", "emery"))
)


def test_requests_come_with_evidence_that_stands_in_their_skill() -> None:
    requests = read_queries(REQUESTS)
    assert len(requests) == 30
    for request in requests:
        folder = FOLDER / Path(request.doc_id).relative_to("local/marketplace")
        files = [f for f in folder.iterdir() if f.name.lower() == "skill.md"]
        text = fold_text(files[0].read_text("utf-8", errors="replace"))
        assert all(any(fold_text(span) in text for span in item) for item in request.evidence), request
        assert not re.search(r"\W" + re.escape(folder.name) + r"\W", request.query)


def test_a_root_without_the_sample_has_no_requests(served_bakery: SkillRoot) -> None:
    assert sample_requests(served_bakery.ask()) == []


def test_requests_are_those_whose_skill_is_served(
    served_bakery: SkillRoot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        '{"query_id": "a", "doc_id": "local/market/bees", "query": "x", "evidence": [{"any_of": ["x"]}]}',
        '{"query_id": "b", "doc_id": "local/market/wasps", "query": "x", "evidence": [{"any_of": ["y"]}]}',
    ]
    (tmp_path / "q.jsonl").write_text("\n".join(lines), "utf-8")
    monkeypatch.setattr("tasks.evaluate.health.as_served.REQUESTS", tmp_path / "q.jsonl")
    assert [q.query_id for q in sample_requests(served_bakery.ask())] == ["a"]


def test_paging_is_measured_by_method(served_bakery: SkillRoot) -> None:
    rows = {r["method"]: r for r in page_sample(served_bakery.ask(), [MITES, PATCH])}
    assert set(rows) == set(METHODS)
    assert (rows["full"]["queries"], rows["full"]["sufficient"], rows["full"]["token_reduction"]) == (2, 1, 0)
    assert rows["mmr"]["coverage"] == 1.0
    assert 0 <= rows["mmr"]["token_reduction"] < 1


def test_routing_finds_the_skill_that_a_request_was_written_from(served_bakery: SkillRoot) -> None:
    rows = route_sample(served_bakery.ask(), [MITES, PATCH])
    assert {r["measure"]: r["value"] for r in rows} == {"hit@1": 1.0, "hit@10": 1.0, "mrr@10": 1.0}
    wrong = EvidenceQuery("q3", "local/market/bread", MITES.query, MITES.evidence)
    assert {r["measure"]: r["value"] for r in route_sample(served_bakery.ask(), [MITES, wrong])}[
        "hit@1"
    ] == 0.5


def test_a_request_about_a_folded_copy_counts_for_its_survivor(skill_root: Make) -> None:
    root = skill_root(SKILLS)
    root.publish(nodes=False)
    root.write("zz-copy", SKILLS["bees"])
    root.publish(nodes=False)
    request = EvidenceQuery("q1", "local/market/zz-copy", MITES.query, MITES.evidence)
    assert [r["value"] for r in route_sample(root.ask(), [request])] == [1.0, 1.0, 1.0]


def probe(doc_id: str, text: str) -> Probe:
    return Probe(f"probe#{doc_id}", f"local/market/{doc_id}", "n#0", text)


def test_what_users_get_is_measured_with_the_time_it_takes(served_bakery: SkillRoot) -> None:
    probes = served_probes(served_bakery.root, served_bakery.served(), count=10)
    asked = ask_probes(served_bakery.ask(), probes)
    found = {(row["probe"], row["leg"], row["measure"]): row for row in asked.rows}
    assert found["sentence to skill", "served", "hit@10"]["value"] == 1.0
    assert found["sentence to skill", "served", "hit@10"]["queries"] == len(probes) > 1
    for leg in ("search", "page"):
        median, p95 = (found["latency", leg, m]["value"] for m in ("median_ms", "p95_ms"))
        assert 0 < median <= p95
    assert asked.misses == []


def test_a_skill_that_is_not_found_is_named_with_what_came_first(skill_root: Make) -> None:
    grains = ["barley", "buckwheat", "einkorn", "emmer", "kamut", "maize"]
    grains += ["millet", "oat", "rice", "rye", "sorghum", "spelt"]
    many = {
        f"{g}-bread": skill(g, f"Bakes {g} bread", f"Knead {g} dough, stretch {g} dough, bake {g} bread.\n")
        for g in grains
    }
    root = skill_root({**many, "bees": SKILLS["bees"]})
    root.publish()
    wrong = probe("bees", "Knead the dough of bread, stretch it and bake it")
    asked = ask_probes(root.ask(), [wrong])
    ((missed),) = asked.misses
    assert (missed["sentence"], missed["doc_id"]) == (wrong.text, "local/market/bees")
    assert missed["first"].endswith("-bread")
    assert asked.rows[0]["value"] == 0.0


def test_a_skill_that_is_not_served_is_not_asked_for(served_bakery: SkillRoot) -> None:
    assert ask_probes(served_bakery.ask(), [probe("wasps", "Leave wasps alone in their nest")]).rows == []


def test_latency_is_told_by_median_and_95th_percentile() -> None:
    rows = latency_rows("search", [float(ms) for ms in range(1, 101)])
    assert [(r["measure"], r["value"], r["queries"]) for r in rows] == [
        ("median_ms", 50.5, 100),
        ("p95_ms", pytest.approx(95.05), 100),
    ]


def test_a_pinned_index_answers_from_its_version_whatever_is_published(skill_root: Make) -> None:
    root = skill_root(SKILLS)
    root.publish()
    first = root.served()
    pinned = ServedIndex(root.root, encoder=MINILM, pinned=first)
    root.remove("bees")
    root.publish()
    found = pinned.search("treat varroa mites in a hive")["results"]
    assert (found[0]["doc_id"], found[0]["index_version"]) == ("local/market/bees", first.version)
    assert "local/market/bees" not in [r["doc_id"] for r in root.ask().search("varroa mites")["results"]]


def test_counts_are_those_of_the_version_asked_for(skill_root: Make) -> None:
    root = skill_root(SKILLS)
    root.publish()
    first = root.served()
    root.remove("bees")
    root.publish()
    before, after = (
        {(r["probe"], r["leg"], r["measure"]): r["value"] for r in count_rows(root.root, s, {"empty": 2})}
        for s in (first, root.served())
    )
    assert (before["size", "skills", "rows"], after["size", "skills", "rows"]) == (4, 3)
    assert before["size", "nodes", "rows"] > after["size", "nodes", "rows"] > 0
    assert before["size", "nodes", "bytes"] > 0
    assert before["dropped", "empty", "documents"] == 2
    assert before["classifier mix", LocalClassifier.name, "share"] == 1.0
    shares = [v for (what, _, _), v in before.items() if what == "node type mix"]
    assert sum(shares) == pytest.approx(1.0)


def test_an_index_without_nodes_is_counted_by_its_corpus(skill_root: Make) -> None:
    root = skill_root({"bread": SKILLS["bread"]})
    root.publish(nodes=False)
    rows = count_rows(root.root, root.served(), {})
    assert {r["leg"] for r in rows if r["probe"] == "size"} == {"skills"}
    assert [r["value"] for r in rows if r["probe"] == "classifier mix"] == [1.0]


def test_of_a_version_without_a_record_of_its_run_the_root_tells_what_was_dropped(skill_root: Make) -> None:
    root = skill_root({"bread": SKILLS["bread"], "nothing": ""})
    root.publish()
    assert dropped_of(root.root, replace(root.served(), run_id="compaction")) == {"empty": 1}


def test_what_a_run_dropped_stands_in_its_record(served_bakery: SkillRoot, tmp_path: Path) -> None:
    root, served = Root(tmp_path), served_bakery.served()
    root.write_json("state/runs/known.json", {"run_id": "known", "dropped": {"empty": 3}})
    assert dropped_of(root, replace(served, run_id="known")) == {"empty": 3}
    assert dropped_of(root, replace(served, run_id="lost")) == {}
