from __future__ import annotations

import pytest

from tasks.refine.filters import is_placeholder, only_placeholders


@pytest.mark.parametrize(
    "line",
    [
        "TODO", "- [ ] TODO: explain the kiln", "[TODO: what this does]", "> *TBD*",
        "Lorem ipsum dolor sit amet",
        "Insert instructions below", "<!-- Add your steps here -->",
        "(Content will be added in a later release)",
        "Coming soon...", "{{description}}", "Your skill's description here", "A brief description",
        "Replace with description of the skill and when to use it.", "[Skill name]", "skill-description",
        "Instructions to be written",
    ],
)  # fmt: skip
def test_a_placeholder_is_known(line: str) -> None:
    assert is_placeholder(line)


@pytest.mark.parametrize(
    "line",
    [
        "Fires clay.", "Finds TODO comments and files them as issues.", "Add water to the clay.", "",
        "Write the description of each pot into the log.", "Render {{name}} with the template engine.",
        "Write a commit message for the diff below.", "WIP limits for Kanban boards",
        "TODO comment triage: finds stale TODOs and opens issues", "Add unit tests for the function below",
        "The right way to write a PR description.", "Lorem ipsum generator for layouts",
        "Todo: lists in SQLite",
        "TODO: write tests for the parser, then run them with pytest -q until all of them pass",
        "The todo list app stores its items in SQLite.", "---", "Descriptions are read by the router.",
    ],
)  # fmt: skip
def test_what_only_speaks_of_placeholders_is_none(line: str) -> None:
    assert not is_placeholder(line)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("# Kiln\n\n## Steps\n\n- TODO\n- [Add a step here]\n\n---\n\nTBD", True),
        ("# Kiln\n\nTODO: more\n\nFire it.", False),
        ("# Kiln", False),
        ("", False),
    ],
)
def test_a_body_is_a_template_when_nothing_else_is_in_it(body: str, expected: bool) -> None:
    assert only_placeholders(body) is expected
