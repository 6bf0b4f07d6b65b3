from __future__ import annotations

import pytest

from tasks.refine.frontmatter.spec_findings import about_tokens, on_body, on_description


@pytest.mark.parametrize(
    ("description", "codes"),
    [
        ("Fires clay in a kiln.", []),
        ("This skill fires clay.", ["description.filler"]),
        ("A skill for firing clay.", ["description.filler"]),
        ("Guide to glazes.", ["description.filler"]),
        ("This kiln is hot.", []),
        ("Clay-Firing", ["description.name-only"]),
        ("Fires <b>clay</b>.", ["description.markup"]),
        ("Fires clay at < 900 and > 800 degrees.", []),
    ],
)
def test_a_description_that_helps_nobody_choose_is_found(description: str, codes: list[str]) -> None:
    assert [f.code for f in on_description(description, "clay firing")] == codes


@pytest.mark.parametrize(
    ("body", "codes"),
    [
        ("x\n" * 499, []),
        ("x\n" * 500, ["body.long"]),
        ("clay " * 4_000, []),
        ("clay " * 4_004, ["body.many-tokens"]),
        ("粘土" * 3_400, ["body.many-tokens"]),
        ("```\nopen", ["body.unbalanced-fence"]),
    ],
)
def test_a_body_beyond_the_advice_is_found(body: str, codes: list[str]) -> None:
    assert [f.code for f in on_body(body)] == codes


def test_tokens_are_estimated_by_script() -> None:
    assert about_tokens("clay" * 10) == 10
    assert about_tokens("粘土" * 10) == 15
