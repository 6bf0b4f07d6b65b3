from __future__ import annotations

import time
from collections.abc import Callable

import lancedb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.lance import SKILLS, connect, open_at
from tasks.models.encoder import OnnxEncoder
from tasks.retrieve.search import rank_dense, rank_lexical, search_skills
from tests.hand_written import skill
from tests.skill_root import SkillRoot

Make = Callable[[dict[str, str]], SkillRoot]
ODD = [
    '"',
    "'; DROP TABLE skills; --",
    '"knead the dough" AND NOT (yeast OR salt)',
    "+yeast -salt yeast~2 ye*st doc_id:bread [a TO b] {x} ^3 \\",
    "???!!! ... --- ***",
    "(((",
    "\x00\t\n yeast",
    "緑茶をいれる",
    "🐝🐝🐝",
    "é́́́",
    "yeast " * 700,
    "".join(chr(0x4E00 + i) for i in range(3500)),
    "q" * 5000,
]


@pytest.fixture(scope="module")
def skills(served_bakery: SkillRoot) -> lancedb.table.Table:
    return open_at(connect(served_bakery.root), SKILLS, served_bakery.served().skills)


def found(table: lancedb.table.Table, encoder: OnnxEncoder, query: str, k: int = 10) -> dict[str, float]:
    ranked = search_skills(table, query, encoder.encode([query])[0], k=k)
    return {row["doc_id"].rpartition("/")[2]: score for row, score in ranked}


def test_both_legs_rank_and_their_ranks_are_fused(skills: lancedb.table.Table, minilm: OnnxEncoder) -> None:
    query = "sprockets of a bicycle"
    dense, lexical = rank_dense(skills, minilm.encode([query])[0]), rank_lexical(skills, query)
    assert len(dense) == 4
    assert dense[0] == lexical[0] == "local/market/bike"

    scores = found(skills, minilm, query)

    for doc_id in dense:
        ranks = [leg.index(doc_id) + 1 for leg in (dense, lexical) if doc_id in leg]
        assert scores[doc_id.rpartition("/")[2]] == pytest.approx(sum(1 / (60 + r) for r in ranks))
    assert list(scores.values()) == sorted(scores.values(), reverse=True)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("vulcanising", "bike"),
        ("Feed sugar syrup in October", "bees"),
        ("log-hive --colony 3 --weight 31", "bees"),
        ("knock on the crust", "bread"),
        ("KNOCK ON THE CRUST", "bread"),
        ("一滴まで注ぎ切ります", "tea"),
    ],
)
def test_words_of_the_body_find_their_skill(skills: lancedb.table.Table, text: str, name: str) -> None:
    assert rank_lexical(skills, text)[0] == f"local/market/{name}"


@pytest.mark.parametrize(
    ("query", "name"),
    [("sourdough and other loaves", "bread"), ("a flat tyre on my cycle", "bike"), ("apiculture", "bees")],
)
def test_other_words_for_the_description_find_it_too(
    skills: lancedb.table.Table, minilm: OnnxEncoder, query: str, name: str
) -> None:
    assert rank_dense(skills, minilm.encode([query])[0])[0] == f"local/market/{name}"


@pytest.mark.parametrize("query", ODD, ids=range(len(ODD)))
def test_no_query_is_too_odd(skills: lancedb.table.Table, minilm: OnnxEncoder, query: str) -> None:
    started = time.perf_counter()

    assert len(found(skills, minilm, query)) == 4

    assert time.perf_counter() - started < 5


def test_ties_come_in_the_order_of_ids(skill_root: Make, minilm: OnnxEncoder) -> None:
    names = [f"s{i}" for i in range(40)]
    root = skill_root({n: skill("counting", "Counts", f"Count aloud. {n}x{n}y") for n in names})
    table = open_at(connect(root.root), SKILLS, root.publish(nodes=False).skills)

    ids = sorted(f"local/market/{n}" for n in names)
    assert rank_lexical(table, "count aloud") == ids
    assert rank_dense(table, minilm.encode(["counting"])[0]) == ids


def test_operators_are_words_like_others(skills: lancedb.table.Table) -> None:
    assert rank_lexical(skills, "-yeast")[0] == "local/market/bread"
    assert rank_lexical(skills, 'yeast AND "sprockets"')
    assert rank_lexical(skills, "text:yeast")[0] == "local/market/bread"


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_may_be_asked_of_the_words(skills: lancedb.table.Table, query: str) -> None:
    assert len(rank_lexical(skills, query)) <= 4


@pytest.mark.parametrize("k", [1, 3, 4, 5, 100_000, 10**15])
def test_as_many_skills_come_as_asked_for_or_there_are(
    skills: lancedb.table.Table, minilm: OnnxEncoder, k: int
) -> None:
    assert len(found(skills, minilm, "bread", k)) == min(k, 4)


def test_more_than_a_hundred_can_be_asked_for(skill_root: Make, minilm: OnnxEncoder) -> None:
    root = skill_root({f"s{i}": skill(f"s{i}", f"Counts to {i}", f"Count aloud to {i}.") for i in range(130)})
    table = open_at(connect(root.root), SKILLS, root.publish(nodes=False).skills)

    assert len(found(table, minilm, "count aloud", 120)) == 120
    started = time.perf_counter()
    found(table, minilm, "count aloud to 77")
    assert time.perf_counter() - started < 1
