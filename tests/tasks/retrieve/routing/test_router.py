from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.models.encoder import OnnxEncoder
from tasks.models.protocols import Vectors
from tasks.retrieve.routing.bm25f import lexical_of
from tasks.retrieve.routing.coarse import standardised
from tasks.retrieve.routing.facets import about_tokens, facets, readable
from tasks.retrieve.routing.postings import postings_of
from tasks.retrieve.routing.router import (
    NearIdentical,
    ReadQuery,
    Router,
    RouterSettings,
    plain_name,
)
from tasks.retrieve.routing.skill import Skill


@pytest.mark.parametrize(
    ("task", "found"),
    [
        ("Bake six loaves. Then feed the bees!", ["Bake six loaves.", "Then feed the bees!"]),
        ("Bake:\n- rye bread loaves\n- buns", ["- rye bread loaves"]),
        ("One two three. One two three.", ["One two three."]),
        ("bees", []),
        ("まず湯を沸かす。次に茶葉を量る。", ["まず湯を沸かす。", "次に茶葉を量る。"]),
    ],
)
def test_a_task_is_cut_into(task: str, found: list[str]) -> None:
    assert facets(task) == found


def test_long_lines_are_cut_between_words_if_there_are_any() -> None:
    # A long line is cut between words.
    cut = facets("knead the dough " * 100)
    assert all(len(part) <= 400 and not part.endswith("doug") for part in cut)
    # A line without spaces is cut all the same.
    assert max(map(len, facets("é" * 5000))) <= 400


@given(st.lists(st.text(min_size=1, max_size=50), min_size=1, max_size=8, unique=True), st.floats(1, 100))
def test_what_is_read_is_within_the_budget_and_in_order(pieces: list[str], most: float) -> None:
    read = readable(pieces, most)
    assert len(read) == 1 or sum(map(about_tokens, read)) <= most
    assert read == [piece for piece in pieces if piece in read] != []


def test_what_is_read_is_prose_first_then_the_rest_and_a_longer_piece_is_passed_over() -> None:
    # The first pieces are read and a longer one passed over.
    assert readable(["knead the dough", "rest it " * 20, "bake it"], 12) == ["knead the dough", "bake it"]
    # Prose is read before rows of numbers code and rules.
    prose = ["Bake six loaves by noon.", "まず湯を沸かす。"]
    task = ["0.1, 0.3, 3.0, , 12", prose[0], "━" * 8, "f(x[0]) -> {1: 2}", prose[1]]
    assert readable(task, sum(map(about_tokens, prose)) + 1) == prose
    assert readable(["1 2 3", "4 5 6"], 3) == ["1 2 3"]
    # What is left goes to the rest.
    needs = ["Bump node 18.19.1 -> 20.11.0", "Then bake six loaves."]
    assert readable(needs, 100) == needs


BODY = (
    "Weigh flour, water and salt. Rest the dough overnight, shape it, score it and bake it on a hot stone. "
)
MARKET = [
    Skill("a/bread", "bread", "Bakes sourdough and other loaves", BODY + "Knock on the crust."),
    Skill("b/bread", "bread", "Bakes sourdough and other loaves", BODY + "Knock on the crust!"),
    Skill("a/bees", "bees", "Looks after honey bees", "Treat the hive with oxalic acid in winter."),
    Skill("a/bike", "bike-repair", "Repairs bicycles at home", "Patch the tube, mend the chain."),
]


@pytest.fixture(scope="module")
def router(minilm: OnnxEncoder) -> Router:
    return Router.from_documents(MARKET, minilm)


def ids(router: Router, query: str, k: int = 10) -> list[str]:
    return [found.doc_id for found in router.rank(query, k)]


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("oxalic acid", "a/bees"),
        ("a flat tyre on my cycle", "a/bike"),
        ("apiculture", "a/bees"),
        ("rye buns", "a/bread"),
    ],
)
def test_words_and_meaning_find_a_skill(router: Router, query: str, best: str) -> None:
    assert ids(router, query)[0] == best


