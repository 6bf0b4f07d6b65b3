"""`skillery induce --judge llm --inducer llm`: what is asked, what it is told to cost, and a killed run."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import MAIN, Ask
from tests.support.induce.runs import FORM, add_bed, mooring
from tests.support.llm.llm_asking import llm_set_up
from tests.support.llm.llm_server import Asked, LlmServer
from tests.support.llm.scripted import SUCCESS, record_of, skill_of, skills, teaches, windows_of
from tests.support.roots.skill_root import Export

NAMES = (("Fern corner", "Petrel"), ("Rose row", "Auk"), ("Lily pond", "Tern"))
RUNS = [
    replace(run, success=None)
    for n, (bed, boat) in enumerate(NAMES)
    for run in (add_bed(f"g{n}", f"bed-{n}", bed), mooring(f"h{n}", f"boat-{n}", boat, f"B{n}"))
]


@pytest.fixture
def llm(monkeypatch: pytest.MonkeyPatch) -> Iterator[LlmServer]:
    with llm_set_up(monkeypatch, say=teaches) as running:
        yield running


@pytest.fixture
def runs(tmp_path: Path) -> str:
    path = tmp_path / "runs.jsonl"
    path.write_text("".join(json.dumps(asdict(run)) + "\n" for run in RUNS), "utf-8")
    return str(path)


def induced(ask: Ask, runs: str, root: str, *more: str) -> dict[str, Any]:
    done = ask("induce", runs, "--root", root, *more, "--json")
    assert done.code == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def learned(ask: Ask, root: str) -> list[dict[str, Any]]:
    return json.loads(ask("library", "--root", root, "--json").stdout)["skills"]  # type: ignore[no-any-return]


def test_runs_that_nobody_judged_teach_what_the_model_makes_of_them(
    llm: LlmServer, root: str, runs: str, ask: Ask
) -> None:
    found = induced(ask, runs, root, "--judge", "llm", "--inducer", "llm")
    assert found["trajectories"]["waiting"] == 0
    assert found["state"] == "complete"
    assert found["inducers"] == {"llm": found["skills"]["new"]}
    assert (found["llm"]["model"], found["llm"]["requests"]) == ("small-model", llm.requests)
    assert found["llm"]["tokens"] == 110 * llm.requests
    assert all(skill["inducer"] == "llm" for skill in learned(ask, root))
    assert Counter("windows" in record_of(asked) for asked in llm.asked) == {False: 6, True: 2}


def test_with_a_model_set_up_it_judges_and_recurrence_induces(
    llm: LlmServer, root: str, runs: str, ask: Ask
) -> None:
    llm.say = lambda asked: (
        SUCCESS if "bed" in record_of(asked)["intent"] else SUCCESS.replace("success", "failure")
    )
    found = induced(ask, runs, root)
    assert [row["domain"] for row in found["domains"] if row["skills"]] == ["greenhouse"]
    assert list(found["inducers"]) == ["recurrence"]
    assert found["trajectories"]["waiting"] == 0


def test_the_files_word_is_taken_where_that_is_asked_for(
    llm: LlmServer, root: str, runs: str, ask: Ask
) -> None:
    found = induced(ask, runs, root, "--judge", "declared")
    assert (found["trajectories"]["waiting"], found["skills"]["new"], found["llm"]) == (6, 0, None)
    assert llm.requests == 0


def test_without_a_model_the_files_word_is_taken(root: str, runs: str, ask: Ask) -> None:
    assert induced(ask, runs, root)["trajectories"]["waiting"] == 6


def test_another_judge_or_inducer_builds_the_library_again_and_asks_nothing_twice(
    llm: LlmServer, root: str, runs: str, ask: Ask
) -> None:
    both = ("--judge", "llm", "--inducer", "llm")
    first = induced(ask, runs, root, *both)
    asked = llm.requests
    again, plain = induced(ask, runs, root, *both), induced(ask, runs, root, "--judge", "llm")
    back = induced(ask, runs, root, *both)
    assert (again["windows"], plain["windows"], back["windows"]) == (0, first["windows"], first["windows"])
    assert list(plain["inducers"]) == ["recurrence"]
    assert back["inducers"] == first["inducers"]
    assert back["llm"]["cached"] > 0
    assert llm.requests == asked


def test_a_run_that_is_not_judged_waits_and_is_judged_when_the_server_answers(
    llm: LlmServer, root: str, runs: str, ask: Ask
) -> None:
    llm.fault = lambda _: "500"
    done = ask("induce", runs, "--root", root, "--judge", "llm", "--json")
    found = json.loads(done.stdout)
    assert (found["state"], found["trajectories"]["waiting"], found["skills"]["new"]) == ("partial", 6, 0)
    assert "induce-judge-1: unavailable" in done.stderr
    assert "such runs wait" in done.stderr
    llm.fault = lambda _: None
    found = induced(ask, runs, root, "--judge", "llm")
    assert (found["state"], found["trajectories"]["waiting"]) == ("complete", 0)
    assert found["skills"]["new"] > 0


def test_the_skills_of_a_model_are_suggested_at_the_states_where_they_were_done(
    llm: LlmServer, root: str, runs: str, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def renamed(asked: Asked) -> str:
        rows = [skill_of(window) for window in windows_of(asked)]
        return skills(*({**row, "code": row["code"].replace("name_text", "bed_name")} for row in rows))

    llm.say = lambda asked: renamed(asked) if windows_of(asked) else teaches(asked)
    induced(ask, runs, root, "--judge", "llm", "--inducer", "llm")
    state = tmp_path / "s.json"
    state.write_text(
        json.dumps({"observation": FORM, "url": "http://green.example", "title": "Green"}), "utf-8"
    )
    given = [
        "suggest",
        "--root",
        root,
        "--domain",
        "greenhouse",
        "--task",
        "Add the bed Iris bank.",
        "--json",
    ]

    found = json.loads(ask(*given, "--state", str(state)).stdout)
    assert "bed_name" in found["results"][0]["code"]
    assert found["state"].startswith("on the Green")
    monkeypatch.setenv("SKILLERY_INDUCE_SUMMARIES", "llm")
    told = json.loads(ask(*given, "--state", str(state), "--method", "sgdr").stdout)
    assert told["state"] == "A page of the greenhouse, where beds can be added."
    asked = llm.requests
    assert json.loads(ask(*given, "--state", str(state)).stdout)["state"] == told["state"]
    assert llm.requests == asked


@pytest.mark.slow
def test_any_split_of_the_runs_gives_the_same_files(
    llm: LlmServer, root: str, runs: str, ask: Ask, tmp_path: Path, minilm_export: Export
) -> None:
    both = ("--judge", "llm", "--inducer", "llm")
    induced(ask, runs, root, *both)
    other = tmp_path / "other"
    (other / "models").mkdir(parents=True)
    (other / "models" / minilm_export.folder.name).symlink_to(minilm_export.folder)
    for n, line in enumerate(reversed(Path(runs).read_text("utf-8").splitlines())):
        (tmp_path / f"{n}.jsonl").write_text(line + "\n", "utf-8")
        induced(ask, str(tmp_path / f"{n}.jsonl"), str(other), *both)

    def held(folder: Path) -> dict[Path, bytes]:
        files = [*folder.rglob("*.parquet"), folder / "succeeded.json"]
        return {file.relative_to(folder): file.read_bytes() for file in files}

    assert held(other / "induced") == held(Path(root, "induced"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--judge", "best"], "--judge 'best' is not known: choose one of declared, llm"),
        (["--inducer", "best"], "--inducer 'best' is not known: choose one of recurrence, llm"),
        (["--judge", "llm"], "SKILLERY_LLM_BASE_URL"),
        (["--inducer", "llm"], "SKILLERY_LLM_BASE_URL"),
    ],
)
def test_wrong_use_is_told_in_a_line(root: str, runs: str, ask: Ask, arguments: list[str], said: str) -> None:
    done = ask("induce", runs, "--root", root, *arguments)
    assert done.code == 2
    assert said in done.stderr
    assert not Path(root, "trajectories").exists()


def test_settings_of_inducing_are_listed_and_checked(
    root: str, runs: str, ask: Ask, llm: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLERY_INDUCE_WINDOWS", "5")
    induced(ask, runs, root, "--judge", "llm", "--inducer", "llm")
    assert max(len(windows_of(asked)) for asked in llm.asked) == 5
    assert "SKILLERY_INDUCE_SUMMARY_TOKENS" in ask("settings", "--all").stdout
    monkeypatch.setenv("SKILLERY_INDUCE_WINDOWS", "none")
    done = ask("induce", runs, "--root", root, "--judge", "llm")
    assert (done.code, "SKILLERY_INDUCE_WINDOWS" in done.stderr) == (2, True)


@pytest.mark.slow
def test_a_killed_run_asks_nothing_twice(llm: LlmServer, root: str, runs: str) -> None:
    given = ["induce", runs, "--root", root, "--judge", "llm", "--inducer", "llm", "--json"]
    environment = {**os.environ, "SKILLERY_LLM_CONCURRENCY": "2", "SKILLERY_INDUCE_WINDOWS": "2"}
    llm.delay = 0.1
    killed = subprocess.Popen(
        [*MAIN, *given], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    # The greenhouse comes first: three runs, then its ten windows in twos.
    while llm.requests < 6 and killed.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    killed.kill()
    killed.wait()
    struck = llm.requests
    done = subprocess.run([*MAIN, *given], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["trajectories"]["unchanged"], found["trajectories"]["waiting"]) == (6, 0)
    assert list(found["inducers"]) == ["llm"]
    assert any(windows_of(asked) for asked in llm.asked[:struck])
    asked = Counter(one.key for one in llm.asked)
    assert struck < llm.requests
    # At most the two questions under way when the process died were not kept.
    assert sum(asked.values()) - len(asked) <= 2


def test_in_a_stream_only_runs_that_the_model_passes_are_learned_from(
    root: str, tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_text("".join(json.dumps({**asdict(run), "success": True}) + "\n" for run in RUNS), "utf-8")
    command = ["evaluate", "stream", str(path), "--root", root, "--json"]
    declared = json.loads(ask(*command).stdout)
    monkeypatch.setenv("SKILLERY_INDUCE_JUDGE", "llm")
    found = []
    for number, status in enumerate(("success", "failure")):
        monkeypatch.setenv("SKILLERY_LLM_SEED", str(number))
        with llm_set_up(monkeypatch, say=lambda _, s=status: f'Thoughts: seen.\nStatus: "{s}"') as server:
            found.append(json.loads(ask(*command).stdout))
            assert server.requests == len(RUNS)
    assert declared["methods"] == found[0]["methods"]
    assert found[0]["methods"][0]["usable@5"] > found[1]["methods"][0]["usable@5"] == 0
