from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from storage.root import Root
from storage.schemas import NODE_TYPES
from tasks.models.onnx_export import resolve
from tasks.parse.classify import context_model
from tasks.parse.classify.cascade import (
    UNSURE,
    CachedContextModel,
    CascadeClassifier,
    cached_probabilities,
    embedded_classifier,
    embedded_name,
    together,
)
from tasks.parse.classify.context_model import (
    BASE,
    GRAPH,
    WEIGHTS,
    packaged_context_model,
    packed,
    unpacked,
    windows,
)
from tasks.parse.classify.local import LocalClassifier, packaged_model
from tasks.parse.classify.protocol import FragmentInContext
from tasks.train.fragments import agreement, read_labelled
from tests.support.paths import PROJECT, SHARED
from tests.support.texts.fragments import CLEAR, fragment

PACKAGE = PROJECT / "tasks" / "parse"
NODES = SHARED / "bench" / "nodes"
VAGUE = [fragment(text, block="list_item") for text in ("Smoke", "Brood comb, wired", "Nectar flow in May")]


class Says:
    """Is as good as certain of one type, and keeps what it was asked about."""

    def __init__(self, node_type: str) -> None:
        self.asked: list[FragmentInContext] = []
        self._row = np.where(np.array(NODE_TYPES) == node_type, 0.999, 0.0002)

    def probabilities(self, fragments: Sequence[FragmentInContext]) -> npt.NDArray[np.float64]:
        self.asked += fragments
        return np.tile(self._row, (len(fragments), 1))


@pytest.mark.parametrize(("node_type", "given"), CLEAR, ids=lambda part: getattr(part, "text", part))
def test_clear_cases_are_typed_as_the_guide_says(node_type: str, given: FragmentInContext) -> None:
    assert CascadeClassifier().classify([given])[0].node_type == node_type


def test_only_what_the_first_look_is_unsure_of_is_looked_at_again() -> None:
    every = [given for _, given in CLEAR] + VAGUE
    sure = [typed.confidence >= UNSURE for typed in LocalClassifier().classify(every)]
    assert any(sure)
    assert not all(sure)
    second = Says("param")
    typed = CascadeClassifier(second=second).classify(every)
    assert second.asked == [one for one, known in zip(every, sure, strict=True) if not known]
    kept = [one for one, known in zip(typed, sure, strict=True) if known]
    assert kept == [one for one, known in zip(LocalClassifier().classify(every), sure, strict=True) if known]
    assert {one.node_type for one, known in zip(typed, sure, strict=True) if not known} == {"param"}


def test_both_looks_count_alike() -> None:
    first, second = np.array([[0.6, 0.3, 0.1]]), np.array([[0.1, 0.3, 0.6]])
    both = together(first, second, temperature=1)
    assert both.sum() == pytest.approx(1)
    assert both[0, 0] == pytest.approx(both[0, 2])
    assert both[0, 1] > both[0, 0]  # what neither doubts wins over what one of them does
    np.testing.assert_allclose(together(first, first, temperature=1), first, atol=1e-6)


def test_a_fragment_is_read_alike_alone_and_among_others() -> None:
    every = [given for _, given in CLEAR] + VAGUE
    model = packaged_context_model()
    alone = np.concatenate([model.probabilities([one]) for one in every])
    # To the last bit: a text is not typed otherwise on a night when others are new.
    assert model.probabilities(every).tolist() == alone.tolist()
    np.testing.assert_allclose(alone.sum(axis=1), 1)
    assert model.probabilities([]).shape == (0, len(NODE_TYPES))


def test_what_stands_around_a_fragment_decides_too() -> None:
    model = packaged_context_model()
    under = [
        fragment("A veil and gloves", heading=title, block="list_item")
        for title in ("Prerequisites", "Steps")
    ]
    first, second = model.probabilities(under)
    kind = NODE_TYPES.index("precondition")
    assert first[kind] > second[kind] + 0.1


