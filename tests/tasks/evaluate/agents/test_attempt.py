"""Attempts in environments of tools and of pages, with skills that are called, and reference actions."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage.errors import WrongInput
from tasks.evaluate.agents.agent import command_agent
from tasks.evaluate.agents.attempt import Act, GivenSkill, Limits, Supply, Turn, attempt
from tasks.evaluate.agents.memory import CER, LEARNED, Experiences, Procedures
from tasks.evaluate.agents.task import AgentTask, TaskFile
from tasks.induce.replay.environment import CommandEnvironment
from tasks.induce.skills.skill import actions_of
from tasks.models.encoder import OnnxEncoder
from tests.support.induce.lending import lending
from tests.support.induce.recordings import renewal

Say = Callable[[Turn], Act]


def task_of(instruction: str, folder: Path, environment: str, **told: Any) -> AgentTask:  # noqa: ANN401
    return AgentTask("own", instruction, folder, TaskFile(environment=environment, **told), "")


def tried(task: AgentTask, agent: Say, supply: Supply | None = None) -> dict[str, Any]:
    with task.opened(30) as process:
        return attempt(task, CommandEnvironment(process), agent, supply or Supply(), Limits())


def in_turn(*acts: tuple[str, dict[str, Any]]) -> Say:
    """Return an agent that does these actions, and ends."""
    held = iter(acts)
    return lambda _: Act(*next(held, ("done", {})))


def renewed(tmp_path: Path) -> AgentTask:
    wanted = renewal("ada")
    check = [{"name": step.action.name, "args": step.action.args} for step in wanted.steps[:-1]]
    return task_of(wanted.task, tmp_path, lending(), domain="lending", check=check)


@pytest.mark.parametrize("name", ["sgdr", "suggest", "asi", "awm", "cer"])
def test_what_was_done_for_others_is_given_and_a_procedure_is_one_turn(
    name: str, tmp_path: Path, minilm: OnnxEncoder
) -> None:
    form = "shown" if name in ("awm", "cer") else "call"
    memory = Experiences(minilm.encode, 5) if name == CER else Procedures(LEARNED[name], minilm.encode, 5)
    memory.learn(renewal("ben"))
    of_itself = renewed(tmp_path)._replace(task_id=renewal("ben").task_id)
    assert not memory.supply(of_itself).at("user: hello", None)
    memory.learn(renewal("cleo"))
    given: list[GivenSkill] = []

    def agent(turn: Turn) -> Act:
        if not given:
            given.extend(turn.skills)
            longest = max(turn.skills, key=lambda one: len(one.body))
            args = {"email": "ada@example.com", "card": "card_17", "desk": "north"}
            if form == "call":
                return Act(longest.name, args, tokens=5)
        return Act("done", {}, used=["not given"])

    found = tried(renewed(tmp_path), agent, memory.supply(renewed(tmp_path)))
    assert {one.form for one in given} == {form}
    if form == "shown":
        assert found["used"] == []
        assert "renew loan" in given[0].text.replace("_", " ")
        return
    assert len(found["used"]) == 1
    assert found["tokens"] == 5
    did = [step["action"]["name"] for step in found["trajectory"]["steps"]]
    assert did[:2] == ["find_member", "get_member"]
    if name == "asi":  # the whole of it
        assert (found["score"], found["turns"], found["error"]) == (1, 2, None)


PAGES = """
import json, sys
sent, ids, text = [], 0, ""
for line in sys.stdin:
    asked = json.loads(line)
    if asked["op"] == "reset":
        sent, text = [], ""
    if asked["op"] == "step":
        action, ids = asked["action"], ids + 10
        assert "element" not in action["args"]
        text = action["args"].get("text", text)
        sent += [text] if asked["on"] == ["button", "send", 0] else []
    page = f'[{ids + 1}] textbox "Message" value="{text}"\\n[{ids + 2}] button "Send"'
    answer = {"digest": str(sent)} if asked["op"] == "digest" else {"observation": page, "error": None}
    print(json.dumps(answer | {"pages": True}), flush=True)
"""
CODE = """def send(message_text):
    fill(text=message_text, on=["textbox", "message", 0])
    click(on=["button", "send", 0])
"""


@pytest.mark.parametrize("called", [False, True])
def test_elements_of_pages_are_named_by_the_ids_that_are_seen(called: bool, tmp_path: Path) -> None:
    program = tmp_path / "pages.py"
    program.write_text(PAGES, "utf-8")
    check = [
        {"name": "fill", "args": {"text": "Hello"}, "on": ["textbox", "message", 0]},
        {"name": "click", "on": ["button", "send", 0]},
    ]
    task = task_of("Send Hello.", tmp_path, "{python} pages.py", check=check)
    name, body = actions_of(CODE)
    send = GivenSkill("s", name, "", CODE, "call", body)
    by_hand = in_turn(("fill", {"element": "1", "text": "Hello"}), ("click", {"element": "12"}))
    agent = in_turn(("send", {"message_text": "Hello"})) if called else by_hand
    found = tried(task, agent, Supply(lambda *_: [send]))
    assert (found["score"], found["turns"]) == (1, 2 if called else 3)
    assert [step["action"]["args"]["element"] for step in found["trajectory"]["steps"]] == ["1", "12"]
    assert tried(task, in_turn(("click", {"element": "2"})))["score"] == 0


@pytest.mark.parametrize(
    "said", [{"cost": float("nan")}, {"tokens": float("inf")}, {"args": {"a": "\ud800"}}]
)
def test_what_an_agent_says_that_cannot_be_kept_ends_its_attempt(
    said: dict[str, Any], tmp_path: Path
) -> None:
    line = json.dumps({"name": "done", "args": {}, **said})
    script = tmp_path / "agent.py"
    script.write_text(f"import sys\nfor _ in sys.stdin:\n    print({line!r}, flush=True)\n", "utf-8")
    task = renewed(tmp_path)
    with command_agent(shlex.join([sys.executable, str(script)]), 20) as agent:
        act = agent(Turn(task, 1, {}, (), "", None, ()))
    assert act.failed is not None
    assert act.failed.startswith("answered with")


def test_a_check_that_fails_is_named_instead_of_passing_who_does_nothing(tmp_path: Path) -> None:
    told = {"domain": "lending", "check": [{"name": "no_such_action", "args": {}}]}
    with pytest.raises(WrongInput, match=r"task.json: check, action 1: .*mend it"):
        tried(task_of("Renew it.", tmp_path, lending(), **told), in_turn(("done", {})))
