from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.models.llm.errors import Rejected
from tasks.models.llm.parse_json import find_json

PROSE = st.text(st.characters(exclude_characters="{}[]", exclude_categories=["Cs"]), max_size=60)
LABELS = st.dictionaries(st.text(min_size=1), st.sampled_from(["step", "param"]), min_size=1)


@given(PROSE, LABELS, PROSE, st.booleans(), st.sampled_from([None, 2]))
def test_the_object_is_found_whatever_prose_stands_around_it(
    before: str, labels: dict[str, str], after: str, fenced: bool, indent: int | None
) -> None:
    written = json.dumps(labels, indent=indent)
    shown = f"```json\n{written}\n```" if fenced else written
    assert find_json(f"{before}\n{shown}\n{after}") == labels


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('<think>maybe {"1": "step"}</think>{"1": "param"}', {"1": "param"}),
        ('{"1": "step"} or, in short, {"1": "step"}', {"1": "step"}),
        ('[note] {} {"1": {"2": []}}', {"1": {"2": []}}),
        ('["a", {"b": 1}]', ["a", {"b": 1}]),
        ('a { brace and {"1": "step"}', {"1": "step"}),
    ],
)
def test_what_is_no_answer_is_passed_over(text: str, value: Any) -> None:  # noqa: ANN401
    assert find_json(text) == value


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no complete JSON"),
        ("All of them are steps.", "no complete JSON"),
        ('{"1": "step", "2": "par', "no complete JSON"),
        ('{"1": "step"} no wait {"1": "param"}', "2 JSON values"),
        ('{"1": "step", "1": "param"}', "'1' occurs more than once"),
        ('{"1": NaN}', "NaN"),
    ],
)
def test_what_cannot_be_read_one_way_alone_is_rejected(text: str, complaint: str) -> None:
    with pytest.raises(Rejected, match=complaint):
        find_json(text)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 50_000, "<think>" * 30_000, "{[" * 90_000])
def test_nonsense_of_any_length_ends(text: str) -> None:
    with pytest.raises(Rejected):
        find_json(text)