def test_of_near_identical_skills_one_takes_a_rank_and_names_the_others(router: Router) -> None:
    best, *others = router.rank("bake a loaf", 3)
    assert (best.doc_id, best.folded) == ("a/bread", ("b/bread",))
    assert {found.doc_id for found in others} == {"a/bees", "a/bike"}
    assert len(router.rank("bake a loaf", 4, fold=False)) == 4


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_fewer_skills_are_the_first_of_more_and_ties_go_by_id(minilm: OnnxEncoder, k: int) -> None:
    twins = [Skill(doc_id, *MARKET[0][1:]) for doc_id in ("z/bread", "c/bread", "m/bread")]
    router = Router.from_documents([*twins, *MARKET], minilm)
    whole = [found.doc_id for found in router.rank("bake a loaf", 7, fold=False)]
    few = [found.doc_id for found in router.rank("bake a loaf", k, fold=False)]
    assert few == whole[:k]
    assert [d for d in whole if d in {"a/bread", "c/bread", "m/bread", "z/bread"}] == [
        "a/bread", "c/bread", "m/bread", "z/bread",
    ]  # fmt: skip


@pytest.mark.parametrize("query", ["bike repair", "Bike_Repair", "bike-repair", "a/bike"])
def test_a_name_comes_first_however_it_is_spelled(router: Router, query: str) -> None:
    assert ids(router, query)[0] == "a/bike"


def test_a_name_wins_over_a_text_that_says_it_more_often(minilm: OnnxEncoder) -> None:
    loud = Skill("loud", "oven", "All about bees and more bees", "bees " * 50)
    named = Skill("named", "bees", "Something else altogether", "Nothing of note.")
    assert ids(Router.from_documents([loud, named], minilm), "bees") == ["named", "loud"]


def test_rows_that_are_not_allowed_take_no_place_and_an_empty_index_finds_nothing(
    router: Router, minilm: OnnxEncoder
) -> None:
    # Rows that are not allowed take no place.
    allowed = np.array([False, False, True, True])
    assert [f.doc_id for f in router.rank("bake a loaf", 2, allowed=allowed)] != []
    assert {f.doc_id for f in router.rank("bake a loaf", 9, allowed=allowed)} == {"a/bees", "a/bike"}
    # An empty index finds nothing.
    assert Router.from_documents([], minilm).rank("bread", 5) == []


def test_the_order_of_the_documents_does_not_matter(router: Router, minilm: OnnxEncoder) -> None:
    turned = Router.from_documents(MARKET[::-1], minilm)
    for query in ("bake a loaf", "winter", "x"):
        assert ids(turned, query) == ids(router, query)


def test_a_need_named_in_one_of_many_lines_is_met(minilm: OnnxEncoder) -> None:
    lines = [f"Write report number {i} to the folder called output." for i in range(14)]
    task = "\n".join([*lines, "My bicycle has a puncture that wants mending."])
    facetless = RouterSettings(lexical=0, whole=1, facets=0)
    faceted = RouterSettings(lexical=0, whole=0, facets=1, tokens=500)
    place = [
        ids(Router.from_documents(MARKET, minilm, settings=s), task).index("a/bike")
        for s in (faceted, facetless)
    ]
    assert place[0] == 0 <= place[1]


TASK = "\n".join([
    "Bake me two sourdough loaves for the fair.", "Weigh the flour and the salt with care.",
    "Shape the dough and rest it overnight.", "Score every loaf before it is baked.",
    "My bicycles at home want repairs too.",
])  # fmt: skip


BAKING = "\n".join([
    "Weigh the flour, the water, the salt.", "Let the dough rest overnight, then shape the dough.",
    "Score the dough with a knife.", "Knock on the crust.", "Put the dough on a hot stone.",
    "Some friends have bicycles.",
])  # fmt: skip


