from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from storage.errors import SchemaMismatch
from storage.lance.tables import TableAt
from storage.parquet import write_frame
from storage.root import Root
from tasks.crawl.git.source import FOLDER
from tasks.evaluate.health.as_served import (
    METHODS,
    REQUESTS,
    ask_probes,
    page_sample,
    route_sample,
    sample_requests,
)
from tasks.evaluate.health.history import HISTORY, append_history, count_rows, dropped_of, read_history
from tasks.evaluate.health.probes import (
    Probe,
    draw_probes,
    probe_index,
    probe_nodes,
    probe_skills,
    served_probes,
)
from tasks.evaluate.measures.evidence import EvidenceQuery, fold_text, read_queries
from tasks.models.protocols import Vectors
from tasks.parse.classify.local import LocalClassifier
from tasks.retrieve.routing.bm25f import lexical_of
from tasks.retrieve.routing.postings import postings_of
from tasks.retrieve.routing.skill import Skill
from tasks.retrieve.routing.store import RoutingIndex
from tasks.retrieve.served_index import ServedIndex
from tests.support.roots.hand_written import SKILLS, skill
from tests.support.roots.skill_root import MINILM, SkillRoot
from tests.support.roots.vendor import made_table

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
    # One at the same time, one of whole numbers, and one without figures.
    append_history(root, "v-2", [{**row(1), "value": 1, "low": 1}], now=NIGHT + timedelta(microseconds=1))
    append_history(root, "v-3", [], now=NIGHT + timedelta(days=2))
    assert read_history(root)["value"].to_list() == [0.5, 0.25, 1.0, 0.75]


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
    # One of a newer version is not passed over.
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


def test_requests_are_those_whose_skill_is_served(
    served_bakery: SkillRoot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sample_requests(served_bakery.ask()) == []
    lines = [
        '{"query_id": "a", "doc_id": "local/market/bees", "query": "x", "evidence": [{"any_of": ["x"]}]}',
        '{"query_id": "b", "doc_id": "local/market/wasps", "query": "x", "evidence": [{"any_of": ["y"]}]}',
    ]
    (tmp_path / "q.jsonl").write_text("\n".join(lines), "utf-8")
    monkeypatch.setattr("tasks.evaluate.health.as_served.REQUESTS", tmp_path / "q.jsonl")
    assert [q.query_id for q in sample_requests(served_bakery.ask())] == ["a"]


def test_requests_are_paged_by_method_and_find_the_skill_they_were_written_from(
    served_bakery: SkillRoot,
) -> None:
    rows = {r["method"]: r for r in page_sample(served_bakery.ask(), [MITES, PATCH])}
    assert set(rows) == set(METHODS)
    assert (rows["full"]["queries"], rows["full"]["sufficient"], rows["full"]["token_reduction"]) == (2, 1, 0)
    assert rows["mmr"]["coverage"] == 1.0
    assert 0 <= rows["mmr"]["token_reduction"] < 1
    routed = route_sample(served_bakery.ask(), [MITES, PATCH])
    assert {r["measure"]: r["value"] for r in routed} == {"hit@1": 1.0, "hit@10": 1.0, "mrr@10": 1.0}
    wrong = EvidenceQuery("q3", "local/market/bread", MITES.query, MITES.evidence)
    assert route_sample(served_bakery.ask(), [MITES, wrong])[0]["value"] == 0.5


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
    # A skill that is not served is not asked for.
    unserved = probe("wasps", "Leave wasps alone in their nest")
    assert ask_probes(served_bakery.ask(), [unserved]).rows == []


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


def test_what_was_dropped_is_told_by_the_runs_record_or_without_one_by_the_root(skill_root: Make) -> None:
    root = skill_root({"bread": SKILLS["bread"], "nothing": ""})
    root.publish()
    assert dropped_of(root.root, replace(root.served(), run_id="compaction")) == {"empty": 1}
    root.root.write_json("state/runs/known.json", {"run_id": "known", "dropped": {"empty": 3}})
    assert dropped_of(root.root, replace(root.served(), run_id="known")) == {"empty": 3}


LONG = "Treat the colony against varroa mites with oxalic acid in December."


def nodes(*rows: tuple[str, str, str, str]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["node_id", "doc_id", "block", "text"], orient="row")


def heads(*rows: tuple[str, str, str]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["doc_id", "name", "description"], orient="row")


def unit(*angles: float) -> Vectors:
    """Return vectors of the plane by their angle in degrees."""
    radians = np.radians(angles)
    return np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)


