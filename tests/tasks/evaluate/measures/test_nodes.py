from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from storage.errors import WrongInput
from tasks.evaluate.measures.nodes import (
    THRESHOLDS,
    Gold,
    accuracy,
    agreement,
    by_type,
    confusion,
    macro_f1,
    read_gold,
    threshold_table,
)
from tasks.parse.classify.protocol import FragmentInContext, Typed

LABELS = ["step", "step", "step", "param", "concept"]
ANSWERS = ["step", "step", "param", "param", "step"]
LINE = {"id": "a", "heading_path": ["Bees"], "block": "prose", "text": "Open the hive.", "node_type": "step"}


def gold_of(labels: list[str], sure: list[bool] | None = None) -> Gold:
    fragments = [FragmentInContext(str(k), (), "prose", None, "Smoke it.", None) for k in range(len(labels))]
    return Gold(fragments, [None] * len(labels), labels, sure or [True] * len(labels), [False] * len(labels))


def write(folder: Path, *lines: dict[str, Any]) -> Path:
    path = folder / "gold.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def test_precision_recall_and_f1_are_those_worked_out_by_hand() -> None:
    rows = by_type(confusion(LABELS, ANSWERS))
    assert rows.keys() == {"step", "param", "concept"}
    assert rows["step"] == pytest.approx(
        {"gold": 3, "answered": 3, "precision": 2 / 3, "recall": 2 / 3, "f1": 2 / 3}
    )
    assert rows["param"] == pytest.approx(
        {"gold": 1, "answered": 2, "precision": 0.5, "recall": 1, "f1": 2 / 3}
    )
    assert rows["concept"]["f1"] == 0
    assert macro_f1(confusion(LABELS, ANSWERS)) == pytest.approx(4 / 9)
    assert accuracy(LABELS, ANSWERS) == 0.6


def test_agreement_looks_apart_at_what_people_were_sure_of() -> None:
    answers = [Typed(name, 0.9) for name in ANSWERS]
    found = agreement(gold_of(LABELS, [True, False, True, False, False]), answers)
    assert (found["fragments"], found["accuracy"], found["ece"]) == (5, 0.6, pytest.approx(0.3))
    assert found["sure"] == {"fragments": 2, "accuracy": 0.5, "macro_f1": pytest.approx(1 / 3)}
    assert agreement(gold_of(LABELS, [False] * 5), answers)["sure"] is None


def test_thresholds_say_what_is_sent_and_what_it_brings() -> None:
    local = [Typed("step", 0.97), Typed("step", 0.85), Typed("step", 0.65), Typed("param", 0.35)]
    gold = gold_of(["step", "param", "param", "param"])
    measured = {r["threshold"]: r for r in threshold_table(gold, local, ["param"] * 4, 0.79)}
    assert list(measured) == list(THRESHOLDS)
    assert measured[0.0] == {
        "threshold": 0.0, "sent": 0.0, "kept_accuracy": 0.5, "sent_accuracy": None, "accuracy": 0.5,
    }  # fmt: skip
    assert measured[0.9] == {
        "threshold": 0.9, "sent": 0.75, "kept_accuracy": 1.0, "sent_accuracy": pytest.approx(1 / 3),
        "accuracy": 1.0,
    }  # fmt: skip
    assert measured[1.0]["accuracy"] == 0.75
    expected = {r["threshold"]: r["accuracy"] for r in threshold_table(gold, local, None, 0.8)}
    assert (expected[0.0], expected[0.9], expected[1.0]) == (0.5, pytest.approx(0.25 + 0.75 * 0.8), 0.8)


def test_gold_is_read_with_its_documents_and_its_types_kept_apart(tmp_path: Path) -> None:
    more = {**LINE, "id": "m/bees#4", "doc_id": None, "agreed_confidence": "high", "node_type": "concept"}
    gold = read_gold(write(tmp_path, {**LINE, "doc_id": "m/hive"}, more))
    assert gold.documents == ["m/hive", "m/bees"]
    assert (gold.node_types, gold.sure) == (["step", "concept"], [False, True])
    assert not any("step" in repr(fragment) for fragment in gold.fragments)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([LINE, {**LINE, "node_type": "advice"}], "gold.jsonl:2: `node_type` is 'advice'"),
        ([{k: v for k, v in LINE.items() if k != "node_type"}], "gold.jsonl:1: `node_type` is None"),
        ([], "holds no fragment"),
    ],
)
def test_gold_that_cannot_be_used_is_named(tmp_path: Path, lines: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(WrongInput) as caught:
        read_gold(write(tmp_path, *lines))
    assert said in str(caught.value)
