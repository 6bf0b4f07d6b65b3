from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.cli.printing.run import print_run
from flows.commands.operate import root_status
from flows.server.temporary import as_functions
from storage.errors import GateRefused, NothingReadable
from storage.lance.served import require_served
from storage.root import Root
from storage.state import accept_risks, parsed_table, read_runs
from tasks.crawl.source_list import specs_to_read
from tasks.retrieve.served_index import ServedIndex
from tasks.retrieve.suggest.stored import ServedSkills
from tests.support.command import Ask
from tests.support.induce.learning import RUNS, written
from tests.support.induce.runs import mooring
from tests.support.llm.llm_asking import llm_set_up
from tests.support.llm.scripted import teaches
from tests.support.prefect_page import answer_of, table
from tests.support.roots.skill_root import MINILM
from tests.support.roots.storied import PIPED, RULE


def _nightly(root: str, *sources: str) -> dict[str, Any]:
    from flows.nightly import nightly

    return nightly(root, list(sources) or None)


def test_a_night_does_all_a_second_nothing_and_a_third_only_what_changed(
    prefect_server: str, root: str, skills: Path
) -> None:
    first = record = _nightly(root, f"dir:{skills}")
    assert (record["state"], record["published"], record["documents"]) == ("complete", True, 2)
    assert record["nodes"] == record["vectors_new"] - 2 > 5
    assert all(check["passed"] for check in record["checks"])
    assert record["served"] == require_served(Root(root)).version

    # Every flow leaves its table under a stable key.
    assert table(prefect_server, "skillery-crawl")[0]["new"] == 2
    assert {"what": "documents", "count": 2} in table(prefect_server, "skillery-refine")
    licences = table(prefect_server, "skillery-licences")
    assert {"class": "allow", "licence": "unknown", "documents": 2} in licences
    types = {row["node_type"] for row in table(prefect_server, "skillery-node-types")}
    assert types >= {"step", "concept"}
    assert all(row["passed"] for row in table(prefect_server, "skillery-checks"))
    skill_table, node_table = table(prefect_server, "skillery-index")
    assert (skill_table["table"], skill_table["rows"], node_table["table"]) == ("skills", 2, "nodes")
    assert skill_table["database_uri"] == (Path(root) / "lance").as_uri()

    raw = Root(root).files("raw", ".parquet")
    second = _nightly(root)
    assert second["specs"] == [f"dir:{skills}"]
    assert (second["state"], second["published"], second["vectors_new"]) == ("complete", False, 0)
    assert second["served"] == first["served"]
    assert second["sources"][0]["unchanged"] == 2
    assert Root(root).files("raw", ".parquet") == raw
    assert {"what": "unchanged, skipped", "count": 2} in table(prefect_server, "skillery-parse")

    path = skills / "tea" / "SKILL.md"
    path.write_text(path.read_text("utf-8") + "\nRinse the pot afterwards.\n", "utf-8")
    with as_functions():  # as a command has it without a server
        after = _nightly(root)
    assert after["published"]
    assert after["nodes"] == first["nodes"] + 1
    assert 0 < after["vectors_new"] < first["vectors_new"]
    for record in (first, after):
        assert 0.5 < record["foreseen"]["bytes_written"] / record["bytes_written"] < 2


def _served_risks(root: str, doc_id: str) -> list[str]:
    rows = require_served(Root(root)).skills_table(Root(root)).frame(["doc_id", "risks"])
    return list(rows.filter(doc_id=doc_id)["risks"][0])


def _risks_told(api: str) -> list[list[str]]:
    """Return the skills of each event that a revision added risks, once the server has the last ones."""
    asked = {"filter": {"event": {"name": ["skillery.risk-added"]}, "order": "ASC"}}
    events = answer_of(api, "events/filter", asked)["events"]
    return [[one["doc_id"] for one in event["payload"]["skills"]] for event in events]


