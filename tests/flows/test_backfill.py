"""A past day is served when asked for, passes the same gate, and the next night goes on to today."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from storage.errors import GateRefused
from storage.lance.served import require_served
from storage.root import Root
from storage.state import read_runs
from tasks.retrieve.served_index import ServedIndex
from tests.support.roots.skill_root import MINILM

TODAY = f"{datetime.now(UTC):%Y-%m-%d}"
BEFORE = f"{datetime.now(UTC) - timedelta(days=3):%Y-%m-%d}"
THEN, NOW = date.fromisoformat(BEFORE), date.fromisoformat(TODAY)


@pytest.fixture
def two_days(no_server: None, root: str, skills: Path) -> dict[str, Any]:
    """Crawl two skills, call that three days ago, crawl one changed and one more; return the last record."""
    from flows.nightly import nightly

    nightly(root, [f"dir:{skills}"])
    for kind in ("documents", "listings"):
        day = Path(root) / "raw" / kind / f"date={TODAY}"
        day.rename(day.with_name(f"date={BEFORE}"))
    tea = skills / "tea" / "SKILL.md"
    tea.write_text(tea.read_text("utf-8").replace("Warm the pot", "Chill the pot"), "utf-8")
    (skills / "soup").mkdir()
    (skills / "soup" / "SKILL.md").write_text("# Soup\n\nSimmer the bones for six hours.\n", "utf-8")
    found: dict[str, Any] = nightly(root)
    return found


def answers(root: str) -> tuple[set[str], str]:
    index = ServedIndex(Root(root), encoder=MINILM)
    names = {found["name"] for found in index.search("tea or soup")["results"]}
    asked = "local/shelf/tea", "what to do with the pot"
    return names, str(index.page(*asked, budget=1, method="facets")["context"])


@contextmanager
def served_stays(root: str) -> Iterator[None]:
    before = require_served(Root(root)), answers(root)
    yield
    assert (require_served(Root(root)), answers(root)) == before


def test_a_day_is_rebuilt_beside_what_is_served_and_served_when_asked(
    two_days: dict[str, Any], root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.backfill import backfill
    from flows.nightly import nightly

    with served_stays(root):
        rows = backfill(date(2020, 1, 1), NOW, root, stages=["refine"])
        assert [(r["day"], r["documents"], r["nodes"]) for r in rows] == [(BEFORE, 2, 0), (TODAY, 3, 0)]
        rows = backfill(THEN, NOW, root)
        assert [(r["documents"], r["refined now"], r["published"]) for r in rows] == [
            (2, 0, None), (3, 0, None)
        ]  # fmt: skip
        assert rows[-1]["nodes"] == two_days["nodes"]
        foreseen = read_runs(Root(root), 1)[0]["foreseen"]["days"]
        assert [(day["day"], day["documents to make"]) for day in foreseen] == [(BEFORE, 0), (TODAY, 0)]
        assert 0 < foreseen[0]["seconds"] < foreseen[0]["range"][1]

    with monkeypatch.context() as patched, served_stays(root):
        patched.setenv("SKILLERY_GATE_FEW", "0")
        with pytest.raises(GateRefused, match=r"skills\.shrink is 0\.333"):
            backfill(THEN, THEN, root, publish=True)

    (day,) = backfill(THEN, THEN, root, publish=True)
    assert day["published"] == require_served(Root(root)).version != two_days["served"]
    names, context = answers(root)
    assert names == {"tea", "bicycle"}
    assert "Warm the pot" in context
    with served_stays(root):
        assert backfill(THEN, THEN, root, publish=True)[0]["published"] is None

    record = nightly(root)
    assert (record["state"], record["published"]) == ("complete", True)
    names, context = answers(root)
    assert names == {"tea", "bicycle", "soup"}
    assert "Chill the pot" in context
