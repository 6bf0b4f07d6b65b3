"""The picture of a stream."""

from __future__ import annotations

from pathlib import Path

import pytest
from tasks.evaluate.stream.picture import draw_stream

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
