from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tasks.models.protocols import Vectors
from tasks.retrieve.routing.bm25f import lexical_of
from tasks.retrieve.routing.postings import postings_of
from tasks.retrieve.routing.skill import Skill
from tasks.retrieve.train.false_negatives import FalseNegatives, FalseNegativeSettings
from tasks.retrieve.train.hard_negatives import Mined, MiningSettings, Pool, candidate_lists, mine_negatives
from tasks.retrieve.train.queries import TrainingQuery
from tests.support.models.training_material import trades

SHARES = MiningSettings(depth=10, semantic=4, lexical=3, category=2, random=1)
SKILLS = trades()
N = len(SKILLS)
# On an arc: the nearest skills are those beside a skill in the list.
ANGLES = np.linspace(0, 1.4, N)
VECTORS: Vectors = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1).astype(np.float32)
ALL_TRUE = FalseNegativeSettings(body=1.0, embedding=2.0)


def mined(
    skills: list[Skill] = SKILLS,
    *,
    text: str = "whoever hurries the kiln and its glaze, the oven and its crust",
    shares: MiningSettings = SHARES,
    categories: int = 3,
    false: FalseNegativeSettings = ALL_TRUE,
    seed: int = 0,
    rows: tuple[int, ...] = (5, 12),
) -> Mined:
    """Return the negatives of queries made from some skills; category is the row's remainder."""
    pool_rows = np.arange(len(skills))
    pool = Pool(
        pool_rows,
        VECTORS[: len(skills)],
        lexical_of(postings_of(skills)),
        [f"c{row % categories}" for row in range(len(skills))],
    )
    queries = [TrainingQuery(f"q{row}", text, row, ()) for row in rows]
    judge = FalseNegatives(skills, VECTORS, false)
    return mine_negatives(queries, VECTORS[list(rows)], pool, judge, shares, np.random.default_rng(seed))


def by_source(found: Mined, query: int) -> dict[str, list[int]]:
    sources: dict[str, list[int]] = {}
    for row, source in found.negatives[query]:
        sources.setdefault(source, []).append(row)
    return sources


def test_each_source_gives_its_share_and_the_positive_is_no_negative() -> None:
    found = mined()

    assert found.found == {"semantic": 8, "lexical": 6, "category": 4, "random": 2}
    for query, positive in enumerate((5, 12)):
        sources = by_source(found, query)
        near = set(np.argsort(np.abs(np.arange(N) - positive), kind="stable")[1 : SHARES.depth + 2].tolist())
        assert set(sources["semantic"]) | set(sources["lexical"]) <= near
        assert {row % 3 for row in sources["category"]} == {positive % 3}
        assert {row % 3 for row in sources["random"]} != {positive % 3}
        rows = [row for row, _ in found.negatives[query]]
        assert len(set(rows)) == len(rows) == 10
        assert positive not in rows


def test_lexical_negatives_are_the_best_by_words_among_the_nearest() -> None:
    shares = MiningSettings(depth=8, semantic=0, lexical=2, category=0, random=0)

    # Row 4 is the potter of kiln and glaze; row 0 has oven and crust, and lies beyond the nearest of row 6.
    assert by_source(mined(shares=shares, rows=(6,)), 0)["lexical"][0] == 4
    assert 0 not in by_source(mined(shares=shares, rows=(6,)), 0)["lexical"]
    assert 0 in by_source(mined(shares=replace(shares, depth=23), rows=(6,)), 0)["lexical"]


def test_semantic_negatives_are_drawn_from_the_nearest_not_taken_from_the_top() -> None:
    shares = MiningSettings(depth=10, semantic=2, lexical=0, category=0, random=0)

    drawn = {row for seed in range(40) for row, _ in mined(shares=shares, rows=(5,), seed=seed).negatives[0]}

    assert drawn == set(range(11)) - {5}


@pytest.mark.parametrize(
    ("text", "categories", "short"),
    [("nothing of all this", 3, {"lexical": 6}), ("whoever hurries the kiln", N, {"category": 4})],
)
def test_what_a_source_lacks_is_filled_up_at_random(
    text: str, categories: int, short: dict[str, int]
) -> None:
    found = mined(text=text, categories=categories)

    missing = sum(short.values())
    assert found.found["filled"] == missing
    assert all(found.found[source] == 0 for source in short)
    assert [len(negatives) for negatives in found.negatives] == [10, 10]


def test_where_there_are_fewer_skills_than_negatives_all_others_are_taken() -> None:
    found = mined(SKILLS[:6], rows=(2,))

    assert sorted(row for row, _ in found.negatives[0]) == [0, 1, 3, 4, 5]


def test_false_negatives_are_left_out_counted_once_and_made_up_for() -> None:
    copies = [replace_body(SKILLS[row], SKILLS[5].body) if row in (3, 7) else SKILLS[row] for row in range(N)]
    copies[6] = SKILLS[6]._replace(name=SKILLS[5].name)
    strict = FalseNegativeSettings(body=0.5, embedding=2.0)
    # Everything is near, so that each false negative is met by several sources.
    shares = MiningSettings(depth=23, semantic=20, lexical=3, category=0, random=0)

    found = mined(copies, shares=shares, false=strict, rows=(5,))

    assert found.removed == {"name": 1, "body": 2}
    assert not {3, 6, 7} & {row for row, _ in found.negatives[0]}
    assert len(found.negatives[0]) == N - 1 - 3


def replace_body(skill: Skill, body: str) -> Skill:
    return skill._replace(body=body)


def test_negatives_are_the_same_for_the_same_seed_and_others_for_another() -> None:
    assert mined(seed=4).negatives == mined(seed=4).negatives != mined(seed=5).negatives


def test_trades_are_no_false_negatives_of_each_other() -> None:
    judge = FalseNegatives(SKILLS, np.eye(N, dtype=np.float32), FalseNegativeSettings())

    layers = Counter(judge.layer(a, b) for a in range(N) for b in range(a))

    assert set(layers) == {None}


def test_a_list_holds_what_was_ranked_first_without_positive_and_false_negatives() -> None:
    skills = [*SKILLS[:8], SKILLS[3]._replace(doc_id="copy")]
    judge = FalseNegatives(skills, VECTORS, ALL_TRUE)
    queries = [TrainingQuery("q", "whatever", 3, ())]
    ranked = [[8, 3, 1, 0, 7]]

    made = candidate_lists(queries, ranked, np.arange(9), judge, 2, np.random.default_rng(0))
    short = candidate_lists(queries, [[8, 3, 1]], np.arange(9), judge, 4, np.random.default_rng(0))

    assert [tuple(one) for one in made.negatives[0]] == [(1, "ranked"), (0, "ranked")]
    assert made.removed == {"name": 1}
    assert Counter(source for _, source in short.negatives[0]) == {"ranked": 1, "filled": 3}
    assert not {3, 8} & {row for row, _ in short.negatives[0]}
