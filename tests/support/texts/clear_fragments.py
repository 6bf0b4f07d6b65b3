"""Fragments whose type is beyond doubt, for the tests of whatever types them."""

from __future__ import annotations

from tasks.parse.classify.protocol import FragmentInContext


def fragment(
    text: str, *, heading: str = "", block: str = "prose", previous: str | None = None
) -> FragmentInContext:
    path = ("Beekeeping", heading) if heading else ()
    return FragmentInContext("f", path, block, previous, text, None)


CLEAR = [
    ("step", fragment("Open the hive and lift the lid.", heading="Step 2: Inspect")),
    ("step", fragment("[ ] Every frame is back", heading="Checklist", block="list_item")),
    ("example", fragment("```python\nhive = Hive()\nhive.weigh()\n```", block="code", heading="Usage")),
    (
        "param",
        fragment("| Flag | Default |\n|---|---|\n| `--frames` | 10 |", block="table",
                 heading="Options"),
    ),
    ("param", fragment("`--frames` (int): how many", block="list_item", heading="Parameters")),
    ("precondition", fragment("A veil and gloves", block="list_item", heading="Prerequisites")),
    ("precondition", fragment("The user asks for advice", block="list_item", heading="When to use")),
    ("precondition", fragment("Never open the hive in rain.", heading="Constraints")),
    (
        "error_handling",
        fragment("**Cause**: the count fails", block="list_item", heading="Troubleshooting"),
    ),
    ("concept", fragment("A colony is a family of bees that lives around one queen.", heading="Overview")),
    ("concept", fragment("[Queen rearing](queens.md)", block="list_item", heading="References")),
]  # fmt: skip
