from __future__ import annotations

import base64
import re
import sys
import unicodedata
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

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
NONE: dict[str, bytes] = {}
EVIL = """<script>alert("dill")</script><img src=x onerror='alert(1)'> $\\frac{1}{2}$ {{ 7 * 7 }} ]]>"""


def history(reason: str = "too_short") -> pl.DataFrame:
    rows: list[dict[str, Any]] = [
        {
            "evaluated_at": NIGHT + timedelta(days=i), "version": f"v-{i}", "probe": probe, "leg": leg,
            "queries": 9, "measure": measure, "value": value + (i if value > 1 else i / 10),
            "low": None, "high": None,
        }
        for i in range(3)
        for probe, leg, measure, value in (
            ("sentence to skill", "dense", "hit@10", 0.5),
            ("sentence to skill", "served", "hit@10", 0.9),
            ("latency", "search", "p95_ms", 12.0),
            ("size", "skills", "rows", 40_000.0),
            ("size", "skills", "bytes", 7_000_000.0),
            ("dropped", reason, "documents", 3.0),
            ("dropped", "empty", "documents", 2.0),
            ("classifier mix", "local-4", "share", 0.8),
        )
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=SCHEMA)


def page(
    frame: pl.DataFrame, misses: list[dict[str, str]] | None = None, fallen: list[str] | None = None,
    drawn: dict[str, bytes] | None = NONE, at: datetime = LAST,
) -> str:  # fmt: skip
    drifts = drift_of(frame, at, compared=7)
    return render_report(frame, at, drifts, fallen or [], misses or [], drawn, compared=7)


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
    found = pictures_of(history(EVIL), LAST)
    assert found is not None
    return found


def test_the_page_shows_every_measure_with_what_it_was_before() -> None:
    text = Seen(page(history())).text
    assert "Evaluation of v-2" in text
    assert "3 evaluations in the history" in text
    assert all(word in text for word in ("sentence to skill", "latency", "dropped", "too_short", "40,002"))
    assert "No measure is worse than its thresholds allow." in text
    fell = Seen(page(history(), fallen=["dense: hit@10 is 0.1"])).text
    assert "dense: hit@10 is 0.1" in fell
    assert "No measure is worse" not in fell
    # It is about its evaluation where another is dated later.
    earlier = Seen(page(history(), at=NIGHT + timedelta(days=1))).text
    assert "Evaluation of v-1" in earlier
    assert "compared with the last evaluation of each of 2 other versions" in earlier


def test_the_page_loads_nothing_and_runs_nothing(drawn: dict[str, bytes]) -> None:
    html = render_report(
        history(EVIL), LAST, [], [EVIL], [miss(EVIL)], {**drawn, EVIL: b"<svg/>"}, compared=7
    )
    seen = Seen(html)
    assert Seen(page(history(), [miss(EVIL)])).text.count(EVIL) == 3  # as it was written
    assert {tag for tag, _ in seen.tags} & {
        "script", "link", "iframe", "object", "embed", "svg", "base",
    } == set()  # fmt: skip
    assert all(a["src"] is not None and a["src"].startswith("data:") for t, a in seen.tags if t == "img")
    assert not [name for _, attrs in seen.tags for name in attrs if name.startswith("on")]
    assert "default-src 'none'" in html


@settings(max_examples=25)
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
    assert pictures_of(history(EVIL), LAST) == drawn  # the same of the same history
    assert len(shown) == 5
    for svg in shown:
        found = Seen(svg.decode())
        assert found.tags[0][0] == "svg"
        assert "script" not in {tag for tag, _ in found.tags}
        assert not [name for _, attrs in found.tags for name in attrs if name.startswith("on")]


def test_without_matplotlib_the_page_has_no_pictures_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert pictures_of(history(), LAST) is None
    assert "matplotlib is not installed" in page(history(), drawn=None)


def drawn_texts(svg: bytes) -> list[str]:
    return ["".join(e.itertext()) for e in Xml.fromstring(svg).iter() if e.tag.endswith("}text")]  # noqa: S314


def test_the_first_evaluation_has_tables_and_no_chart_of_one_point() -> None:
    found = pictures_of(history(), NIGHT)  # which were to be drawn later are left out
    first = history().filter(pl.col("evaluated_at") == NIGHT)
    text = Seen(page(first, drawn=found, at=NIGHT)).text
    assert found is not None
    assert list(found) == ["dropped documents by reason"]
    assert "1 evaluation in the history" in text
    assert "nothing to compare this one with yet" in text
    assert "lines over time are drawn from the second evaluation on" in text
    assert "matplotlib" not in text


def test_control_characters_reach_neither_page_nor_pictures() -> None:
    evil = "\x1b[2J\u202eexe\rok\x07\x9b"
    frame = history(evil)
    html = page(frame, [miss(evil)], [evil], pictures_of(frame, LAST))
    assert evil not in html
    assert r"\x1b[2J\u202eexe\rok\x07\x9b" in html
    texts = [t for svg in (pictures_of(frame, LAST) or {}).values() for t in drawn_texts(svg)]
    assert any(r"\u202eexe" in text for text in texts)
    shown = html + "".join(texts)
    assert not [c for c in shown if unicodedata.category(c) in {"Cc", "Cf"} and c not in "\n\t"]


def test_a_change_is_coloured_by_whether_it_is_for_the_better() -> None:
    slow = (pl.col("probe") == "latency") & (pl.col("evaluated_at") == LAST)
    html = page(history().with_columns(value=pl.when(slow).then(50.0).otherwise("value")))
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
