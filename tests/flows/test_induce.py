"""The flow `induce`: what is new in a folder is learned and served, and its tables say so."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from flows.server.temporary import as_functions
from storage.lance.served import require_served
from storage.root import Root
from tasks.retrieve.suggest.stored import ServedSkills
from tests.support.induce.learning import RUNS, written
from tests.support.induce.runs import mooring
from tests.support.llm.llm_asking import llm_set_up
from tests.support.llm.scripted import teaches
from tests.support.prefect_page import table


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