@pytest.mark.parametrize("weight", [1.0, 1000.0])
def test_descriptions_tell_of_further_needs_and_not_of_the_first(minilm: OnnxEncoder, weight: float) -> None:
    without, told = (
        Router.from_documents(
            MARKET, minilm, settings=RouterSettings(whole=0, facets=0, many=1, described=described)
        ).rank(BAKING, 9)
        for described in (0.0, weight)
    )
    assert not any(found.parts["described"] or found.parts["lead"] for found in without)
    bread, bike = ({f.doc_id: f for f in told}[doc_id] for doc_id in ("a/bread", "a/bike"))
    assert bike.score - bike.parts["lead"] > bread.score - bread.parts["lead"]
    assert without[0].doc_id == told[0].doc_id == "a/bread"
    assert bread.parts["lead"] > 0 == bike.parts["lead"]


def test_words_weigh_more_where_a_task_has_several_facets_and_the_first_skill_is_settled(
    minilm: OnnxEncoder,
) -> None:
    # By meaning bread comes first and by words bees do, which no description names.
    task = "What bakers make out of rye.\nHow to get crusty buns and rolls.\nThe hive and its oxalic acid."
    once, again = (
        Router.from_documents(
            MARKET, minilm, settings=RouterSettings(lexical=0.01, many=1, described=0, again=weight)
        ).rank(task, 9)
        for weight in (0.0, 1000.0)
    )
    assert not any(found.parts["again"] for found in once)
    bread, bees = ({f.doc_id: f for f in again}[doc_id] for doc_id in ("a/bread", "a/bees"))
    assert bees.parts["again"] == pytest.approx(1000 * bees.parts["lexical"], rel=1e-4)
    assert bees.score > bread.score - bread.parts["lead"]
    assert once[0].doc_id == again[0].doc_id == "a/bread"


def test_one_facet_tells_of_no_further_needs_and_few_of_some(minilm: OnnxEncoder) -> None:
    parts = Router.from_documents(MARKET, minilm, settings=RouterSettings(many=4)).parts
    one = parts("Treat the hive with oxalic acid")
    assert one["lexical"].any()
    assert not one["described"].any()
    assert not one["again"].any()
    two = parts("Treat the hive of honey bees.\nRepair the tube of bicycles.")
    np.testing.assert_allclose(two["again"], 0.25 * 0.5 * two["lexical"], rtol=1e-6)
    # It has variance 1 before it is weighed.
    assert two["described"].std() == pytest.approx(0.5 * 0.5**2, rel=1e-4)


class Directions:
    """Encodes a text as the first letters that it has of `abc`, each a direction, 1 apart."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        found = np.array([[float(letter in text) for letter in "abc"] for text in texts], dtype=np.float32)
        unit: Vectors = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9)
        return unit


def compared(task: str) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Return how many columns the product had, and the parts `whole` and `facets` of four skills."""
    skills = [Skill(d, d, "", "") for d in ("w", "x", "y", "z")]
    rows = np.array([[1, 0, 0], [0, 1, 0], [0.7, 0.7, 0], [0, 0, 1]], dtype=np.float32)
    postings = postings_of(skills)
    router = Router(
        list("wxyz"), list("wxyz"), lexical_of(postings), postings.sketches, rows, Directions(),
        RouterSettings(many=1, whole=1, facets=1),
    )  # fmt: skip
    read = router.read(task)
    return len(read.asked), read.parts["whole"], read.parts["facets"]


def test_a_single_facet_counts_as_the_whole_and_longer_ones_count_more_in_it() -> None:
    # A single facet is compared once and counts as the whole.
    compared_with, whole, facets = compared("a a a")
    assert compared_with == 1
    np.testing.assert_allclose(whole, facets, atol=1e-6)
    # The whole task is no facet of it and longer facets count more in it.
    compared_with, whole, facets = compared("a a a.\nb b b.")
    assert compared_with == 3
    # `y` is nearest to the whole, `w` and `x` to a facet each.
    assert whole.argmax() == 2
    one, other = (standardised(np.array(cosines)) for cosines in ([1, 0, 0.7, 0], [0, 1, 0.7, 0]))
    np.testing.assert_allclose(facets, standardised(np.maximum(one, other)), atol=1e-5)
    long = " ".join(["b"] * 190)
    _, whole, _ = compared(f"a a a.\n{long}.")
    assert whole[1] > whole[2] > whole[0]


