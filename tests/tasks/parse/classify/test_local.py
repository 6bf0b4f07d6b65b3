from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storage.schemas import BLOCKS, NODE_TYPES
from tasks.parse.classify.features import find_cues, find_words
from tasks.parse.classify.local import (
    WEIGHTS,
    Forest,
    LocalClassifier,
    load_model,
    packaged_model,
    save_model,
    tree_scores,
)
from tasks.parse.classify.protocol import FragmentInContext
from tasks.train.local_model import agreement, read_labelled
from tests.support.clock import takes_less
from tests.support.paths import PROJECT, SHARED
from tests.support.texts.fragments import CLEAR, fragment

PACKAGE = PROJECT / "tasks" / "parse"
NODES = SHARED / "bench" / "nodes"


@pytest.mark.parametrize(("node_type", "given"), CLEAR, ids=lambda part: getattr(part, "text", part))
def test_clear_cases_are_typed_as_the_guide_says(node_type: str, given: FragmentInContext) -> None:
    assert LocalClassifier().classify([given])[0].node_type == node_type


def test_the_lead_in_of_a_fragment_counts() -> None:
    led = find_cues(fragment("A veil", block="list_item", previous="Prerequisites:"))
    assert "previous:leads:prerequisite" in led
    assert "previous:leads:prerequisite" not in find_cues(fragment("A veil", previous="Prerequisites"))


def test_what_follows_a_defined_term_is_read_by_itself() -> None:
    told = find_cues(fragment("**Smoke**: Open the smoker and wait."))
    named = find_cues(fragment("**Smoke**: insulation of the hive"))
    assert "after:verb" in told
    assert "after:verb" not in named
    assert "after:nominal" in named


def test_words_are_named_by_their_place() -> None:
    found = find_words(fragment("Lift the lid", heading="Daily care", previous="Put on gloves."))
    assert {"t:lid", "t2:the lid", "t0:lift", "h:care", "a:beekeeping", "before:gloves", "before-1:."} <= set(
        found
    )
    assert find_words(fragment("Lift", block="code")) != find_words(fragment("Lift"))


@pytest.mark.parametrize("character", ["[", "`", "*", '"', "-", "a", " ", "\n", ":", "```\n", "|"])
@pytest.mark.parametrize("block", BLOCKS)
def test_no_text_keeps_the_classifier_busy(character: str, block: str) -> None:
    hostile = character * 300_000
    fragment = FragmentInContext("f", (hostile,), block, hostile, hostile, hostile)
    assert takes_less(2, lambda: LocalClassifier().classify([fragment] * 2))


fragments = st.builds(
    FragmentInContext,
    fragment_id=st.text(max_size=3),
    heading_path=st.lists(st.text(max_size=30), max_size=4).map(tuple),
    block=st.sampled_from([*BLOCKS, "unknown"]),
    previous=st.none() | st.text(max_size=60),
    text=st.text(max_size=120),
    next=st.none() | st.text(max_size=60),
)


@given(st.lists(fragments, max_size=6))
def test_any_text_gets_a_type_and_a_confidence_whatever_stands_around_it_in_the_batch(
    batch: list[FragmentInContext],
) -> None:
    classifier = LocalClassifier()
    typed = classifier.classify(batch)
    assert len(typed) == len(batch)
    assert all(answer.node_type in NODE_TYPES and 1 / 6 - 1e-9 <= answer.confidence < 1 for answer in typed)
    alone = [classifier.classify([one])[0] for one in batch]
    assert [answer.node_type for answer in alone] == [answer.node_type for answer in typed]
    assert [answer.confidence for answer in alone] == pytest.approx([answer.confidence for answer in typed])


@given(fragments)
@example(fragment("Lift the lid: the lid lifts.", heading="Steps", previous="Before you start:"))
@example(fragment("```sh\nnpm i\n```", block="code", heading="1. Install", previous="Run:"))
def test_what_is_looked_up_by_place_is_what_has_a_name(one: FragmentInContext) -> None:
    known = packaged_model().features
    columns, values, cues = known.of(one)
    assert columns[:cues].tolist() == [known.cues[name] for name in find_cues(one) if name in known.cues]
    assert columns[cues:].tolist() == sorted(known.words[n] for n in find_words(one) if n in known.words)
    assert len(values) == len(columns)


@given(st.data(), st.integers(1, 4), st.integers(1, 5), st.integers(0, 20))
def test_each_row_gets_the_votes_of_the_leaves_that_it_reaches(
    data: st.DataObject, depth: int, trees: int, rows: int
) -> None:
    draw = np.random.default_rng(data.draw(st.integers(0, 999)))
    columns = draw.integers(0, 7, (2 * trees, 2**depth - 1)).astype(np.int32)
    leaves = draw.normal(size=(2 * trees, 2**depth)).astype(np.float32)
    present = draw.random((rows, 7)) < 0.5
    expected = np.zeros((rows, 2))
    for row, (tree, asked) in product(range(rows), enumerate(columns)):
        node = 0
        while node < len(asked):
            node = 2 * node + 1 + int(present[row, asked[node]])
        expected[row, tree % 2] += leaves[tree, node - len(asked)]
    forest = Forest(columns, leaves, np.zeros(2, np.float32))
    np.testing.assert_allclose(tree_scores(forest, present), expected, atol=1e-5)


def test_a_model_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    save_model(tmp_path / "model.npz", packaged_model())
    again = load_model((tmp_path / "model.npz").read_bytes())
    given = [one for _, one in CLEAR]
    np.testing.assert_array_equal(again.probabilities(given), packaged_model().probabilities(given))


def test_the_packaged_weights_are_small_and_carry_the_name_that_rows_are_signed_with() -> None:
    weights = PACKAGE / WEIGHTS
    assert weights.stem == LocalClassifier.name
    assert weights.stat().st_size < 5_000_000
    assert f"# {LocalClassifier.name}" in weights.with_suffix(".md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.skipif(not NODES.is_dir(), reason="needs the annotated fragments beside the repository")
def test_two_annotators_agree_with_three_of_four_answers() -> None:
    rows = read_labelled(NODES / "gold.jsonl")
    measured = agreement(rows, packaged_model().probabilities([row.fragment for row in rows]))
    assert measured["accuracy"] >= 0.75
    assert measured["macro_f1"] >= 0.68
    assert measured["undoubted"] >= 0.86
