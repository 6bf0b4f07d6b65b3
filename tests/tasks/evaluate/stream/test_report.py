"""The report on a stream: its tables as Markdown, and its picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasks.evaluate.stream.decisions import MEASURES, Decision, mean
from tasks.evaluate.stream.report import NOTE, draw_stream, stream_markdown
from tasks.evaluate.stream.summary import summarise
from tasks.evaluate.stream.variants import variants
from tasks.induce.skills.actions import GRANULARITIES


def found(*names: str) -> dict[str, Any]:
    """Return what the command returns: the n-th method is usable at n of 10 steps of each of two domains."""
    runs = {
        name: [
            Decision(f"r{t}", f"t{t % 5}", domain, t, 2 * (t < n), t < n, True, t >= n)
            for domain in ("greenhouse", "harbour") for t in range(10)
        ]
        for n, name in enumerate(names)
    }  # fmt: skip
    granularity = [
        {"granularity": each, "method": "default", **{m: mean(runs[names[1]], m) for m in MEASURES}}
        for each in reversed(GRANULARITIES)
    ]
    return {
        "trajectories": {"read": 7, "successful": 6, "repeated": 0, "unread": {}}, "warm": None, "steps": 20,
        "methods": summarise(runs, names[0]), "granularity": granularity,
    }  # fmt: skip


def tables(text: str) -> dict[str, list[list[str]]]:
    """Return the rows of the table under each heading, without its head."""
    parts = [part.splitlines() for part in text.split("\n## ")[1:]]
    return {
        lines[0]: [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[4:] if line]
        for lines in parts
    }


def test_each_method_has_a_row_with_its_measures_and_what_it_is_compared_with() -> None:
    rows = tables(stream_markdown(found("default", "sgdr")))["Methods"]

    assert [row[:5] for row in rows] == [
        ["default", "0.000", "0.000", "1.000", "1.000"], ["sgdr", "0.100", "0.100", "0.900", "1.000"]
    ]  # fmt: skip
    assert rows[0][6:] == ["", ""]
    assert rows[1][6] == "-0.100"
    low, _, high = rows[1][5].partition(" to ")
    assert 0 <= float(low) <= 0.1 <= float(high)


def test_a_library_that_was_not_empty_is_named_where_its_figures_are() -> None:
    cold = found("default", "sgdr")
    warm = cold | {"warm": {"root": "./shop", "taught": 12, "left_out": 3}}

    said = "Before the first, 12 trajectories of ./shop were learned; 3 of the stream are in it and were not."
    assert said in stream_markdown(warm)
    assert "were learned" not in stream_markdown(cold)


def test_domains_are_columns() -> None:
    text = stream_markdown(found("default", "sgdr"))

    assert "| Method | greenhouse | harbour |" in text
    assert tables(text)["By domain: usable@5"][1] == ["sgdr", "0.100", "0.100"]


def test_the_variants_stand_in_the_layout_of_the_papers_tables() -> None:
    held = tables(stream_markdown(found("default", *variants())))

    assert [row[0] for row in held["Table 2: task and state"]] == ["0", "0.3", "0.5", "0.7", "1"]
    assert [row[1] for row in held["Table 2: task and state"]] == [
        "0.100",
        "0.200",
        "0.300",
        "0.400",
        "0.500",
    ]
    assert [row[0] for row in held["Table 3: MMR"]] == ["no MMR", "0.5", "0.7", "0.9"]
    said = "34.6 / 35.9 / 32.3"
    assert [row[3] for row in held["Table 2: task and state"]] == [
        *["not stated"] * 2,
        said,
        *["not stated"] * 2,
    ]
    assert [row[3] for row in held["Table 3: MMR"]] == ["not stated", "not stated", said, "not stated"]


def test_granularities_come_in_the_order_of_the_paper() -> None:
    held = tables(stream_markdown(found("default", "sgdr")))

    assert [row[:2] for row in held["Table 4: granularity"]] == [[each, "default"] for each in GRANULARITIES]


def test_variants_that_were_not_measured_have_no_row_and_the_note_says_what_the_figures_are() -> None:
    text = stream_markdown(found("default", "state"))

    assert [row[0] for row in tables(text)["Table 2: task and state"]] == ["0"]
    assert tables(text)["Table 3: MMR"] == []
    assert NOTE in text
    assert "7 trajectories, 20 steps" in text


ROWS = [
    {"method": f"method {n}", "along": [(1, 0.0), (25, 0.1 * n), (50, 0.05 * n)]} for n in range(9)
]  # fmt: skip


@pytest.mark.parametrize(("suffix", "head"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_a_picture_is_drawn_into_a_file_of_its_kind(tmp_path: Path, suffix: str, head: bytes) -> None:
    path = tmp_path / f"stream.{suffix}"

    draw_stream(ROWS, path)

    assert path.read_bytes().startswith(head)


def test_a_stream_of_one_step_has_a_picture_too(tmp_path: Path) -> None:
    draw_stream([{"method": "default", "along": [(1, 1.0)]}], tmp_path / "stream.png")

    assert (tmp_path / "stream.png").stat().st_size > 1_000


def test_each_method_is_named_in_the_legend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")  # words stay words

    draw_stream(ROWS, tmp_path / "stream.svg")

    drawn = (tmp_path / "stream.svg").read_text("utf-8")
    assert [row["method"] for row in ROWS if str(row["method"]) not in drawn] == []
    assert "usable@5" in drawn