def test_a_window_holds_the_end_of_what_precedes_and_the_beginning_of_what_follows() -> None:
    tokenizer = Tokenizer.from_file(str(Path(resolve(BASE)[0]) / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    long = " ".join(f"w{n}" for n in range(500))
    given = FragmentInContext("f", ("Hive", "Lid"), "prose", f"{long} queen", "Lift it.", f"honey {long}")
    (window,) = windows([given], tokenizer)
    said = tokenizer.decode(window.ids)
    assert said.startswith("hive > lid")
    assert "queen" in said
    assert "honey" in said
    assert tokenizer.decode(window.ids[window.start : window.end]) == "prose : lift it."
    assert len(window.ids) <= 185


@pytest.mark.parametrize("character", ["[", "a", " ", "\n", "```\n", "\u4e2d", "\U0001f41d"])
def test_no_text_makes_a_window_longer_than_the_model_reads(character: str) -> None:
    tokenizer = Tokenizer.from_file(str(Path(resolve(BASE)[0]) / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    hostile = character * 300_000
    for window in windows([FragmentInContext("f", (hostile,), "code", hostile, hostile, hostile)], tokenizer):
        assert len(window.ids) <= 185
        assert window.start < window.end <= len(window.ids)


weights = st.dictionaries(
    st.text("abc.", min_size=1, max_size=8).filter(lambda name: not name.endswith(".scale")),
    st.lists(st.lists(st.floats(-4, 4, width=16), min_size=3, max_size=3), min_size=1, max_size=4),
    max_size=4,
)


@given(weights)
def test_weights_come_back_within_half_a_step_of_their_row(given: dict[str, list[list[float]]]) -> None:
    matrices = {name: np.array(rows, dtype=np.float32) for name, rows in given.items()}
    back = unpacked(packed(matrices))
    assert back.keys() == matrices.keys()
    for name, matrix in matrices.items():
        step = np.maximum(np.abs(matrix).max(axis=1, keepdims=True), 1e-9) / 127
        assert (np.abs(back[name] - matrix) <= step * 0.51 + 1e-7).all()


def test_what_is_shipped_is_small_and_signed() -> None:
    shipped = [PACKAGE / GRAPH, PACKAGE / WEIGHTS]
    assert sum(path.stat().st_size for path in shipped) < 8_000_000
    card = (PACKAGE / "data" / f"{CascadeClassifier.name}.md").read_text(encoding="utf-8")
    assert f"# {CascadeClassifier.name}" in card
    assert Path(context_model.WEIGHTS).name in card


def test_without_vectors_the_first_look_alone_types() -> None:
    assert embedded_classifier(cascade=True).name == CascadeClassifier.name
    assert embedded_classifier(cascade=False).name == LocalClassifier.name
    assert CascadeClassifier.name != LocalClassifier.name
    for cascade in (True, False):
        assert embedded_name(cascade=cascade) == embedded_classifier(cascade=cascade).name


@pytest.mark.slow
@pytest.mark.skipif(not NODES.is_dir(), reason="needs the annotated fragments beside the repository")
def test_two_annotators_agree_more_often_with_two_looks_than_with_one() -> None:
    rows = read_labelled(NODES / "gold.jsonl")
    fragments = [row.fragment for row in rows]
    first = agreement(rows, packaged_model().probabilities(fragments))
    both = agreement(rows, CascadeClassifier().probabilities(fragments))
    assert both.accuracy > first.accuracy + 0.01
    assert both.macro_f1 > first.macro_f1


def window(text: str, previous: str = "Light the stove.") -> FragmentInContext:
    return FragmentInContext("1", ("Jam", "Boiling"), "paragraph", previous, text, "Fill the jars.")


BOIL, SKIM = window("Boil the berries with sugar."), window("Skim the foam.")


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
    told = CachedContextModel(root, first).probabilities([BOIL, SKIM, BOIL])
    again = CachedContextModel(root, later).probabilities([SKIM, BOIL])
    assert (first.read, later.read) == ([BOIL, SKIM], [])
    assert np.array_equal(again, told[[1, 0]])
    assert np.array_equal(told[0], told[2])
    assert told == pytest.approx(packaged_context_model().probabilities([BOIL, SKIM, BOIL]), abs=1e-5)


def test_a_text_in_another_context_is_read(root: Root) -> None:
    counting = Counting()
    look = CachedContextModel(root, counting)
    look.probabilities([SKIM])
    elsewhere = window("Skim the foam.", previous="For example:")
    look.probabilities([SKIM, elsewhere])
    assert counting.read == [SKIM, elsewhere]


def test_types_are_those_of_the_classifier_that_keeps_nothing(root: Root) -> None:
    fragments = [window(f"{text} {n}") for n in range(9) for text in ("Smoke", "Nectar flow in May")]
    keeping = CascadeClassifier(second=CachedContextModel(root))
    given = [keeping.classify(fragments) for _ in range(2)]
    assert len(cached_probabilities(root)) > 0
    assert given[0] == given[1]
    plain = CascadeClassifier().classify(fragments)
    assert [typed.node_type for typed in given[0]] == [typed.node_type for typed in plain]
