"""`skillery evaluate agents`: tasks done by a scripted agent whose figures are known, and by a model."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import polars as pl
import pytest

from tasks.induce.trajectories.read import Reading, read_trajectories
from tests.support.command import MAIN, Ask
from tests.support.llm.llm_asking import llm_set_up
from tests.support.llm.llm_server import Asked
from tests.support.roots.skill_root import SkillRoot
from tests.support.scripted_agent import NAMES, PASSED, TASKS, scripted

# By hand: of the ten tasks three are never done in three attempts, three once, two twice and two always.
BY_HAND = {
    1: (13 / 30, 13 / 30, 13 / 30),
    2: (13 / 30, (3 * 2 / 3 + 2 + 2) / 10, (2 / 3 + 2) / 10),
    3: (13 / 30, 7 / 10, 2 / 10),
}


def test_a_bench_that_is_killed_goes_on_and_has_the_figures_known_by_hand(
    tmp_path: Path, root: str, ask: Ask
) -> None:
    report = tmp_path / "report"
    given = ("evaluate", "agents", "example", "--agent", scripted(), "--report", str(report), "--root", root)
    process = subprocess.Popen([*MAIN, *given], env={**os.environ, "SKILLERY_LLM_CONCURRENCY": "1"})
    while len(list(report.glob("runs/*.json"))) < 4 and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait()
    there = len(list(report.glob("runs/*.json")))
    assert 4 <= there < 30
    for k, figures in BY_HAND.items():
        found = ask.told(*given, "-k", str(k))
        (row,) = found["methods"]
        assert (row["pass@1"], row["pass@k"], row["pass^k"]) == pytest.approx(figures)
        kept = there if k == 1 else 30
        assert found["attempts"] == {"made": 30 - kept, "kept": kept}
    # Of each file that is written or removed ten tokens and a step; of each attempt one more step.
    assert (row["steps"], row["used"]) == (pytest.approx(found["tokens"] / 300 + 1), None)
    assert found["cost"] == found["tokens"] / 20
    shown = [line for line in ask(*given).stdout.splitlines() if not line.startswith(("written", "command"))]
    assert any("Pass@3" in line for line in shown)
    assert all(len(line) <= 80 for line in shown)
    run = pl.read_parquet(report / "agents.parquet")
    assert run.filter(measure="pass@1")["value"].sum() == pytest.approx(13 / 3)
    read = read_trajectories([report / "trajectories.jsonl"], "trajectories", Reading())
    assert sum(one.success is True for _, one in read) == sum(PASSED) == 13


@pytest.mark.parametrize("interrupts", [1, 2])
def test_nothing_that_an_agent_started_outlives_an_interrupt(
    interrupts: int, tmp_path: Path, root: str
) -> None:
    mark = str(tmp_path / "hangs")
    agent = f"{scripted('hang')} {mark}"
    given = ("evaluate", "agents", "example", "--agent", agent, "--root", root)
    with subprocess.Popen([*MAIN, *given], stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        while not Path(mark).exists() and process.poll() is None:
            time.sleep(0.05)
        for _ in range(interrupts):  # the second one ends the command at once
            process.send_signal(signal.SIGINT)
            time.sleep(0.3)
        try:
            process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    until = time.monotonic() + 10
    while (left := _started(mark)) and time.monotonic() < until:  # what is killed is gone soon
        time.sleep(0.05)
    assert left == []


def _started(mark: str) -> list[str]:
    """Return the ids of processes whose command line has a word."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if mark.encode() in file.read_bytes().split(b"\0"):
                found.append(file.parent.name)
    return found


