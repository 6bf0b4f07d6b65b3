from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from storage.errors import StorageError
from tasks.evaluate.measures.evidence import EvidenceQuery
from tasks.models.encoder import OnnxEncoder
from tasks.models.token_states import encoded, packaged_projection, project, unpack
from tasks.retrieve.page import page
from tasks.retrieve.paging.facets import ask, ready_for, unit_features
from tasks.retrieve.paging.late_interaction import STATES, TokenStates, state_rows, states_of
from tasks.retrieve.paging.prepared import Prepared, cut
from tasks.retrieve.paging.scorer import FILE, GROUPS, NAMES, Scorer, chances, scorer_of
from tasks.retrieve.paging.types import PagedDocument
from tasks.train.paging_scorer import Example, fit, stored
from tests.support.models.word_models import WordEncoder, WordTokenizer
from tests.support.paging.prepared_documents import CODE, PROSE, TABLE, nodes_of

FACETS, WORDS = NAMES.index("log_facets"), NAMES.index("words")


SCORED_UNITS = 40


def features(facets: int, chance: np.random.Generator) -> np.ndarray:
    found = chance.normal(size=(len(NAMES), SCORED_UNITS)).astype(np.float32)
    found[FACETS] = np.log(facets)
    return found


def leaning_on_words() -> Scorer:
    """Return a scorer for which words speak for a unit of a request of many facets, and against it of few."""
    zeros, ones = (np.full(len(NAMES), value, dtype=np.float32) for value in (0, 1))
    lean = zeros.copy()
    lean[WORDS] = 2
    mean = zeros.copy()
    mean[FACETS] = np.log(3)
    return Scorer(mean, ones, zeros, lean, 0.5)


def test_a_weight_leans_with_the_number_of_facets() -> None:
    scorer, given = leaning_on_words(), features(1, np.random.default_rng(0))
    few, as_most, many = (scorer.logits(with_facets(given, n)) for n in (1, 3, 9))
    step = 2 * np.log(3)
    assert few == pytest.approx(0.5 - step * given[WORDS], abs=1e-5)
    assert as_most == pytest.approx(np.full(SCORED_UNITS, 0.5), abs=1e-5)
    assert many == pytest.approx(0.5 + step * given[WORDS], abs=1e-5)


def with_facets(given: np.ndarray, facets: int) -> np.ndarray:
    changed = given.copy()
    changed[FACETS] = np.log(facets)
    return changed


def test_what_the_groups_add_is_the_score_less_that_of_an_average_unit() -> None:
    chance = np.random.default_rng(1)
    drawn = [chance.normal(size=len(NAMES)).astype(np.float32) for _ in range(4)]
    scorer = Scorer(drawn[0], np.abs(drawn[1]) + 1, drawn[2], drawn[3], -1.5)
    given = features(5, chance)
    parts = scorer.by_group(given)
    assert parts.shape == (SCORED_UNITS, len(GROUPS))
    assert parts.sum(axis=1) - 1.5 == pytest.approx(scorer.logits(given), abs=1e-3)


def test_fitting_finds_a_weight_that_leans() -> None:
    chance = np.random.default_rng(2)
    asked = EvidenceQuery("q", "d", "anything", (), None)
    examples = []
    for turn in range(80):
        given = features(1 if turn % 2 else 9, chance)
        needed = np.flatnonzero((given[WORDS] > 0) == (turn % 2 == 0)).tolist()
        examples.append(Example(asked, given, [[[unit]] for unit in needed]))
    scorer = fit(examples, penalty=1.0)
    assert scorer.lean[WORDS] > 5 * np.abs(np.delete(scorer.lean, [WORDS, FACETS])).max()
    assert scorer.lean[WORDS] > 10 * abs(scorer.weight[WORDS])
    right = [(chances(scorer.logits(e.features)) > 0.5).sum() for e in examples[:2]]
    assert min(right) > 0


def test_a_scorer_is_the_same_once_it_was_stored() -> None:
    scorer = leaning_on_words()
    given = features(4, np.random.default_rng(3))
    again = scorer_of(json.loads(json.dumps(stored(scorer))))
    assert again.logits(given) == pytest.approx(scorer.logits(given), abs=1e-4)


@pytest.mark.parametrize("change", [{"version": 2}, {"features": {"words": [0, 1, 0, 0]}}])
def test_a_scorer_of_another_version_or_other_features_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="fit it anew"):
        scorer_of(json.loads(FILE.read_text("utf-8")) | change)


BODY = f"# Kitchen\n\n{PROSE}\n\n{CODE}\n\n## Soups\n\n{TABLE}\n\nScrub the copper pan.\n"


NODES = nodes_of(BODY)


UNITS = cut(BODY, NODES)


VECTORS = WordEncoder().encode([node.text for node in NODES])


SIZE = packaged_projection().shape[1] // 2  # bytes of a state


READY = ready_for(
    PagedDocument("soup", BODY, NODES), encoder=WordEncoder(), tokenizer=WordTokenizer()
).prepared


def rows_of(states: TokenStates, unit: int) -> np.ndarray:
    ends = [*states.first[1:], len(states.rows)]
    return states.rows[states.first[unit] : ends[unit]]


