from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import WrongInput
from tasks.evaluate.judge.agreement import Label, agreement, cohen_kappa, read_labels, require_labelled


def test_kappa_is_that_of_the_textbook() -> None:
    # 20 both yes, 15 both no, 5 and 10 apart: p_o 0.7, p_e 0.5.
    a = [True] * 20 + [True] * 5 + [False] * 10 + [False] * 15
    b = [True] * 20 + [False] * 5 + [True] * 10 + [False] * 15
    assert cohen_kappa(a, b) == pytest.approx(0.4)


def test_judges_who_always_say_the_same_one_thing_have_no_kappa() -> None:
    assert cohen_kappa([True, True], [True, True]) is None
    assert cohen_kappa([], []) is None
    assert cohen_kappa([True, False], [True, True]) == 0.0


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1))
def test_kappa_is_symmetric_and_at_most_1_and_1_for_equal_judges_only(pairs: list[tuple[bool, bool]]) -> None:
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    kappa = cohen_kappa(a, b)
    assert kappa == cohen_kappa(b, a)
    if kappa is not None:
        assert -1 <= kappa <= 1
        assert (kappa == pytest.approx(1)) == (a == b)


def test_agreement_is_told_by_vote_pattern_too() -> None:
    found = agreement([True, True, False, False], [True, False, False, True], ["3-0", "2-1", "3-0", "3-0"])
    assert (found["cases"], found["raw"], found["kappa"]) == (4, 0.5, 0.0)
    assert (found["only_a"], found["only_b"]) == (1, 1)
    assert list(found["by_pattern"]) == ["3-0", "2-1"]
    assert found["by_pattern"]["3-0"]["cases"] == 3
    assert found["by_pattern"]["3-0"]["raw"] == pytest.approx(2 / 3)
    assert found["by_pattern"]["2-1"]["kappa"] == 0.0


def test_cases_must_be_the_same() -> None:
    with pytest.raises(ValueError, match="got 1 and 2"):
        cohen_kappa([True], [True, False])


LABEL = {"query_id": "q1", "method": "full", "budget": 0.5, "sufficient": True}


def written(path: Path, *lines: object) -> Path:
    file = path / "labels.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    return file


def test_labels_are_read_in_order_with_their_lines(tmp_path: Path) -> None:
    path = written(
        tmp_path, LABEL, {**LABEL, "budget": None}, {**LABEL, "query_id": "q2", "sufficient": False}
    )
    assert read_labels(path) == [
        Label("q1", "full", 0.5, True, f"{path}:1"),
        Label("q1", "full", None, True, f"{path}:2"),
        Label("q2", "full", 0.5, False, f"{path}:3"),
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({**LABEL, "sufficient": "yes"}, "`sufficient` is 'yes'"),
        ({"query_id": "q2", "method": "full"}, "`sufficient` is None"),
        ({**LABEL, "budget": "half"}, "`budget` is 'half'"),
        ({**LABEL, "budget": True}, "`budget` is True"),
        ({**LABEL, "method": 3}, "`method` is missing"),
        (LABEL, "has a label in .*:1"),
        ([], "no object"),
    ],
)
def test_a_bad_label_is_named_by_file_and_line(tmp_path: Path, line: object, said: str) -> None:
    with pytest.raises(WrongInput, match=f"labels.jsonl:2: .*{said}"):
        read_labels(written(tmp_path, LABEL, line))


def test_an_empty_file_of_labels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match="holds no labels"):
        read_labels(written(tmp_path))


def test_labels_of_what_is_not_measured_are_refused() -> None:
    label = Label("q1", "full", 0.5, True, "labels.jsonl:1")
    require_labelled([label], ["q1"], [("full", 0.5)])
    with pytest.raises(WrongInput, match=r"labels.jsonl:1: no query 'q1'"):
        require_labelled([label], ["q2"], [("full", 0.5)])
    with pytest.raises(WrongInput, match=r"labels.jsonl:1: 'full' with budget 0.5 is not measured"):
        require_labelled([label], ["q1"], [("full", None)])
