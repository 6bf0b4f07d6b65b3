from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from storage.root import Root
from tasks.evaluate.health.as_served import ask_probes, latency_rows
from tasks.evaluate.health.history import count_rows, dropped_of
from tasks.evaluate.health.probes import Probe, served_probes
from tasks.parse.classify.local import LocalClassifier
from tasks.retrieve.served_index import ServedIndex
from tests.support.roots.hand_written import SKILLS, skill
from tests.support.roots.skill_root import MINILM, SkillRoot

Make = Callable[[dict[str, str]], SkillRoot]


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
    pinned = ServedIndex(root.root, encoder=MINILM, classifier=LocalClassifier, pinned=first)
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


def test_of_a_version_without_a_record_of_its_run_the_root_tells_what_was_dropped(
    skill_root: Make,
) -> None:
    root = skill_root({"bread": SKILLS["bread"], "nothing": ""})
    root.publish()
    assert dropped_of(root.root, replace(root.served(), run_id="compaction")) == {"empty": 1}


def test_what_a_run_dropped_stands_in_its_record(served_bakery: SkillRoot, tmp_path: Path) -> None:
    root, served = Root(tmp_path), served_bakery.served()
    root.write_json("state/runs/known.json", {"run_id": "known", "dropped": {"empty": 3}})
    assert dropped_of(root, replace(served, run_id="known")) == {"empty": 3}
    assert dropped_of(root, replace(served, run_id="lost")) == {}
