from __future__ import annotations

import base64
import re
import sys
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.root import Root
from tasks.evaluate.health.drift import drift_of
from tasks.evaluate.health.history import SCHEMA
from tasks.evaluate.health.report import pictures_of, render_report, write_report

NIGHT = datetime(2025, 3, 1, 4, 0, tzinfo=UTC)
LAST = NIGHT + timedelta(days=2)
EVIL = """<script>alert("dill")</script><img src=x onerror='alert(1)'> $\\frac{1}{2}$ {{ 7 * 7 }} ]]>"""


def history(reason: str = "too_short") -> pl.DataFrame:
    rows: list[dict[str, Any]] = [
        {
            "evaluated_at": NIGHT + timedelta(days=i), "version": f"v-{i}", "probe": probe, "leg": leg,
            "queries": 9, "measure": measure, "value": value + i, "low": None, "high": None,
        }
        for i in range(3)
        for probe, leg, measure, value in (
            ("sentence to skill", "dense", "hit@10", 0.5),
            ("sentence to skill", "served", "hit@10", 0.9),
            ("latency", "search", "p95_ms", 12.0),
            ("size", "skills", "rows", 40_000.0),
            ("size", "skills", "bytes", 7_000_000.0),
            ("dropped", reason, "documents", 3.0),
            ("classifier mix", "local-4", "share", 1.0),
        )
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=SCHEMA)


def page(
    frame: pl.DataFrame, misses: list[dict[str, str]] | None = None, fallen: list[str] | None = None
) -> str:
    drifts = drift_of(frame, LAST, compared=7)
    return render_report(frame, LAST, drifts, fallen or [], misses or [], {}, compared=7)


class Seen(HTMLParser):
    """Notes what a browser would find: tags with their attributes, and the text between them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def miss(text: str) -> dict[str, str]:
    return {"sentence": text, "doc_id": text, "first": text}


@pytest.fixture(scope="module")
def drawn() -> dict[str, bytes]:
    return pictures_of(history(EVIL), LAST)


def test_the_page_shows_every_measure_with_what_it_was_before() -> None:
    text = Seen(page(history())).text

    assert "Evaluation of v-2" in text
    assert "3 evaluations in the history" in text
    assert all(word in text for word in ("sentence to skill", "latency", "dropped", "too_short", "40,002"))
    assert "No measure is below its thresholds." in text


def test_the_page_is_about_its_evaluation_where_another_is_dated_later() -> None:
    frame, earlier = history(), NIGHT + timedelta(days=1)
    html = render_report(frame, earlier, drift_of(frame, earlier, compared=7), [], [], {}, compared=7)

    assert "Evaluation of v-1" in html
    assert "2 of them are what this one is compared with" in html
    assert pictures_of(frame, earlier) == pictures_of(frame.filter(pl.col("evaluated_at") < LAST), LAST)


def test_the_page_says_what_is_below_its_thresholds() -> None:
    text = Seen(page(history(), fallen=["dense: hit@10 is 0.1"])).text

    assert "dense: hit@10 is 0.1" in text
    assert "No measure is below" not in text


def test_the_page_loads_nothing_and_runs_nothing(drawn: dict[str, bytes]) -> None:
    html = render_report(
        history(EVIL), LAST, [], [EVIL], [miss(EVIL)], {**drawn, EVIL: b"<svg/>"}, compared=7
    )
    seen = Seen(html)

    assert {tag for tag, _ in seen.tags} & {
        "script",
        "link",
        "iframe",
        "object",
        "embed",
        "svg",
        "base",
    } == set()
    assert all(a["src"] is not None and a["src"].startswith("data:") for t, a in seen.tags if t == "img")
    assert not [name for _, attrs in seen.tags for name in attrs if name.startswith("on")]
    assert "default-src 'none'" in html


def test_a_skills_text_stands_in_the_page_as_it_was_written() -> None:
    text = Seen(page(history(), [miss(EVIL)])).text

    assert text.count(EVIL) == 3


@settings(max_examples=25, deadline=None)
@given(st.text())
def test_no_text_adds_a_tag(text: str) -> None:
    plain = page(history(), [miss("x")])
    other = page(history(), [miss(text)], [text])

    added = [t for t, _ in Seen(other).tags]
    assert sorted({*added} - {t for t, _ in Seen(plain).tags}) == ["li", "strong", "ul"]
    assert len(added) == len(Seen(plain).tags) + 3


def test_pictures_are_drawings_without_scripts_whatever_a_reason_is_called(drawn: dict[str, bytes]) -> None:
    html = render_report(history(EVIL), LAST, [], [], [], drawn, compared=7)

    shown = [
        base64.b64decode((a["src"] or "").partition("base64,")[2]) for t, a in Seen(html).tags if t == "img"
    ]
    assert shown == list(drawn.values())
    assert len(shown) == 6
    for svg in shown:
        found = Seen(svg.decode())
        assert found.tags[0][0] == "svg"
        assert "script" not in {tag for tag, _ in found.tags}
        assert not [name for _, attrs in found.tags for name in attrs if name.startswith("on")]


def test_the_same_history_makes_the_same_page_and_pictures(drawn: dict[str, bytes]) -> None:
    assert page(history()) == page(history())
    assert pictures_of(history(EVIL), LAST) == drawn


def test_without_matplotlib_the_page_has_no_pictures_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    assert pictures_of(history(), LAST) == {}
    assert "matplotlib is not installed" in page(history())


def test_a_change_is_coloured_by_whether_it_is_for_the_better() -> None:
    html = page(history())

    row = re.search(r"p95_ms.*?</tr>", html, re.DOTALL)
    assert row is not None
    assert '<td class="worse">rose</td>' in row[0]
    size = re.search(r"<td>bytes</td>.*?</tr>", html, re.DOTALL)
    assert size is not None
    assert '<td class="">steady</td>' in size[0]


def test_the_report_lies_below_the_root(tmp_path: Path) -> None:
    place = write_report(Root(tmp_path), "<p>\ud83d</p>")

    assert (tmp_path / place).read_bytes() == b"<p>?</p>"
    assert place == "reports/evaluation.html"
