from __future__ import annotations

import pytest

from tasks.refine.text.canonical import fenced, has_open_fence


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", False),
        ("```\na\n```", False),
        ("```\na", True),
        ("~~~\n```\n~~~", False),
        ("````\n```\n````", False),
        ("```\na\n````", False),
        ("````\na\n```", True),
        ("```py\n```sh\n```", False),
        ("a ``` b", False),
        ("``` a ` b", False),
        ("- ```\n  a\n  ```", False),
        ("> ```\n> a\n> ```", False),
        ("1. ```\n   a", True),
    ],
)
def test_an_open_fence_is_told_from_a_closed_one(text: str, expected: bool) -> None:
    assert has_open_fence(text) is expected


def test_only_lines_between_the_marks_are_inside() -> None:
    inside, is_open = fenced(["a", "```", "b", "", "```", "c"])
    assert inside == [False, False, True, True, False, False]
    assert not is_open
