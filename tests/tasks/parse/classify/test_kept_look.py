from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from storage.root import Root
from storage.schemas import NODE_TYPES
from tasks.parse.classify.cascade import CarefulClassifier, KeptLook, looks_of
from tasks.parse.classify.context_model import packaged_context_model, packaged_identity
from tasks.parse.classify.protocol import FragmentInContext


def fragment(text: str, previous: str = "Light the stove.") -> FragmentInContext:
    return FragmentInContext("1", ("Jam", "Boiling"), "paragraph", previous, text, "Fill the jars.")


BOIL, SKIM = fragment("Boil the berries with sugar."), fragment("Skim the foam.")


class Counting:
    """The packaged context model, and what it was asked to read."""

    def __init__(self) -> None:
        self.read: list[FragmentInContext] = []

    def probabilities(self, fragments: Sequence[FragmentInContext]) -> npt.NDArray[np.float64]:
        self.read += fragments
        return packaged_context_model().probabilities(fragments)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def test_what_was_read_is_not_read_again_by_another_process_and_is_told_to_the_bit(root: Root) -> None:
    first, later = Counting(), Counting()

    told = KeptLook(root, first).probabilities([BOIL, SKIM, BOIL])
    again = KeptLook(root, later).probabilities([SKIM, BOIL])

    assert (first.read, later.read) == ([BOIL, SKIM], [])
    assert np.array_equal(again, told[[1, 0]])
    assert np.array_equal(told[0], told[2])
    assert told == pytest.approx(packaged_context_model().probabilities([BOIL, SKIM, BOIL]), abs=1e-5)


def test_a_text_in_another_context_is_read(root: Root) -> None:
    counting = Counting()
    look = KeptLook(root, counting)
    look.probabilities([SKIM])
    elsewhere = fragment("Skim the foam.", previous="For example:")

    look.probabilities([SKIM, elsewhere])

    assert counting.read == [SKIM, elsewhere]


def test_nothing_read_keeps_nothing(root: Root) -> None:
    assert KeptLook(root).probabilities([]).shape == (0, len(NODE_TYPES))
    assert root.files("") == []


def test_types_are_those_of_the_classifier_that_keeps_nothing(root: Root) -> None:
    fragments = [fragment(f"{text} {n}") for n in range(9) for text in ("Smoke", "Nectar flow in May")]
    keeping = CarefulClassifier(second=KeptLook(root))

    given = [keeping.classify(fragments) for _ in range(2)]

    assert len(looks_of(root)) > 0
    assert given[0] == given[1]
    plain = CarefulClassifier().classify(fragments)
    assert [typed.node_type for typed in given[0]] == [typed.node_type for typed in plain]


def test_the_packaged_model_has_one_identity() -> None:
    assert packaged_identity() == packaged_identity()
    assert len(packaged_identity()) == 16
