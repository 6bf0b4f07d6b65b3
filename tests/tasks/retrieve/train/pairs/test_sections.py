from __future__ import annotations

import pytest

from tasks.retrieve.train.pairs.sections import section_pieces

BODY = """# Bread

- Preheating the oven takes an hour

## When to use this skill

- Shaping a wet dough
- The user asks "why is my crust so pale?"
- Anything you can't eat cold

Do not use it for:

- Making pastry

## Example requests

- "Plan a bake for Sunday morning"
| "Feed my rye starter" | every day |

## When not to use

- Frying eggs

### How do I rescue a dough that ran over?

**User:** "My loaf collapsed in the oven, what now?"

```
User: Give me a schedule for two loaves
```
"""


def test_occasions_examples_turns_and_questions_are_found_in_order_and_what_is_excluded_is_not() -> None:
    assert [(piece.origin, piece.text) for piece in section_pieces(BODY)] == [
        ("body_list", "Shaping a wet dough"),
        ("body_quote", "why is my crust so pale?"),
        ("body_quote", "Plan a bake for Sunday morning"),
        ("body_quote", "Feed my rye starter"),
        ("question_heading", "How do I rescue a dough that ran over?"),
        ("user_turn", "My loaf collapsed in the oven, what now?"),
        ("user_turn", "Give me a schedule for two loaves"),
    ]


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        ("## When to use\n\nOn weekdays:\n\n- Shaping a wet dough\n", ["Shaping a wet dough"]),
        ('## When to use\n\nShe said "my crust is too pale" today.\n', []),
        ("## Example prompts\n\n- Plan a bake\n", []),
        ("## When to use\n\n```\n- Heating a stone\n# Oven\n```\n- Shaping a dough\n", ["Shaping a dough"]),
        ("```\n# When to use\n```\n\n- Shaping a wet dough\n", []),
        ("x" * 20_000 + "\n## When to use\n\n- Shaping a wet dough\n", []),
    ],
)
def test_only_what_stands_where_requests_are_announced_is_found(body: str, texts: list[str]) -> None:
    assert [piece.text for piece in section_pieces(body)] == texts


def test_a_piece_cuts_its_line() -> None:
    for piece in section_pieces(BODY):
        line = BODY[piece.start : piece.end]
        assert piece.field == "body"
        assert piece.text in line
        assert line.count("\n") == 1
        assert line.endswith("\n")