def vector_table(folder: Path, columns: dict[str, list[str]], vectors: Vectors) -> TableAt:
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 2)
    return made_table(folder, "t", pa.table({**columns, "vector": flat}))


def probed(root: SkillRoot, count: int) -> list[dict[str, Any]]:
    probes = served_probes(root.root, root.served(), count=count)
    return probe_index(root.root, root.served(), probes, encoder=root.encoder)


def test_one_probe_a_skill_is_drawn_and_at_most_so_many_by_ids_texts_and_seed_alone() -> None:
    many = nodes(*((f"d{i}#{j}", f"d{i}", "prose", f"{LONG} {i} {j}") for i in range(20) for j in range(5)))
    skills = heads(*((f"d{i}", f"name{i}", "text") for i in range(20)))
    probes = draw_probes(many, skills, count=7)
    assert draw_probes(many.sample(fraction=1, shuffle=True, seed=3), skills.reverse(), count=7) == probes
    assert draw_probes(many, skills, count=7, seed=5) != probes
    assert len(probes) == 7
    assert len({p.doc_id for p in probes}) == 7
    assert [p.query_id for p in probes] == [f"probe#{i}" for i in range(7)]
    texts = dict(many.select("node_id", "text").iter_rows())
    assert all(texts[p.node_id] == p.text and p.node_id.startswith(f"{p.doc_id}#") for p in probes)
    assert len(draw_probes(many, skills, count=100)) == 20


def test_a_skill_that_comes_or_goes_changes_at_most_the_probes_of_that_skill() -> None:
    many = nodes(*((f"d{i}#{j}", f"d{i}", "prose", f"{LONG} {i} {j}") for i in range(60) for j in range(5)))
    skills = heads(*((f"d{i}", f"name{i}", "text") for i in range(60)))
    asked = {(p.doc_id, p.text) for p in draw_probes(many, skills, count=20)}
    for i in range(60):
        fewer = draw_probes(many.filter(pl.col("doc_id") != f"d{i}"), skills, count=20)
        left = {(p.doc_id, p.text) for p in fewer}
        # Of 20 of 59, the one that moves up where the skill gone was probed.
        assert {doc_id for doc_id, _ in asked - left} <= {f"d{i}"}
        assert len(left - asked) == len(asked - left)


def test_a_sentence_that_comes_or_goes_before_the_one_asked_leaves_it() -> None:
    texts = [f"{LONG} {j}" for j in range(6)]
    rows = [(f"d#{j}", "d", "prose", text) for j, text in enumerate(texts)]
    for seed in range(5):
        (asked,) = draw_probes(nodes(*rows), heads(("d", "name", "text")), count=1, seed=seed)
        for gone in (text for text in texts if text != asked.text):
            left = [text for text in texts if text != gone]
            moved = nodes(*((f"d#{j}", "d", "prose", text) for j, text in enumerate(left)))
            (again,) = draw_probes(moved, heads(("d", "name", "text")), count=1, seed=seed)
            assert again.text == asked.text


@pytest.mark.parametrize(
    ("block", "text", "head", "drawn"),
    [
        ("prose", LONG, "Bees", True),
        ("list_item", f"- {LONG}", "Bees", True),
        ("prose", LONG, LONG, False),
        ("prose", LONG, f"Bees. {LONG.upper()} And more", False),
        ("prose", "**Treat** the colony, with oxalic acid!", "treat the colony with oxalic acid", False),
        ("code", LONG, "Bees", False),
        ("table", LONG, "Bees", False),
        ("prose", "Only five words are here.", "Bees", False),
        ("prose", LONG * 5, "Bees", False),
    ],
)
def test_only_sentences_that_name_and_description_lack_are_drawn(
    block: str, text: str, head: str, drawn: bool
) -> None:
    probes = draw_probes(nodes(("bees#0", "bees", block, text)), heads(("bees", "bees", head)), count=5)
    assert [p.text for p in probes] == [text] * drawn


