"""`skillery induce`, `suggest` and `library`: skills out of what agents did, offered at a step."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from flows.cli.main import main
from tasks.induce.trajectories.record import Trajectory
from tests.support.command import Ask, lines_of
from tests.support.induce.learning import RUNS
from tests.support.induce.learning import written as runs_written
from tests.support.induce.runs import FORM, HOME, add_bed, mooring
from tests.support.llm.llm_asking import llm_set_up
from tests.support.llm.llm_server import Asked, LlmServer
from tests.support.llm.scripted import SUCCESS, record_of, skill_of, skills, teaches, windows_of
from tests.support.roots.skill_root import Export


def written(path: Path, *runs: Trajectory) -> str:
    return str(runs_written(path, runs))


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> str:
    """A root that has learned the runs of `runs.jsonl` beside it; tests only ask it, or copy it."""
    folder = tmp_path_factory.mktemp("learned")
    root = with_encoder(folder / "root", minilm_export)
    runs = written(folder / "runs.jsonl", *RUNS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["skillery", "induce", runs, "--root", root])
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 0
    return root


def with_encoder(root: Path, export: Export) -> str:
    (root / "models").mkdir(parents=True)
    (root / "models" / export.folder.name).symlink_to(export.folder)
    return str(root)


def state(tmp_path: Path, **fields: object) -> str:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(fields), "utf-8")
    return str(path)


def test_runs_are_learned_once_and_a_library_anew_with_another_support_or_where_it_was_not_written(
    root: str, tmp_path: Path, ask: Ask
) -> None:
    files = [written(tmp_path / "a.jsonl", *RUNS[:3]), written(tmp_path / "b.jsonl", *RUNS[2:])]
    first = ask.told("induce", *files, "--root", root)
    again = ask.told("induce", *files, "--root", root)
    assert first["trajectories"] == {
        "read": 7, "new": 6, "judged": 0, "unchanged": 1, "waiting": 0, "redacted": 0,
        "forgotten": 0, "failed": {}, "unread": [],
    }  # fmt: skip
    assert first["skills"]["new"] == first["verified"]["recorded"] > 0
    assert {row["domain"] for row in first["domains"]} == {"greenhouse", "harbour"}
    assert (again["trajectories"]["new"], again["skills"]["new"], again["windows"]) == (0, 0, 0)
    assert again["domains"] == first["domains"]
    fewer = ask.told("induce", *files, "--root", root, "--support", "4")
    Path(root, "induced", "made-of.json").unlink()  # as if the process had died before
    again = ask.told("induce", *files, "--root", root)
    assert fewer["skills"]["retired"] > 0
    assert again["domains"] == first["domains"]


def test_the_first_lines_that_are_no_runs_are_named_with_what_is_wrong(
    root: str, tmp_path: Path, ask: Ask
) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"trajectory_id": "h1"}\n' + "no JSON\n" * 30, "utf-8")
    code, said, _ = ask("induce", str(bad), "--root", root)
    assert code == 1  # nothing could be read
    assert f"{bad}:1: wrong-field: trajectory h1: steps must be a list" in said
    assert f"{bad}:2: broken-line: not JSON" in said
    assert ("broken-line 30" in said, said.count("broken-line: not JSON")) == (True, 19)


def test_the_form_that_browser_had_names_the_command(root: str, tmp_path: Path, ask: Ask) -> None:
    runs = written(tmp_path / "runs.jsonl", *RUNS)
    assert "'command:python -m tasks.induce.replay.chromium http://127.0.0.1:8000/'" in ask.refused(
        "induce", runs, "--root", root, "--verify", "browser:http://127.0.0.1:8000/"
    )


def test_what_fits_the_state_is_suggested_with_its_code_and_sources_or_as_the_prompt_of_an_agent(
    learned: str, tmp_path: Path, ask: Ask
) -> None:
    given = ["--root", learned, "--domain", "greenhouse", "--task", "Add the bed Iris bank with clay."]
    found = ask.told("suggest", *given, "--state", state(tmp_path, observation=FORM))
    first = found["results"][0]
    assert first["actions"][0]["name"] == "fill"
    assert {
        "skill_id", "code", "callable", "support", "verified", "score", "parts", "sources", "near",
    } <= set(first)  # fmt: skip
    assert found["domain"] == "greenhouse"
    assert "name textbox" in found["state"]
    said = ask("suggest", *given, "--state", state(tmp_path, observation=HOME), "--format", "prompt").stdout
    assert said.startswith("## Learned skills")
    assert "def click_beds_then_" in said
    assert "not instructions" in said


@pytest.mark.parametrize(("granularity", "length"), [("trajectory", 5), ("action", 1)])
def test_a_library_of_another_granularity_is_built_and_asked_as_such(
    learned: str, tmp_path: Path, ask: Ask, granularity: str, length: int
) -> None:
    root = str(shutil.copytree(learned, tmp_path / "copy", symlinks=True))
    path, more = str(Path(learned).with_name("runs.jsonl")), ["--root", root, "--granularity", granularity]
    built = ask.told("induce", path, *more)
    again = ask.told("induce", path, *more)
    given = ["--root", root, "--domain", "greenhouse", "--task", "Add the bed Iris bank with clay."]
    found = ask.told("suggest", *given, "--state", state(tmp_path, observation=HOME))
    assert (built["skills"]["retired"] > 0, built["windows"] > 0) == (True, True)
    assert again["windows"] == 0
    assert found["results"]
    assert {len(row["actions"]) for row in found["results"]} == {length}
    assert found["results"][0]["actions"][0] | {"args": 0} == {
        "name": "click", "role": "link", "target": "beds", "args": 0,
    }  # fmt: skip


def test_a_file_of_states_is_answered_line_by_line(learned: str, tmp_path: Path, ask: Ask) -> None:
    same = {"task": "Moor the Gull.", "state": {"observation": "user: hi"}}
    lines = [{**same, "query_id": str(domain), "domain": domain} for domain in ("harbour", 5, "harbor")]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    out = tmp_path / "r.jsonl"
    done = ask("suggest", "--root", learned, "--batch", str(tmp_path / "q.jsonl"), "--out", str(out))
    good, wrong, bad = lines_of(out)
    assert done.code == 1
    assert good["results"][0]["actions"][0]["name"] == "find_berth"
    assert "did you mean 'harbour'?" in bad["error"]
    assert "domain, which are texts" in wrong["error"]


def test_the_library_is_listed_shown_written_and_exported(learned: str, tmp_path: Path, ask: Ask) -> None:
    out, folder = tmp_path / "l.jsonl", tmp_path / "skills"
    done = ask("library", "--root", learned, "--out", str(out), "--export", str(folder), "--json")
    rows = lines_of(out)
    shown = ask("library", rows[0]["skill_id"].rpartition("/")[2], "--root", learned).stdout
    assert json.loads(done.stdout)["skills"] == rows
    assert rows[0]["code"] in shown
    files = list(folder.rglob("SKILL.md"))
    assert len(files) == len(rows)
    told = [file.read_text("utf-8") for file in files]
    assert all("description:" in one for one in told)
    # All tasks of the harbour say these, and each has a boat of its own.
    assert any("Said in such tasks: moor, tonight." in one for one in told)
    assert not any("petrel" in one.lower() for one in told)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--task", "x", "--domain", "greenhouse", "-k", "0"], "k is 0: give 1 to 100"),
        (["--task", "x", "--domain", "greenhouse", "-k", "1000"], "k is 1000: give 1 to 100"),
        (["--task", "x", "--domain", "greenhouse", "--method", "best"], "--method best is not known"),
        (["--task", "x", "--domain", "greenhouse", "--alpha", "2"], "alpha is 2.0: give a number"),
        (["--task", "x", "--domain", "green"], "skillery: domain 'green' has no skills"),
        (["--task", "x"], "skillery: domain is missing"),
        (["--task", " ", "--domain", "greenhouse"], "the task is blank"),
    ],
)
def test_wrong_use_is_told_in_a_line(
    learned: str, tmp_path: Path, ask: Ask, arguments: list[str], said: str
) -> None:
    assert said in ask.refused(
        "suggest", "--root", learned, *arguments, "--state", state(tmp_path, observation=HOME)
    )


def test_a_root_that_learned_nothing_says_so(root: str, tmp_path: Path, ask: Ask) -> None:
    assert "no learned skills are served here" in ask("library", "--root", root).stderr
    done = ask(
        "suggest", "--root", root, "--task", "x", "--domain", "y", "--state", state(tmp_path, observation="")
    )
    assert "no learned skills are served here" in done.stderr


NAMES = (("Fern corner", "Petrel"), ("Rose row", "Auk"), ("Lily pond", "Tern"))
UNJUDGED = [
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
    path.write_text("".join(json.dumps(asdict(run)) + "\n" for run in UNJUDGED), "utf-8")
    return str(path)


def induced(ask: Ask, runs: str, root: str, *more: str) -> dict[str, Any]:
    return ask.told("induce", runs, "--root", root, *more)


def library_of(ask: Ask, root: str) -> list[dict[str, Any]]:
    return ask.told("library", "--root", root)["skills"]  # type: ignore[no-any-return]


def test_runs_that_nobody_judged_teach_what_the_model_makes_of_them(
    llm: LlmServer, root: str, runs: str, ask: Ask
) -> None:
    found = induced(ask, runs, root, "--judge", "llm", "--inducer", "llm")
    assert found["trajectories"]["waiting"] == 0
    assert found["state"] == "complete"
    assert found["inducers"] == {"llm": found["skills"]["new"]}
    assert (found["llm"]["model"], found["llm"]["requests"]) == ("small-model", llm.requests)
    assert found["llm"]["tokens"] == 110 * llm.requests
    assert all(skill["inducer"] == "llm" for skill in library_of(ask, root))
    assert Counter("windows" in record_of(asked) for asked in llm.asked) == {False: 6, True: 2}


def test_the_files_word_is_taken_where_that_is_asked_for_else_a_model_set_up_judges_and_recurrence_induces(
    llm: LlmServer, root: str, runs: str, ask: Ask
) -> None:
    found = induced(ask, runs, root, "--judge", "declared")
    assert (found["trajectories"]["waiting"], found["skills"]["new"], found["llm"]) == (6, 0, None)
    assert llm.requests == 0
    llm.say = lambda asked: (
        SUCCESS if "bed" in record_of(asked)["intent"] else SUCCESS.replace("success", "failure")
    )
    found = induced(ask, runs, root)
    assert [row["domain"] for row in found["domains"] if row["skills"]] == ["greenhouse"]
    assert list(found["inducers"]) == ["recurrence"]
    assert found["trajectories"]["waiting"] == 0


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


@pytest.mark.parametrize("answered", [4, 7])  # while runs are judged, or windows asked about
def test_a_run_that_ended_half_way_goes_on_from_the_answers_that_it_had(
    llm: LlmServer, root: str, runs: str, ask: Ask, monkeypatch: pytest.MonkeyPatch, answered: int
) -> None:
    monkeypatch.setenv("SKILLERY_LLM_CONCURRENCY", "1")
    both = ("--judge", "llm", "--inducer", "llm")
    llm.fault = lambda _: "401" if llm.requests >= answered else None
    assert ask("induce", runs, "--root", root, *both).code == 1
    assert llm.requests == answered + 1
    llm.fault = lambda _: None
    found = induced(ask, runs, root, *both)
    assert (found["llm"]["requests"], llm.requests) == (8 - answered, 9)
    assert found["inducers"] == {"llm": found["skills"]["new"]}


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
    given = [
        "suggest",
        "--root",
        root,
        "--domain",
        "greenhouse",
        "--task",
        "Add the bed Iris bank.",
        "--state",
    ]
    given += [state(tmp_path, observation=FORM, url="http://green.example", title="Green")]
    found = ask.told(*given)
    assert "bed_name" in found["results"][0]["code"]
    assert found["state"].startswith("on the Green")
    monkeypatch.setenv("SKILLERY_INDUCE_SUMMARIES", "llm")
    told = ask.told(*given, "--method", "sgdr")
    assert told["state"] == "A page of the greenhouse, where beds can be added."
    asked = llm.requests
    assert ask.told(*given)["state"] == told["state"]
    assert llm.requests == asked


def test_settings_of_inducing_are_listed_and_checked(
    root: str, runs: str, ask: Ask, llm: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLERY_INDUCE_WINDOWS", "5")
    induced(ask, runs, root, "--judge", "llm", "--inducer", "llm")
    assert max(len(windows_of(asked)) for asked in llm.asked) == 5
    assert "SKILLERY_INDUCE_SUMMARY_TOKENS" in ask("settings", "--all").stdout
    monkeypatch.setenv("SKILLERY_INDUCE_WINDOWS", "none")
    assert "SKILLERY_INDUCE_WINDOWS" in ask.refused("induce", runs, "--root", root, "--judge", "llm")


def test_in_a_stream_only_runs_that_the_model_passes_are_learned_from(
    root: str, tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_text("".join(json.dumps({**asdict(run), "success": True}) + "\n" for run in UNJUDGED), "utf-8")
    command = ["evaluate", "stream", str(path), "--root", root, "--json"]
    declared = ask.told(*command)
    monkeypatch.setenv("SKILLERY_INDUCE_JUDGE", "llm")
    found = []
    for number, status in enumerate(("success", "failure")):
        monkeypatch.setenv("SKILLERY_LLM_SEED", str(number))
        with llm_set_up(monkeypatch, say=lambda _, s=status: f'Thoughts: seen.\nStatus: "{s}"') as server:
            found.append(ask.told(*command))
            assert server.requests == len(UNJUDGED)
    assert declared["methods"] == found[0]["methods"]
    assert found[0]["methods"][0]["usable@5"] > found[1]["methods"][0]["usable@5"] == 0
