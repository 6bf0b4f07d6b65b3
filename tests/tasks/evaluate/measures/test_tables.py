from __future__ import annotations

from typing import Any

import pytest

from tasks.evaluate.measures.tables import Table, cell, columns, markdown, means, with_intervals

ROW: dict[str, Any] = {
    "method": "mmr", "hit@1": 0.5, "none": None, "budget": 0.0, "marked": 2, "loss": -0.25, "whole": 1.0,
    "ci95": {"hit@1": [0.25, 0.75]}, "paper": {"nodes": 4},
}  # fmt: skip


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("{method}", "mmr"),
        ("{hit@1:.3f}", "0.500"),
        ("{hit@1:.2p}", "50.00"),
        ("{hit@1:.1%}", "50.0%"),
        ("{hit@1:.3z}", ".500"),
        ("{whole:.3z}", "1"),
        ("{loss:+.2z}", "-.25"),
        ("{hit@1:+.2z}", "+.50"),
        ("{paper[nodes]:.1f}", "4.0"),
        ("[{ci95[hit@1][0]:.2f}, {ci95[hit@1][1]:.2f}]", "[0.25, 0.75]"),
        ("{method}{marked:? †}", "mmr †"),
        ("{method}{budget:? †}", "mmr"),
        ("{none:g|own limit}", "own limit"),
        ("{method}{none:g|}", "mmr"),
        ("{none:.3f}", ""),
        ("{method} {absent}", ""),
        ("{none[deep]:.2f}", ""),
    ],
)
def test_a_cell_is_a_format_of_a_rows_fields_and_empty_where_one_is_missing(form: str, said: str) -> None:
    assert cell(form, ROW) == said


def test_blocks_are_paragraphs_headings_and_tables_in_markdown() -> None:
    table = Table(
        "Methods", columns({"Method": "{method}"}, means(["hit@1"]), with_intervals({"hit@1": "Hit"})), [ROW]
    )
    assert markdown(["# Run", "Said first.", table, Table("", columns("method"), [])]) == (
        "# Run\n\nSaid first.\n\n## Methods\n\n"
        "| Method | hit@1 | Hit |\n| --- | --- | --- |\n| mmr | 0.500 | 0.500 [0.25, 0.75] |\n\n"
        "| method |\n| --- |\n"
    )