def test_each_leg_is_asked_for_the_skill_of_each_probe(tmp_path: Path) -> None:
    ids = [f"s{i:02}" for i in range(12)]
    texts = [f"common words {'alpha' if i == 11 else 'filler'}" for i in range(12)]
    table = vector_table(tmp_path, {"doc_id": ids, "text": texts}, unit(*(7 * i for i in range(12))))
    postings = postings_of([Skill(doc_id, "", "", text) for doc_id, text in zip(ids, texts, strict=True)])
    words = RoutingIndex(ids, [], lexical_of(postings), postings.sketches, unit(), pl.DataFrame())
    # The first is nearest to s00 and unique in its words to s11; the second the third nearest to s01.
    probes = [Probe("p0", "s11", "s11#0", "alpha"), Probe("p1", "s02", "s02#0", "filler")]
    rows = probe_skills(table, words, probes, unit(0, 4))
    found = {(r["leg"], r["measure"]): r["value"] for r in rows}
    # By angle p0 has s11 last of twelve, and p1 has s01 (3 degrees off), s00 (4), s02 (10).
    assert found["dense", "hit@10"] == 0.5
    assert found["dense", "mrr@10"] == pytest.approx((0 + 1 / 3) / 2)
    # p0 is the only one with its word; all others tie in p1's, in the order of ids: s02 is the third.
    assert found["lexical", "hit@10"] == 1.0
    assert found["lexical", "mrr@10"] == pytest.approx((1 + 1 / 3) / 2)
    # p0: 1/61 + 1/72 puts s11 before s00 with 1/61. p1: s00 (1/62 + 1/61) and s01 (1/61 + 1/62), then s02.
    assert found["fused", "mrr@10"] == pytest.approx((1 + 1 / 3) / 2)
    assert all((r["queries"], r["probe"]) == (2, "sentence to skill") for r in rows)
    assert all(r["low"] <= r["value"] <= r["high"] for r in rows)


def test_a_probe_must_come_by_the_other_nodes_of_its_skill(tmp_path: Path) -> None:
    ids = ["lonely#0", "pair#0", "pair#1", *(f"crowd#{i}" for i in range(9))]
    docs = [i.partition("#")[0] for i in ids]
    table = vector_table(
        tmp_path, {"node_id": ids, "doc_id": docs}, unit(0, 90, 92, *(180 + i for i in range(9)))
    )
    probes = [Probe("p0", "lonely", "lonely#0", "x"), Probe("p1", "pair", "pair#0", "y")]
    row = probe_nodes(table, probes, unit(0, 90))
    assert (row["queries"], row["measure"], row["value"]) == (2, "hit@10", 0.5)
    # A tenth other node counts, and an eleventh does not.
    ids = ["own#0", *(f"crowd#{i}" for i in range(9)), "own#1", "crowd#9"]
    docs = [i.partition("#")[0] for i in ids]
    table = vector_table(tmp_path / "ten", {"node_id": ids, "doc_id": docs}, unit(*range(12)))
    own = Probe("p", "own", "own#0", "x")
    assert probe_nodes(table, [own], unit(0))["value"] == 1.0
    more = {"node_id": [*ids, "crowd#10"], "doc_id": [*docs, "crowd"]}
    table = vector_table(tmp_path / "more", more, np.concatenate([unit(*range(12)), unit(5.5)]))
    assert probe_nodes(table, [own], unit(0))["value"] == 0.0


def test_what_is_served_is_probed_on_every_leg(served_bakery: SkillRoot) -> None:
    rows = probed(served_bakery, 3)
    legs = {(r["probe"], r["leg"], r["measure"]): r["value"] for r in rows}
    assert len(legs) == 7
    assert legs["sentence to skill", "lexical", "hit@10"] == 1.0
    assert legs["sentence to skill", "lexical", "mrr@10"] == 1.0
    assert probed(served_bakery, 3) == rows
    root = served_bakery.root
    assert probe_index(root, served_bakery.served(), [], encoder=served_bakery.encoder) == []


def test_an_index_without_nodes_is_probed_on_its_skills_alone(skill_root: Make) -> None:
    root = skill_root(SKILLS)
    root.publish(nodes=False)
    assert root.served().nodes is None
    rows = probed(root, 3)
    assert [(r["probe"], r["leg"]) for r in rows[::2]] == [
        ("sentence to skill", leg) for leg in ("dense", "lexical", "fused")
    ]
    assert len(rows) == 6
    found = {(r["leg"], r["measure"]): r["value"] for r in rows}
    assert found["lexical", "hit@10"] == found["lexical", "mrr@10"] == 1.0
    counted = count_rows(root.root, root.served(), {})  # by its corpus
    assert {r["leg"] for r in counted if r["probe"] == "size"} == {"skills"}
    assert [r["value"] for r in counted if r["probe"] == "classifier mix"] == [1.0]


def test_sentences_of_a_skill_that_is_not_served_yet_are_not_asked(skill_root: Make) -> None:
    first, *others = SKILLS
    root = skill_root({first: SKILLS[first]})
    root.publish(nodes=False)
    for name in others:
        root.write(name, SKILLS[name])
    root.crawl()
    root.parse(vectors=False)
    rows = probed(root, 10)
    assert {r["queries"] for r in rows} == {1}