@pytest.mark.parametrize(
    ("mischief", "options", "settings", "said"),
    [
        ("die", (), {}, {"ended": {"agent": 3, "done": 7}}),
        ("nonsense", (), {}, {"ended": {"agent": 3, "done": 7}}),
        ("wander", ("--turns", "4"), {}, {"ended": {"turns": 3, "done": 7}}),
        ("hang", ("--minutes", "0.03"), {}, {"error": "attempts are left (time "}),
        ("", (), {"SKILLERY_LLM_MAX_COST": "1"}, {"unfinished": "budget"}),
        ("", ("--minutes", "0"), {}, {"error": "attempts are left (time 10)"}),
        ("", ("--method", "tool:cer"), {}, {"error": "--method tool:cer is not known"}),
        ("", ("--method", "sgdr"), {}, {"error": "has learned nothing of the domain 'files'"}),
    ],
)  # fmt: skip
def test_attempts_are_bounded_and_say_how_they_ended(
    mischief: str, options: tuple[str, ...], settings: dict[str, str], said: dict[str, object],
    root: str, ask: Ask, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name, value in {"SKILLERY_LLM_CONCURRENCY": "1", **settings}.items():
        monkeypatch.setenv(name, value)
    given = ("example", "--agent", scripted(mischief), "--root", root, "--runs", "1", *options, "--json")
    done = ask("evaluate", "agents", *given)
    found = json.loads(done.stdout or "{}")
    if "error" in said:
        assert (done.code, str(said["error"]) in done.stderr) == (2, True), done.stderr
    elif "ended" in said:
        assert found["methods"][0]["ended"] == said["ended"]
    else:
        assert found["unfinished"][said["unfinished"]] + found["tasks"] == 10
        assert found["spent"]["cost"] == 1


def test_an_attempt_has_its_seconds(tmp_path: Path, root: str, ask: Ask) -> None:
    tasks = shutil.copytree(TASKS, tmp_path / "tasks", ignore=shutil.ignore_patterns(*NAMES[1:]))
    given = (str(tasks), "--agent", scripted("hang"), "--seconds", "1", "--runs", "1", "--root", root)
    assert ask.told("evaluate", "agents", *given)["methods"][0]["ended"] == {"seconds": 1}


def test_what_was_done_is_learned_for_the_tasks_that_follow(root: str, ask: Ask) -> None:
    given = ("example", "--agent", scripted(), "--root", root, "--method", "none", "--method", "cer")
    found = ask.told("evaluate", "agents", *given, "--online", "--runs", "1")
    none, cer = found["methods"]
    # The tasks at the places 1, 2, 3, 5, ... are done: from place 2 on there is something.
    assert (none["given"], cer["given"]) == (0, pytest.approx(8 / 10))
    assert cer["pass@1"] == none["pass@1"]
    assert cer["against"]["difference"] == 0


def beekeeper(asked: Asked) -> str:
    """Search and read where that can be done, and write down what was read."""
    did = [str(one["did"]).partition("(")[0] for one in asked.fragments if "did" in one]
    skills = [one["id"] for one in asked.fragments if "id" in one]
    args: dict[str, str] = {}
    if "oxalic acid" in asked.prompt and "write_file" not in did:
        name, args = "write_file", {"path": "mites.txt", "text": "oxalic acid"}
    elif (skills and not did) or did == ["search_skills"]:
        name, args = "read_skill", {"skill": next(iter(skills), "bees")}
    elif any(one.get("action") == "search_skills(query)" for one in asked.fragments) and not did:
        name, args = "search_skills", {"query": "treat bees against mites"}
    else:
        name = "done"
    return json.dumps({"thought": "so be it", "name": name, "args": args})


def test_a_model_is_given_what_methods_retrieve_and_pays_for_no_turn_twice(
    served_bakery: SkillRoot, tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = tmp_path / "tasks/mites"
    task.mkdir(parents=True)
    (task / "instruction.md").write_text("Write to mites.txt what bees get against mites.", "utf-8")
    told = {
        "environment": "{python} -m tasks.evaluate.agents.workspace", "files": {},
        "expected": {"mites.txt": "oxalic acid"}, "skills": ["local/market/bees"],
    }  # fmt: skip
    (task / "task.json").write_text(json.dumps(told), "utf-8")
    names = ("none", "default", "paging", "oracle", "tool:default")
    methods = [part for name in names for part in ("--method", name)]
    report = ("--report", str(tmp_path / "report"))
    given = ("evaluate", "agents", str(task.parent), *methods, "--skills", "1", "--runs", "2")
    with llm_set_up(monkeypatch, say=beekeeper, PROMPT_PRICE=1000) as server:
        found = ask.told(*given, *report, "--root", served_bakery.root.uri)
        asked = server.requests
        again = ask.told(*given, "--root", served_bakery.root.uri)
        drawn = {(one.body["temperature"], one.body["seed"]) for one in server.asked}
    rows = {row["method"]: row for row in found["methods"]}
    figures = {name: (rows[name]["pass@1"], rows[name]["steps"], rows[name]["used"]) for name in names}
    assert figures == {"none": (0, 1, None), **dict.fromkeys(names[1:4], (1, 3, 1)), names[4]: (1, 4, 1)}
    assert {rows[name]["oracle"] for name in names[1:]} == {1}
    assert drawn == {(0.7, 0), (0.7, 1)}
    assert server.requests == asked
    assert again["tokens"] == found["tokens"] > 0
    assert again["cost"] == found["cost"] > 0
    assert 0 < found["spent"]["tokens"] <= found["tokens"]
    assert again["spent"] == {"tokens": 0, "cost": 0}
    rates = json.loads((tmp_path / "report" / "rates.jsonl").read_text("utf-8"))
    assert rates == {"agent": "llm:small-model", "without": 0, "with": 1}
