from __future__ import annotations

import pytest

from tasks.retrieve.paging.render import compact


@pytest.mark.parametrize(
    ("text", "shorter"),
    [
        ("- **Heat**: keep **low**", "- Heat: keep low"),
        ("call `f(**options)` with **care**", "call `f(**options)` with care"),
        ("2**3 and **/*.txt stay", "2**3 and **/*.txt stay"),
        ("Stir.\n\n---", "Stir."),
        ("Stir.\n\n* * *\nServe.", "Stir.\n\nServe."),
        ("well-known -- dashes", "well-known -- dashes"),
    ],
)
def test_marks_that_carry_nothing_go_and_all_else_stays(text: str, shorter: str) -> None:
    assert compact(text, "prose") == shorter


def test_the_rule_of_a_table_is_as_short_as_markdown_lets_it_be() -> None:
    table = "| a | **b** |\n|:-----|------:|\n| --- | 2 |"

    assert compact(table, "table") == "a | b\n-|-\n--- | 2"


@pytest.mark.parametrize("block", ["code", "html"])
def test_code_and_html_stay_as_they_are(block: str) -> None:
    assert compact("x = a ** b\n---\n**c**", block) == "x = a ** b\n---\n**c**"


@pytest.mark.parametrize(
    ("row", "shorter"),
    [
        ("| leek | 7 |", "leek | 7"),
        ("| leek | |", "| leek | |"),
        ("| | 7 |", "| | 7 |"),
        ("| leek |", "| leek |"),
        ("| a | b \\|", "| a | b \\|"),
        ("leek | 7", "leek | 7"),
    ],
)
def test_a_row_needs_marks_between_its_cells_only(row: str, shorter: str) -> None:
    assert compact(row, "row") == shorter


@pytest.mark.parametrize(
    ("line", "shorter"),
    [
        ("# --------- oven ---------", "# --- oven ---"),
        ("  // ========", "  // ==="),
        ("----------", "---"),
        ("-----BEGIN KEY-----", "-----BEGIN KEY-----"),
        ('print("==========")', 'print("==========")'),
        ("##### fifth", "##### fifth"),
        ("##########", "###"),
    ],
)
def test_rulers_in_comments_of_code_are_short(line: str, shorter: str) -> None:
    assert compact(line, "code") == shorter
