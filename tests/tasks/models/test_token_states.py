from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tasks.models.encoder import OnnxEncoder
from tasks.models.token_states import (
    GROUP,
    encoded,
    pack,
    packaged_projection,
    project,
    require_packed,
    unit,
    unpack,
    unpack_all,
)
from tests.support.models.word_models import WordEncoder

HIVE = "Lift the lid of the hive slowly, and blow a little smoke under it."
DOUGH = "Knead the dough for ten minutes."
DIMENSIONS = packaged_projection().shape[1]
SIZE = DIMENSIONS // 2  # bytes of a state


@given(arrays(np.float32, st.tuples(st.integers(1, 9), st.just(384)), elements=st.floats(-2, 2, width=32)))
def test_what_is_unpacked_points_where_the_pairs_of_states_did(states: np.ndarray) -> None:
    states[:, 0] += 3  # no row is all zeros
    found = unpack(*pack([states]))
    pairs = [unit(states[at : at + GROUP]).sum(axis=0) for at in range(0, len(states), GROUP)]
    assert found.shape == (-(-len(states) // GROUP), DIMENSIONS)
    # Values beyond 2.7 root mean squares are cut, so that vectors with outliers turn a little.
    assert (found * project(np.stack(pairs))).sum(axis=1) == pytest.approx(1, abs=0.1)


def test_texts_unpacked_together_are_those_unpacked_alone() -> None:
    drawn = np.random.default_rng(0).normal(size=(9, 384)).astype(np.float32)
    packed = pack([drawn[:5], drawn[:0], drawn[5:]])
    found = unpack_all(packed)
    assert packed == [*pack([drawn[:5]]), b"", *pack([drawn[5:]])]
    assert [len(states) for states in found] == [3, 0, 2]
    assert all(np.array_equal(states, unpack(alone)) for states, alone in zip(found, packed, strict=True))
    with pytest.raises(ValueError, match=f"{SIZE + 1} bytes are no whole number"):
        unpack_all([bytes(SIZE + 1), bytes(SIZE - 1)])


def test_no_states_take_no_bytes() -> None:
    assert pack([np.zeros((0, 384), dtype=np.float32)]) == [b""]
    assert unpack(b"").shape == (0, DIMENSIONS)


@pytest.mark.parametrize("packed", [b"a", bytes(SIZE - 1), bytes(3 * SIZE + 1)])
def test_bytes_that_are_no_whole_number_of_states_are_refused(packed: bytes) -> None:
    said = f"{len(packed)} bytes are no whole number of states"
    with pytest.raises(ValueError, match=said):
        unpack(packed)
    with pytest.raises(ValueError, match=said):
        require_packed([0, SIZE, len(packed)])


def test_the_encoder_makes_vectors_and_states_in_one_pass_and_the_vectors_are_those_of_encode(
    minilm: OnnxEncoder,
) -> None:
    texts = [HIVE, "", DOUGH, "word " * 400]
    vectors, packed = minilm.encode_states(texts)
    assert np.allclose(vectors, minilm.encode(texts), atol=1e-6)
    counted = [len(states) // SIZE for states in packed]
    assert counted == [-(-tokens // GROUP) for tokens in minilm.count(texts)]


def test_states_are_those_of_the_tokens_in_their_order(minilm: OnnxEncoder) -> None:
    spans = minilm.offsets(HIVE)
    pairs = [(spans[at][0], spans[min(at + 1, len(spans) - 1)][1]) for at in range(0, len(spans), GROUP)]
    expected = project(minilm.encode_parts(HIVE, pairs)[1:])
    found = unpack(minilm.encode_states([DOUGH, HIVE])[1][1])
    assert (found * expected).sum(axis=1).min() > 0.95


def test_a_word_in_context_is_nearest_to_states_of_a_text_that_answers_it(minilm: OnnxEncoder) -> None:
    bees, bread = (unpack(states) for states in minilm.encode_states([HIVE, DOUGH])[1])
    asked = project(minilm.encode_parts("How do I open a beehive?", [(16, 23)])[1:])
    assert (asked @ bees.T).max() > (asked @ bread.T).max() + 0.1


def test_a_model_whose_states_are_not_known_has_none(minilm: OnnxEncoder) -> None:
    other = OnnxEncoder(minilm._folder, threads=1)
    other.card = {**other.card, "name": "another"}
    vectors, packed = other.encode_states([HIVE])
    assert packed == [b""]
    assert np.array_equal(vectors, other.encode([HIVE]))


def test_an_encoder_that_does_not_look_so_deep_gives_vectors_alone() -> None:
    vectors, packed = encoded(WordEncoder(), [HIVE, DOUGH])
    assert (len(vectors), packed) == (2, [b"", b""])
