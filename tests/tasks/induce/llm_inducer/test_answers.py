"""Answers about windows: whatever their order, each goes to the window that it names, or to none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.answers import Answers
from storage.root import Root
from tasks.induce.llm_inducer.answers import WindowAnswers, aligned
from tasks.induce.llm_inducer.windows import ShownWindow
from tasks.models.llm.errors import Rejected
from tasks.models.llm.question import Sampling
from tests.support.llm.induce_llm import skills
from tests.support.llm.llm_asking import book_of


def row(number: int, **fields: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"window_idx": number, "reusable": True, "func_name": f"f{number}", **fields}


@given(st.permutations(range(8)), st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)))
def test_entries_in_any_order_go_to_their_windows(
    order: list[int], missing: set[int], twice: set[int]
) -> None:
    rows = [row(n) for n in order if n not in missing] + [row(n) for n in sorted(twice - missing)]
    if not rows:
        return
    found = aligned(8)(skills(*rows))

    for number, answer in enumerate(found):
        if number in missing | twice:
            assert answer == {
                "error": f"there were {0 if number in missing else 2} entries with its window_idx "
                "instead of one"
            }
        else:
            assert answer == {"reusable": True, "func_name": f"f{number}"}


def test_a_bare_list_and_a_single_entry_are_read_too() -> None:
    assert aligned(2)(json.dumps([row(1), row(0)]))[0]["func_name"] == "f0"
    assert aligned(1)(f"Here it is:\n```json\n{json.dumps(row(0))}\n```")[0]["func_name"] == "f0"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("I cannot help with that.", "no complete JSON"),
        ('{"skills": "none"}', "the answer is no object"),
        ('{"skills": ["search"]}', "the answer is no object"),
        ('{"skills": [{"reusable": true}]}', "no window_idx"),
        ('{"skills": [{"window_idx": "0"}]}', "no window_idx"),
        ('{"skills": [{"window_idx": true}]}', "no window_idx"),
        (skills(row(1), row(2)), "there is no window_idx 2"),  # counted from 1: none goes to its window
        (skills(row(-1)), "there is no window_idx -1"),
        (skills(row(0)) + skills(row(1)), "2 JSON values"),
    ],
)
def test_an_answer_that_names_other_windows_is_rejected_as_a_whole(text: str, reason: str) -> None:
    with pytest.raises(Rejected, match=reason):
        aligned(2)(text)


def test_what_is_said_of_a_window_is_kept_whatever_stands_beside_it(tmp_path: Path) -> None:
    window, other = ShownWindow(0, {"does": "click"}), ShownWindow(0, {"does": "fill"})
    with Answers(Root(tmp_path)) as answers:
        book = book_of("http://127.0.0.1:9/v1", answers)
        kept = WindowAnswers(book, Sampling())
        kept.keep(window, {"error": "no \ud800"})

        assert kept.find(ShownWindow(5, {"does": "click"})) == {"error": "no \ud800"}
        assert kept.find(other) is None
        assert WindowAnswers(book, Sampling(temperature=1)).find(window) is None
        assert book.ledger.counts["cached"] == 1