def test_a_revision_that_turned_hostile_is_told_and_held_until_it_is_accepted(
    prefect_server: str, root: str, skills: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.refresh_one import refresh_one

    monkeypatch.setenv("SKILLERY_RISKS_HOLD", "error")
    tea = "local/shelf/tea"
    with as_functions():
        _nightly(root, f"dir:{skills}")
    (skills / "tea" / "warm.sh").write_bytes(PIPED)
    for is_new in (True, False):
        record = _nightly(root)
        (told,) = record["risks_added"]
        assert (told["doc_id"], told["held"], told["new"]) == (tea, True, is_new)
        assert record["published"] is False  # nothing that is served has changed
        assert _served_risks(root, tea) == []
    rows = table(prefect_server, "skillery-nightly")
    assert [told["message"]] == [row["value"] for row in rows if "risks added" in row["what"]]
    accept_risks(Root(root), tea, [RULE], datetime.now(UTC))
    accepted = refresh_one(tea, root)
    assert [one["held"] for one in accepted["risks_added"]] == [False]
    assert _served_risks(root, tea) == [f"risk.{RULE}"]
    deadline = time.monotonic() + 20
    while len(_risks_told(prefect_server)) < 2 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert _risks_told(prefect_server) == [[tea], [tea]]


def test_a_night_that_can_read_no_source_fails_and_leaves_what_is_served_marked_stale(
    no_server: None, root: str, skills: Path, tmp_path: Path
) -> None:
    served = _nightly(root, f"dir:{skills}")["served"]
    with pytest.raises(NothingReadable, match="nowhere"):
        _nightly(root, f"dir:{tmp_path / 'nowhere'}")
    record = read_runs(Root(root))[0]
    assert (record["state"], record["served"], record["documents"]) == ("failed", served, 2)
    assert record["sources"][0]["state"] == "failed"
    assert specs_to_read(Root(root)) == [f"dir:{skills}"]

    skills.rename(skills.with_name("away"))
    with pytest.raises(NothingReadable):
        _nightly(root)
    index = ServedIndex(Root(root), encoder=MINILM)
    assert [found["stale"] for found in index.search("tea")["results"]] == [True, True]


def test_a_version_that_fails_a_check_is_refused_and_the_old_one_stays(
    no_server: None, root: str, skills: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _nightly(root, f"dir:{skills}")
    served = before["served"]
    parsed = parsed_table(Root(root))
    rows = parsed.read()
    parsed.replace(rows["doc_id"].to_list(), rows.with_columns(pl.col("n_nodes") + 1))
    (skills / "tea" / "SKILL.md").write_text("# Tea\n\nPour water over leaves.\n", "utf-8")
    with pytest.raises(GateRefused, match=r"nodes.rows is \d+, must be \d+"):
        _nightly(root)
    record = read_runs(Root(root))[0]
    assert (record["state"], record["served"], record["published"]) == ("refused", served, False)
    assert record["served_counts"] == {"documents": 2, "nodes": before["nodes"]}
    assert record["nodes"] != before["nodes"]
    print_run(record)
    shown = capsys.readouterr().out
    assert "corpus, not served: documents 2" in shown
    assert f"served: {served} (kept): documents 2, nodes {before['nodes']}" in " ".join(shown.split())
    status = root_status(Root(root))
    assert (status["counts"]["nodes"], status["served_counts"]["nodes"]) == (record["nodes"], before["nodes"])


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
    two_days: dict[str, Any], root: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.backfill import backfill
    from flows.nightly import nightly

    days = ask.told("backfill", "--from", BEFORE, "--to", TODAY, "--dry-run", "--root", root)["days"]
    with served_stays(root):
        rows = backfill(date(2020, 1, 1), NOW, root, stages=["refine"])
        assert [(r["day"], r["documents"], r["nodes"]) for r in rows] == [(BEFORE, 2, 0), (TODAY, 3, 0)]
        rows = backfill(THEN, NOW, root)
        written = sum(run["bytes_written"] for run in read_runs(Root(root), 2))
        assert 0.5 < sum(day["bytes_written"] for day in days) / written < 2
        made = [(r["documents"], r["refined now"], r["published"]) for r in rows]
        assert made == [(2, 0, None), (3, 0, None)]
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


def test_a_folder_is_learned_once_and_only_what_is_new_after_that(
    prefect_server: str, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.induce import induce

    monkeypatch.setitem(os.environ, "PREFECT_API_URL", prefect_server)
    folder = tmp_path / "logs"
    folder.mkdir()
    written(folder / "monday.jsonl", RUNS)
    first = induce(root=root, trajectories=str(folder))
    names = ("learned-skills", "learned-checks", "trajectories")
    skills, checks, runs = (table(prefect_server, f"skillery-{name}") for name in names)
    written(folder / "tuesday.jsonl", [mooring("h9", "boat-9", "Gull", "B9")])
    with as_functions():  # as a command has it without a server
        again = induce(root=root, trajectories=str(folder / "monday.jsonl"))
        more = induce(root=root, trajectories=str(folder))
    assert (first["published"], again["published"], more["published"]) == (True, False, True)
    assert more["trajectories"] | {"failed": {}, "unread": []} == {
        "read": 7, "new": 1, "judged": 0, "unchanged": 6, "waiting": 0, "redacted": 0,
        "forgotten": 0, "failed": {}, "unread": [],
    }  # fmt: skip
    assert require_served(Root(root)).version == more["served"]
    assert ServedSkills(Root(root)).domains == ["greenhouse", "harbour"]
    shown, learned = ({row["domain"]: row["skills"] for row in rows} for rows in (skills, first["domains"]))
    assert shown == learned
    assert all(row["passed"] for row in checks)
    assert {"runs": "new", "count": 6} in runs


def test_a_folder_without_runs_fails_the_run_and_leaves_what_is_served(
    prefect_server: str, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.induce import induce

    monkeypatch.setitem(os.environ, "PREFECT_API_URL", prefect_server)
    with pytest.raises(Exception, match="is missing; give a file or a folder"):
        induce(root=root, trajectories=str(tmp_path / "nowhere"))
    assert not Root(root).exists("state/served.json")


def test_a_model_may_judge_and_induce_and_what_it_cost_is_shown(
    prefect_server: str, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.induce import induce

    monkeypatch.setitem(os.environ, "PREFECT_API_URL", prefect_server)
    unjudged = [replace(run, success=None) for run in RUNS]
    folder = written(tmp_path / "runs.jsonl", unjudged)
    with llm_set_up(monkeypatch, say=teaches):
        found = induce(root=root, trajectories=str(folder), inducer="llm")
    assert set(found["inducers"]) == {"llm"}
    assert (found["trajectories"]["waiting"], found["llm"]["requests"] > len(RUNS)) == (0, True)
    assert {"what": "requests", "count": found["llm"]["requests"]} in table(
        prefect_server, "skillery-induction-llm"
    )
