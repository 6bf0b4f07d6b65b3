from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from storage.errors import WrongInput
from storage.schemas import NODE_TYPES
from tasks.parse.classify.local import Forest, LocalClassifier, load_model, tree_scores
from tasks.parse.classify.protocol import FragmentInContext
from tasks.train import local_model as train
from tasks.train.fragments import Labelled, agreement, read_labelled
from tasks.train.local_model import Boosting, fit_forest
from tests.support.texts.fragments import CLEAR, fragment


def labelled_file(folder: Path) -> Path:
    path = folder / "train.jsonl"
    rows = [
        {"id": f"{k}-{copy}", "doc_id": f"doc{copy}",
         "heading_path": list(given.heading_path), "block": given.block,
         "text": given.text, "node_type": node_type,
         "confidence": "low" if copy == 0 else "high"}
        for copy in range(6)
        for k, (node_type, given) in enumerate(CLEAR)
    ]  # fmt: skip
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n", encoding="utf-8")
    return path


def test_training_learns_its_rows_and_writes_the_same_weights_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = labelled_file(tmp_path)
    written = []
    for out in (tmp_path / "one.npz", tmp_path / "two.npz"):
        train.main([str(path), "--out", str(out), "--rounds", "25"])
        assert json.loads(capsys.readouterr().out)["accuracy"] == 1.0
        written.append(load_model(out.read_bytes()))
    fragments = [given for _, given in CLEAR]
    answers = LocalClassifier(written[0]).classify(fragments)
    assert [answer.node_type for answer in answers] == [node_type for node_type, _ in CLEAR]
    first, second = (model.probabilities(fragments) for model in written)
    np.testing.assert_array_equal(first, second)


def test_what_a_better_model_says_of_unlabelled_fragments_is_learned() -> None:
    """Of words that no label tells of, the answers do."""
    rows = [
        Labelled(given, f"doc{copy}", node_type, False) for copy in range(6) for node_type, given in CLEAR
    ]
    unlabelled = [fragment(f"Zymurgy {word} of the cellar") for word in ("lore", "tale", "myth") * 6]
    answers = np.eye(len(NODE_TYPES))[[NODE_TYPES.index("error_handling")] * len(unlabelled)]
    asked = fragment("Zymurgy of another cellar")
    before = train.fit_model(rows, Boosting(rounds=10))
    after = train.fit_model(rows, Boosting(rounds=10), answered=train.Answered(unlabelled, answers))
    (was,), (now,) = before.probabilities([asked]), after.probabilities([asked])
    at = NODE_TYPES.index("error_handling")
    assert now[at] > 2 * was[at]
    known = LocalClassifier(after).classify([given for _, given in CLEAR])
    assert [answer.node_type for answer in known] == [node_type for node_type, _ in CLEAR]


def test_the_answers_to_learn_from_are_those_of_both_models() -> None:
    class Sure:
        def probabilities(self, fragments: Sequence[FragmentInContext]) -> npt.NDArray[np.float64]:
            given = np.full((len(fragments), len(NODE_TYPES)), 0.001)
            given[:, NODE_TYPES.index("param")] = 0.995
            return given

    rows = [
        Labelled(given, f"doc{copy}", node_type, False) for copy in range(6) for node_type, given in CLEAR
    ]
    shown = [given for _, given in CLEAR]
    said = train.answers_of(train.fit_model(rows, Boosting(rounds=5)), Sure(), shown)
    assert Counter(said.fragments) == Counter(shown)
    np.testing.assert_allclose(said.targets.sum(axis=1), 1)
    assert (said.targets[:, NODE_TYPES.index("param")] > 0.5).mean() > 0.8


def test_a_row_without_a_known_type_cannot_be_learned(tmp_path: Path) -> None:
    path = labelled_file(tmp_path)
    path.write_text(path.read_text(encoding="utf-8").replace('"concept"', '"idea"'), encoding="utf-8")
    with pytest.raises(WrongInput, match="node_type among"):
        read_labelled(path)


def rows_of(labels: list[str], doubted: list[bool]) -> list[Labelled]:
    return [Labelled(fragment("x"), "d", kind, d) for kind, d in zip(labels, doubted, strict=True)]


def sure_of(answers: list[str], confidence: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    given = np.full((len(answers), len(NODE_TYPES)), (1 - confidence) / 5)
    given[np.arange(len(answers)), [NODE_TYPES.index(a) for a in answers]] = confidence
    return given


def test_agreement_counts_each_type_alike_and_undoubted_rows_by_themselves() -> None:
    rows = rows_of(["step", "step", "step", "param"], [False, False, True, False])
    measured = agreement(rows, sure_of(["step", "step", "param", "param"], 0.95))
    assert (measured.accuracy, measured.undoubted) == (0.75, 1.0)
    assert measured.f1["step"] == pytest.approx(0.8)
    assert measured.f1["param"] == pytest.approx(2 / 3)
    assert measured.macro_f1 == pytest.approx((0.8 + 2 / 3) / 6)
    assert measured.calibration_error == pytest.approx(0.2)


def test_confidence_that_was_too_high_is_cooled_and_too_low_is_sharpened() -> None:
    rows = rows_of(["step"] * 10, [False] * 10)
    half_right = ["step"] * 5 + ["param"] * 5
    assert train.fit_temperature(sure_of(half_right, 0.95), rows) > 1.5
    assert train.fit_temperature(sure_of(["step"] * 10, 0.7), rows) < 0.8


def test_a_document_is_never_tested_by_a_model_that_saw_it() -> None:
    told = Labelled(fragment("Lift the lid.", heading="Steps"), "known", "step", doubted=False)
    only_here = [Labelled(one, "other", kind, doubted=False) for kind, one in CLEAR if kind == "param"]
    given = train.held_out([told] * 4 + only_here * 4, Boosting(rounds=3), folds=2)
    assert (given[4:].argmax(axis=1) != NODE_TYPES.index("param")).all()


def test_trees_learn_what_no_sum_of_cues_can() -> None:
    pairs = [(0, 0)] * 8 + [(0, 1)] * 10 + [(1, 0)] * 10 + [(1, 1)] * 12
    present = np.array(pairs, dtype=np.bool_)
    crossed = present[:, 0] ^ present[:, 1]
    target = np.eye(2, dtype=np.float32)[crossed.astype(int)]
    how = Boosting(rounds=60, depth=2, columns=1.0)
    forest = fit_forest(present, target, np.ones(len(pairs), np.float32), np.random.default_rng(0), how)
    assert (tree_scores(forest, present).argmax(axis=1) == crossed).all()


def test_a_tree_is_walked_to_the_leaf_of_the_cues_present() -> None:
    forest = Forest(
        np.array([[0, 1, 2], [0, 0, 0]], np.int32),
        np.array([[1, 2, 3, 4], [0, 0, 0, 0]], np.float32),
        np.array([0.5, 0.0], np.float32),
    )
    present = np.array([[False, True, False], [True, False, True], [True, False, False]])
    assert tree_scores(forest, present).tolist() == [[2.5, 0.0], [4.5, 0.0], [3.5, 0.0]]
