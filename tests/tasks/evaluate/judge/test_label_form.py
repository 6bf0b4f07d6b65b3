from __future__ import annotations

import re
from pathlib import Path

import pytest

from storage.errors import WrongInput
from tasks.evaluate.judge.agreement import Label
from tasks.evaluate.judge.label_form import Pair, form_of, read_form, require_same_contexts

# What a context holds must not be taken for a line of the form.
NASTY = "Oil the axle.\n## Pair 1 of 2 [000000000000-000000000000]\nSufficient: yes\n\x1b[31mred\x1b[0m"
PAIRS = [Pair("q1", "chunks", None, "How?", "Turn the crank."), Pair("q2", "mmr", 0.5, "Why?\nNow.", NASTY)]
SETTINGS = [("chunks", None), ("mmr", 0.5)]


def answered(form: str, *answers: str) -> str:
    said = iter(answers)
    return re.sub(r"^Sufficient: $", lambda _: f"Sufficient: {next(said)}", form, flags=re.MULTILINE)


def read(path: Path, text: str) -> list[Label]:
    path.write_text(text, "utf-8")
    return read_form(path, ["q1", "q2"], SETTINGS)


def test_what_a_person_writes_is_read_back(tmp_path: Path) -> None:
    form = form_of(PAIRS, "--method chunks --method mmr")
    found = read(tmp_path / "form.md", answered(form, "yes", "No"))
    assert [(label.key, label.sufficient) for label in found] == [
        (("q1", "chunks", None), True),
        (("q2", "mmr", 0.5), False),
    ]
    lines = (tmp_path / "form.md").read_text("utf-8").split("\n")
    assert [int(label.where.rpartition(":")[2]) for label in found] == [
        n for n, line in enumerate(lines, start=1) if line.startswith("Sufficient: ")
    ]
    require_same_contexts(found, {pair_key(pair): pair.context for pair in PAIRS})


def pair_key(pair: Pair) -> tuple[str, str, float | None]:
    return pair.query_id, pair.method, pair.budget


def test_the_form_shows_contexts_but_neither_methods_nor_control_characters() -> None:
    form = form_of(PAIRS, "")
    assert "> Turn the crank." in form
    assert "> Why?\n> Now." in form
    assert "chunks" not in form
    assert "\x1b" not in form
    assert "every step, command, parameter" in form  # the question that the model is asked


def test_pairs_left_blank_are_passed_over(tmp_path: Path) -> None:
    form = form_of(PAIRS, "")
    assert len(read(tmp_path / "form.md", answered(form, "", "y"))) == 1
    with pytest.raises(WrongInput, match="no pair has an answer"):
        read(tmp_path / "form.md", form)


def test_answers_that_cannot_be_used_are_named_by_line(tmp_path: Path) -> None:
    form = form_of(PAIRS, "")
    with pytest.raises(WrongInput, match=r"form.md:\d+: 'perhaps' is no answer"):
        read(tmp_path / "form.md", answered(form, "perhaps", ""))
    with pytest.raises(WrongInput, match=r"has an answer in .*form\.md:"):
        read(tmp_path / "form.md", answered(form, "yes", "no") * 2)
    with pytest.raises(WrongInput, match="not measured here; give the options"):
        read_form(tmp_path / "form.md", ["q1", "q2"], [("full", None)])
    with pytest.raises(WrongInput, match="cannot be read"):
        read_form(tmp_path / "nowhere.md", [], [])


def test_a_label_of_a_context_that_has_changed_is_refused(tmp_path: Path) -> None:
    labels = read(tmp_path / "form.md", answered(form_of(PAIRS, ""), "yes", "no"))
    now = {pair_key(pair): pair.context for pair in PAIRS} | {("q2", "mmr", 0.5): "Another."}
    with pytest.raises(WrongInput, match="another one than the form shows"):
        require_same_contexts(labels, now)
    # JSON lines do not say what was read.
    require_same_contexts([Label("q2", "mmr", 0.5, sufficient=True)], now)
