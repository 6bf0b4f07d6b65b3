from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from storage.lance.tables import TableAt
from tasks.evaluate.health.probes import (
    Probe,
    draw_probes,
    probe_index,
    probe_nodes,
    probe_skills,
    served_probes,
)
from tasks.models.protocols import Vectors
from tasks.retrieve.routing.bm25f import lexical_of
from tasks.retrieve.routing.postings import postings_of
from tasks.retrieve.routing.skill import Skill
from tasks.retrieve.routing.store import RoutingIndex
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import SkillRoot
from tests.support.roots.vendor import made_table

Make = Callable[[dict[str, str]], SkillRoot]

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


def probe(root: SkillRoot, count: int) -> list[dict[str, Any]]:
    probes = served_probes(root.root, root.served(), count=count)
    return probe_index(root.root, root.served(), probes, encoder=root.encoder)


def test_one_probe_a_skill_at_most_is_drawn_and_at_most_so_many() -> None:
    many = nodes(*((f"d{i}#{j}", f"d{i}", "prose", f"{LONG} {i} {j}") for i in range(20) for j in range(5)))
    skills = heads(*((f"d{i}", f"name{i}", "text") for i in range(20)))
    probes = draw_probes(many, skills, count=7)
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


def test_the_draw_depends_on_ids_texts_and_seed_alone() -> None:
    many = nodes(*((f"d{i}#{j}", f"d{i}", "prose", f"{LONG} {i} {j}") for i in range(20) for j in range(5)))
    skills = heads(*((f"d{i}", f"name{i}", "text") for i in range(20)))
    drawn = draw_probes(many, skills, count=7)
    assert draw_probes(many.sample(fraction=1, shuffle=True, seed=3), skills.reverse(), count=7) == drawn
    assert draw_probes(many, skills, count=7, seed=5) != drawn


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


def test_a_tenth_other_node_counts_and_an_eleventh_does_not(tmp_path: Path) -> None:
    ids = ["own#0", *(f"crowd#{i}" for i in range(9)), "own#1", "crowd#9"]
    docs = [i.partition("#")[0] for i in ids]
    table = vector_table(tmp_path, {"node_id": ids, "doc_id": docs}, unit(*range(12)))
    probe = Probe("p", "own", "own#0", "x")
    assert probe_nodes(table, [probe], unit(0))["value"] == 1.0
    more = {"node_id": [*ids, "crowd#10"], "doc_id": [*docs, "crowd"]}
    table = vector_table(tmp_path / "more", more, np.concatenate([unit(*range(12)), unit(5.5)]))
    assert probe_nodes(table, [probe], unit(0))["value"] == 0.0


def test_what_is_served_is_probed_on_every_leg(served_bakery: SkillRoot) -> None:
    rows = probe(served_bakery, 3)
    legs = {(r["probe"], r["leg"], r["measure"]): r["value"] for r in rows}
    assert len(legs) == 7
    assert legs["sentence to skill", "lexical", "hit@10"] == 1.0
    assert legs["sentence to skill", "lexical", "mrr@10"] == 1.0
    again = probe(served_bakery, 3)
    assert again == rows


def test_an_index_without_nodes_is_probed_on_its_skills_alone(skill_root: Make) -> None:
    root = skill_root(SKILLS)
    root.publish(nodes=False)
    assert root.served().nodes is None
    rows = probe(root, 3)
    assert [(r["probe"], r["leg"]) for r in rows[::2]] == [
        ("sentence to skill", leg) for leg in ("dense", "lexical", "fused")
    ]
    assert len(rows) == 6
    found = {(r["leg"], r["measure"]): r["value"] for r in rows}
    assert found["lexical", "hit@10"] == found["lexical", "mrr@10"] == 1.0


def test_sentences_of_a_skill_that_is_not_served_yet_are_not_asked(skill_root: Make) -> None:
    first, *others = SKILLS
    root = skill_root({first: SKILLS[first]})
    root.publish(nodes=False)
    for name in others:
        root.write(name, SKILLS[name])
    root.crawl()
    root.parse(vectors=False)
    rows = probe(root, 10)
    assert {r["queries"] for r in rows} == {1}


def test_an_index_without_a_fitting_sentence_has_nothing_to_probe(skill_root: Make) -> None:
    root = skill_root({"tea": SKILLS["tea"]})
    root.publish()
    assert probe(root, 3) == []
