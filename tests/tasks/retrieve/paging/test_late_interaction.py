from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import StorageError
from tasks.models.encoder import OnnxEncoder
from tasks.models.token_states import encoded, packaged_projection, project, unpack
from tasks.retrieve.page import page
from tasks.retrieve.paging.facets import ask, ready_for, unit_features
from tasks.retrieve.paging.late_interaction import STATES, TokenStates, state_rows, states_of
from tasks.retrieve.paging.prepared import Prepared, cut
from tasks.retrieve.paging.scorer import NAMES
from tasks.retrieve.paging.types import PagedDocument
from tests.support.models.word_models import WordEncoder, WordTokenizer
from tests.support.paging.prepared_documents import CODE, PROSE, TABLE, nodes_of

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


def test_a_node_in_one_piece_has_all_of_its_states(minilm: OnnxEncoder) -> None:
    vectors, packed = minilm.encode_states([node.text for node in NODES])
    states = states_of(NODES, UNITS, vectors, packed, minilm)
    last = UNITS.first[-2]
    assert UNITS.first[-1] - last == 1
    assert np.array_equal(rows_of(states, last), unpack(packed[-1]))


def test_without_states_a_node_s_vector_stands_for_all_of_its_parts() -> None:
    states = states_of(NODES, UNITS, VECTORS, [b""] * len(NODES), WordTokenizer())
    assert not states.projected
    assert np.array_equal(states.rows, VECTORS[UNITS.owner])
    assert states.first.tolist() == list(range(len(UNITS.owner)))


def test_a_node_without_states_among_others_has_its_vector_at_their_dimensions(minilm: OnnxEncoder) -> None:
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


@given(words=st.integers(1, 5), units=st.integers(1, 6), seed=st.integers(0, 99))
def test_what_words_say_is_finite_whatever_they_are(words: int, units: int, seed: int) -> None:
    drawn = np.random.default_rng(seed)
    states = TokenStates(
        drawn.normal(size=(2 * units, 4)).astype(np.float32), np.arange(0, 2 * units, 2), projected=False
    )
    sections = np.sort(drawn.integers(0, 3, size=units))
    _, numbered = np.unique(sections, return_inverse=True)
    asked = drawn.normal(size=(words, 4)).astype(np.float32)
    found = state_rows(states, asked, laid_out(numbered.tolist()))
    assert found.shape == (len(STATES), units)
    assert np.isfinite(found).all()


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
