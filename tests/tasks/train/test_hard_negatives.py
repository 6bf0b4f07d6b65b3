from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tasks.models.protocols import Vectors
from tasks.retrieve.routing.bm25f import lexical_of
from tasks.retrieve.routing.postings import postings_of
from tasks.retrieve.routing.skill import Skill
from tasks.train.hard_negatives import FalseNegatives, Mined, Pool, candidate_lists, mine_negatives, trigrams
from tasks.train.queries import TrainingOptions, TrainingQuery
from tests.support.models.training_material import trades

SHARES = TrainingOptions(depth=10)
SKILLS = trades()
N = len(SKILLS)
# On an arc: the nearest skills are those beside a skill in the list.
ANGLES = np.linspace(0, 1.4, N)
VECTORS: Vectors = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1).astype(np.float32)
ALL_TRUE = TrainingOptions(false_body=1, false_embedding=1)


def mined(
    skills: list[Skill] = SKILLS, *,
    text: str = "whoever hurries the kiln and its glaze, the oven and its crust",
    shares: TrainingOptions = SHARES, categories: int = 3, false: TrainingOptions = ALL_TRUE, seed: int = 0,
    rows: tuple[int, ...] = (5, 12),
) -> Mined:  # fmt: skip
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
    shares = TrainingOptions(depth=8, semantic=0, lexical=2, category=0, random=0)
    # Row 4 is the potter of kiln and glaze; row 0 has oven and crust, and lies beyond the nearest of row 6.
    assert by_source(mined(shares=shares, rows=(6,)), 0)["lexical"][0] == 4
    assert 0 not in by_source(mined(shares=shares, rows=(6,)), 0)["lexical"]
    assert 0 in by_source(mined(shares=shares.model_copy(update={"depth": 23}), rows=(6,)), 0)["lexical"]


def test_semantic_negatives_are_drawn_from_the_nearest_not_taken_from_the_top() -> None:
    shares = TrainingOptions(depth=10, semantic=2, lexical=0, category=0, random=0)
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
    strict = TrainingOptions(false_embedding=1)
    # Everything is near, so that each false negative is met by several sources.
    shares = TrainingOptions(depth=23, semantic=20, lexical=3, category=0, random=0)
    found = mined(copies, shares=shares, false=strict, rows=(5,))
    assert found.removed == {"name": 1, "body": 2}
    assert not {3, 6, 7} & {row for row, _ in found.negatives[0]}
    assert len(found.negatives[0]) == N - 1 - 3


def replace_body(skill: Skill, body: str) -> Skill:
    return skill._replace(body=body)


def test_negatives_are_the_same_for_the_same_seed_and_others_for_another() -> None:
    assert mined(seed=4).negatives == mined(seed=4).negatives != mined(seed=5).negatives


def test_trades_are_no_false_negatives_of_each_other() -> None:
    judge = FalseNegatives(SKILLS, np.eye(N, dtype=np.float32), TrainingOptions())
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


_BODY = "scald every seed with hot water before any of it goes into your bowl of flour"
_WORDS = _BODY.split()


def judged(name: str, body: str, cosine: float) -> str | None:
    """Return the layer by which a skill is as good as one named `rye bread` whose body is `_WORDS`."""
    skills = [Skill("a", "Rye bread", "", " ".join(_WORDS)), Skill("b", name, "", body)]
    vectors = np.array([[1, 0], [cosine, np.sqrt(1 - cosine**2)]], dtype=np.float32)
    return FalseNegatives(skills, vectors, TrainingOptions()).layer(0, 1)


def version(kept: int) -> str:
    """Return a body with the first words of the other's, and new ones after them."""
    return " ".join([*_WORDS[:kept], *(f"new{n}" for n in range(len(_WORDS) - kept))])


@pytest.mark.parametrize(
    ("name", "layer"), [("rye-bread", "name"), ("RYE_Bread", "name"), ("rye breads", None), ("rye", None)]
)
def test_skills_of_one_name_are_false_and_of_a_similar_one_are_not(name: str, layer: str | None) -> None:
    assert judged(name, "Strike while it is hot.", 0.0) == layer


@pytest.mark.parametrize(("kept", "layer"), [(16, "body"), (13, "body"), (11, None), (0, None)])
def test_bodies_that_share_half_their_trigrams_are_false_and_fewer_are_not(
    kept: int, layer: str | None
) -> None:
    # Of 14 trigrams each, 11 shared ones make a Jaccard similarity of 11 / 17, and 9 one of 9 / 19.
    assert len(_WORDS) == 16
    one, other = trigrams(" ".join(_WORDS)), trigrams(version(kept))
    shared = len(set(one.tolist()) & set(other.tolist()))
    assert (shared / (28 - shared) >= 0.5) == (layer is not None)
    assert judged("anvil", version(kept), 0.0) == layer


@pytest.mark.parametrize(("cosine", "layer"), [(0.95, "embedding"), (0.91, "embedding"), (0.89, None)])
def test_descriptions_that_mean_the_same_are_false_and_similar_ones_are_not(
    cosine: float, layer: str | None
) -> None:
    assert judged("anvil", "Strike while it is hot.", cosine) == layer


def test_the_first_layer_that_catches_is_told() -> None:
    assert judged("rye bread", " ".join(_WORDS), 1.0) == "name"
    assert judged("anvil", " ".join(_WORDS), 1.0) == "body"


def test_texts_of_fewer_than_three_words_have_nothing_in_common() -> None:
    assert trigrams("two words").tolist() == []
    skills = [Skill("a", "a", "", ""), Skill("b", "b", "", "")]
    settings = TrainingOptions()
    assert FalseNegatives(skills, np.eye(2, dtype=np.float32), settings).layer(0, 1) is None


def test_a_filter_that_is_off_finds_none() -> None:
    skills = [Skill(doc_id, "Rye bread", "", _BODY) for doc_id in ("a", "b")]
    vectors = np.array([[1, 0], [1, 0]], dtype=np.float32)
    assert FalseNegatives(skills, vectors, TrainingOptions()).layer(0, 1) == "name"
    assert FalseNegatives(skills, vectors, TrainingOptions(drop_false=False)).layer(0, 1) is None
