from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from storage.errors import WrongInput
from tasks.evaluate.routing.data import skill_of
from tasks.models.protocols import Vectors
from tasks.retrieve.routing.bm25f import lexical_of
from tasks.retrieve.routing.postings import postings_of
from tasks.retrieve.routing.skill import Skill
from tasks.train.hard_negatives import FalseNegatives, Mined, Pool, candidate_lists, mine_negatives, trigrams
from tasks.train.material import Encoders, Material, gather, training_rows
from tasks.train.queries import (
    PairedQueries,
    TrainingOptions,
    TrainingQuery,
    asked_of,
    without_queries,
)
from tests.support.models.training_material import pairs_of, tools, trades
from tests.support.models.word_models import WordEncoder, WordTokenizer

OPTIONS = TrainingOptions(drop_false=False)  # of skills that are much alike
TOOLS = [Skill(*skill_of(record["doc_id"], record["content"])) for record in tools(occasions=2)]


class _Both(WordEncoder, WordTokenizer):
    def __init__(self) -> None:
        self.card: dict[str, Any] = {}
        WordEncoder.__init__(self)
        WordTokenizer.__init__(self)


@pytest.fixture(scope="module")
def asked() -> PairedQueries:
    return asked_of(pairs_of(TOOLS), TOOLS)


@contextmanager
def silent(_name: str) -> Iterator[Callable[[int, int], None]]:
    yield lambda _done, _total: None


def gathered(asked: PairedQueries, pairs: int = 10_000) -> Material:
    encoder = _Both()
    both = Encoders(encoder, encoder)
    return gather(TOOLS, {}, both, OPTIONS, silent, pairs=pairs, seed=0, asked=asked)


def words(queries: Sequence[Any]) -> set[str]:
    return {query.text for query in queries}


def test_who_is_validated_on_is_never_trained_with(asked: PairedQueries) -> None:
    material = gathered(asked)
    assert words(material.queries) <= words(asked.train)
    assert words(material.asked) <= words(asked.validation)
    assert len(material.asked) == len({query.row for query in material.asked}) > 10
    held = set(material.held_out.rows.tolist())
    assert {query.row for query in material.asked} <= held
    used = {query.row for query in material.queries}
    used |= {negative.row for negatives in material.mined.negatives for negative in negatives}
    assert not held & used


def test_no_text_that_is_read_holds_what_is_asked_of_its_skill(asked: PairedQueries) -> None:
    material = gathered(asked)
    rows = training_rows(material, lambda skill: skill.text, OPTIONS, np.random.default_rng(0))
    texts = {text for row in rows for text in row[1:]}
    assert len(texts) <= len(TOOLS)  # one a skill, however often and as what it is read
    assert not any("amber" in text or "cedar" in text for text in texts)
    listed = material.queries[: OPTIONS.lists]
    for side, queries in ((material.train, listed), (material.held_out, material.asked)):
        assert len(side.skills) == len(set(side.rows.tolist())) == len(side.rows)
        read = without_queries(TOOLS, queries)
        assert list(side.skills) == [read[row] for row in side.rows.tolist()]
        assert list(side.skills) != [TOOLS[row] for row in side.rows.tolist()]


def test_requests_that_are_not_used_are_counted(asked: PairedQueries) -> None:
    material = gathered(asked._replace(shared=3), pairs=5)
    left_out = material.counts()["left_out"]
    assert left_out["of_two_skills"] == 3
    assert left_out["beyond_pairs"] + 5 + left_out["of_skills_that_say_no_more"] == len(asked.train)


def test_requests_without_a_skill_that_says_anything_else_are_told(asked: PairedQueries) -> None:
    mute = [replace(query, passages=(TOOLS[query.row].description,)) for query in asked.train]
    with pytest.raises(WrongInput, match="no request of the pairs is left to train with"):
        gathered(asked._replace(train=mute))


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
    # Where there are fewer skills than negatives all others are taken.
    assert sorted(row for row, _ in mined(SKILLS[:6], rows=(2,)).negatives[0]) == [0, 1, 3, 4, 5]


def test_false_negatives_are_left_out_counted_once_and_made_up_for() -> None:
    copies = [own._replace(body=SKILLS[5].body) if row in (3, 7) else own for row, own in enumerate(SKILLS)]
    copies[6] = SKILLS[6]._replace(name=SKILLS[5].name)
    strict = TrainingOptions(false_embedding=1)
    # Everything is near, so that each false negative is met by several sources.
    shares = TrainingOptions(depth=23, semantic=20, lexical=3, category=0, random=0)
    found = mined(copies, shares=shares, false=strict, rows=(5,))
    assert found.removed == {"name": 1, "body": 2}
    assert not {3, 6, 7} & {row for row, _ in found.negatives[0]}
    assert len(found.negatives[0]) == N - 1 - 3


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


def judged(name: str, body: str, cosine: float, **options: bool) -> str | None:
    """Return the layer by which a skill is as good as one named `rye bread` whose body is `_WORDS`."""
    skills = [Skill("a", "Rye bread", "", " ".join(_WORDS)), Skill("b", name, "", body)]
    vectors = np.array([[1, 0], [cosine, np.sqrt(1 - cosine**2)]], dtype=np.float32)
    return FalseNegatives(skills, vectors, TrainingOptions(**options)).layer(0, 1)


def version(kept: int) -> str:
    """Return a body with the first words of the other's, and new ones after them."""
    return " ".join([*_WORDS[:kept], *(f"new{n}" for n in range(len(_WORDS) - kept))])


# Of 14 trigrams each, 11 shared ones (of 13 words) make a Jaccard similarity of 11 / 17, and 9 one of 9 / 19.
@pytest.mark.parametrize(
    ("name", "kept", "cosine", "layer"),
    [
        ("rye-bread", 0, 0.0, "name"), ("RYE_Bread", 0, 0.0, "name"), ("rye breads", 0, 0.0, None),
        ("rye", 0, 0.0, None), ("anvil", 16, 0.0, "body"), ("anvil", 13, 0.0, "body"),
        ("anvil", 11, 0.0, None), ("anvil", 0, 0.91, "embedding"), ("anvil", 0, 0.89, None),
        ("rye bread", 16, 1.0, "name"), ("anvil", 16, 1.0, "body"),
    ],
)  # fmt: skip
def test_a_second_positive_has_the_name_half_the_trigrams_or_nearly_the_description(
    name: str, kept: int, cosine: float, layer: str | None
) -> None:
    assert judged(name, version(kept), cosine) == layer
    assert judged(name, version(kept), cosine, drop_false=False) is None


def test_texts_of_fewer_than_three_words_have_nothing_in_common() -> None:
    assert trigrams("two words").tolist() == []
    skills = [Skill("a", "a", "", ""), Skill("b", "b", "", "")]
    settings = TrainingOptions()
    assert FalseNegatives(skills, np.eye(2, dtype=np.float32), settings).layer(0, 1) is None