def test_a_part_of_a_node_has_the_states_of_its_own_tokens(minilm: OnnxEncoder) -> None:
    nodes = [replace(node, n_tokens=minilm.count([node.text])[0]) for node in NODES]
    units = cut(BODY, nodes)
    vectors, packed = minilm.encode_states([node.text for node in nodes])
    states = states_of(nodes, units, vectors, packed, minilm)
    assert states.projected
    assert np.diff(units.first).max() > 1
    for unit, (start, end) in enumerate(zip(units.start, units.end, strict=True)):
        tokens = minilm.count([BODY[start:end]])[0]
        assert tokens / 2 <= len(rows_of(states, unit)) <= tokens / 2 + 1.5


def test_nodes_without_states_have_their_vector_in_place_and_whole_ones_all_of_theirs(
    minilm: OnnxEncoder,
) -> None:
    # A node in one piece has all of its states.
    vectors, packed = minilm.encode_states([node.text for node in NODES])
    states = states_of(NODES, UNITS, vectors, packed, minilm)
    last = UNITS.first[-2]
    assert UNITS.first[-1] - last == 1
    assert np.array_equal(rows_of(states, last), unpack(packed[-1]))
    # Without states a node s vector stands for all of its parts.
    states = states_of(NODES, UNITS, VECTORS, [b""] * len(NODES), WordTokenizer())
    assert not states.projected
    assert np.array_equal(states.rows, VECTORS[UNITS.owner])
    assert states.first.tolist() == list(range(len(UNITS.owner)))
    # A node without states among others has its vector at their dimensions.
    vectors, packed = minilm.encode_states([node.text for node in NODES])
    states = states_of(NODES, UNITS, vectors, [*packed[:-1], b""], minilm)
    np.testing.assert_allclose(rows_of(states, int(UNITS.first[-2])), project(vectors[-1:]), atol=1e-6)


def laid_out(sections: list[int]) -> Prepared:
    """Return what is asked of a document here: which unit stands in which section."""
    first = [at for at, section in enumerate(sections) if at == 0 or sections[at - 1] != section]
    return replace(READY, section=np.array(sections), sections=np.array(first))


def test_the_largest_cosine_of_each_word_counts() -> None:
    rows = np.eye(3, 4, dtype=np.float32)[[0, 1, 2, 2]]
    states = TokenStates(rows, np.array([0, 2]), projected=False)
    words = np.array([[0.6, 0.8, 0, 0], [0, 0, 1, 0]], dtype=np.float32)
    found = dict(zip(STATES, state_rows(states, words, laid_out([0, 1])), strict=True))
    assert found["state_mean"] == pytest.approx([0.4, 0.5])  # the means of 0.8, 0 and of 0, 1
    assert found["state_mean_standard"] == pytest.approx([0, 0])  # each word prefers another
    assert found["state_best"] == pytest.approx([1, 1])
    assert found["state_three"] == pytest.approx([0, 0])
    assert np.exp(found["state_mean_share"]) == pytest.approx([0.5, 0.5])


def test_a_unit_counts_more_beside_one_that_a_word_is_near_to() -> None:
    rows = np.array([[1, 0], [0, 1], [0, 1], [0, 1]], dtype=np.float32)
    states = TokenStates(rows, np.arange(4), projected=False)
    found = dict(zip(STATES, state_rows(states, rows[:1], laid_out([0, 0, 1, 1])), strict=True))
    near, beside, *far = found["state_both_mean_share"]
    assert near > beside > far[0] == far[1]
    assert found["state_section"] == pytest.approx([1, 1, -1, -1])
    share = 1 / (1 + np.exp(-2))
    assert np.exp(found["state_section_mean_share"]) == pytest.approx([share, share, 1 - share, 1 - share])
    assert found["state_mean_share"][1] == found["state_mean_share"][2]


def test_one_unit_of_many_thousands_that_alone_is_near_leaves_all_numbers_finite() -> None:
    rows = np.zeros((20_000, 2), dtype=np.float32)
    rows[:, 1], rows[7] = 1, (1, 0)
    states = TokenStates(rows, np.arange(len(rows)), projected=False)
    found = state_rows(states, rows[7:8], laid_out(list(range(len(rows)))))
    assert np.isfinite(found).all()
    assert found.argmax(axis=1).tolist() == [7] * len(STATES)


def test_a_request_of_function_words_alone_is_compared_as_a_whole(minilm: OnnxEncoder) -> None:
    vectors, packed = minilm.encode_states([node.text for node in NODES])
    document = PagedDocument("soup", BODY, NODES, vectors, states=packed)
    ready = ready_for(document, encoder=minilm, tokenizer=minilm)
    request, asked = ask("what is this about?", minilm)
    found = unit_features(ready, request, asked)
    assert not request.words
    expected = np.maximum.reduceat(ready.states.rows @ project(asked[:1]).T, ready.states.first)[:, 0]
    assert found[NAMES.index("state_mean")] == pytest.approx(expected, abs=1e-5)


def test_states_that_are_no_whole_number_of_them_are_a_damaged_index() -> None:
    vectors, packed = encoded(WordEncoder(), [node.text for node in NODES])
    document = PagedDocument("soup", BODY, NODES, vectors, 200, states=[b"x" * (SIZE + 1), *packed[1:]])
    with pytest.raises(StorageError, match=r"soup: states of its nodes cannot be read .*skillery doctor"):
        page(document, "copper", encoder=WordEncoder(), tokenizer=WordTokenizer())