def test_a_score_is_the_sum_of_its_parts_and_falls_with_the_rank(minilm: OnnxEncoder) -> None:
    for weight in (0.5, 1000.0):
        settings = RouterSettings(many=1, described=weight)
        found = Router.from_documents(MARKET, minilm, settings=settings).rank(TASK, 9)
        assert [f.score for f in found] == sorted((f.score for f in found), reverse=True)
        assert all(f.score == pytest.approx(sum(f.parts.values()), rel=1e-4, abs=1e-4) for f in found)


def test_what_leads_is_the_best_of_the_rows_that_are_allowed(minilm: OnnxEncoder) -> None:
    router = Router.from_documents(MARKET, minilm, settings=RouterSettings(many=1, described=1000.0))
    plain = Router.from_documents(MARKET, minilm, settings=RouterSettings(many=1, described=0.0))
    allowed = np.array([False, False, True, True])
    assert router.rank(TASK, 1, allowed=allowed)[0].doc_id == plain.rank(TASK, 1, allowed=allowed)[0].doc_id
    assert router.rank(TASK, 5, allowed=np.zeros(4, dtype=np.bool_)) == []


@pytest.mark.parametrize("described", [1.0, 2.0])
def test_who_leads_stays_first_where_another_catches_up_and_has_the_lower_id(described: float) -> None:
    class Scored(Router):
        def read(self, query: str) -> ReadQuery:
            read = super().read(query)
            scores = {"lexical": [0, 1], "described": [described, 0]}
            given = {part: np.array(s, dtype=np.float32) for part, s in scores.items()}
            return read._replace(parts={part: 0 * s for part, s in read.parts.items()} | given)

    skills = [Skill(doc_id, doc_id, "", "") for doc_id in ("a", "b")]
    found = Scored.from_documents(skills, Directions()).rank("whatever", 2, fold=False)
    assert [f.doc_id for f in found] == ["b", "a"]
    assert found[0].score > found[1].score


def test_an_encoder_reads_no_more_of_a_task_than_it_is_given(minilm: OnnxEncoder) -> None:
    read: list[str] = []

    class Reading:
        def encode(self, texts: Sequence[str]) -> Vectors:
            read.extend(texts)
            return minilm.encode(texts)

    vectors = minilm.encode([f"{d.name}\n{d.description}" for d in MARKET])
    task = "\n".join(f"Bake loaf {i} with a crust of its own." for i in range(500))
    Router.from_documents(MARKET, Reading(), vectors=vectors).rank(task, 3)
    assert 0 < sum(minilm.count(read)) <= 350


def test_equal_scores_say_nothing_and_names_are_compared_without_their_separators() -> None:
    # Equal scores say nothing.
    assert standardised(np.full(3, 2, dtype=np.float32)).tolist() == [0, 0, 0]
    assert standardised(np.array([1, 3], dtype=np.float32)).tolist() == [-1, 1]
    # Names are compared without their separators.
    assert plain_name(" PDF_Form-Filler ") == plain_name("pdf form filler") == "pdf-form-filler"


def test_to_fold_many_rows_takes_no_memory_for_each_pair_of_them() -> None:
    rows = 3_000
    vectors = np.random.default_rng(1).standard_normal((rows, 64), dtype=np.float32)
    vectors[1::2] = vectors[::2]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    folder = NearIdentical(np.ones((rows, 4), np.uint32), vectors)
    tracemalloc.start()
    groups = folder.folded(range(rows))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert groups == [[row, row + 1] for row in range(0, rows, 2)]
    assert peak < 4 * rows * rows / 2
