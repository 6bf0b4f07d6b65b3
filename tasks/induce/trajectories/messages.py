"""Messages: a chat in the form of OpenAI becomes a trajectory of a domain of tools."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from storage.errors import WrongInput
from storage.jsonl import json_value
from tasks.induce.trajectories.record import without_nulls
from tasks.induce.trajectories.rows import NotRead

_SAY = "send_msg_to_user"
_DIGITS = 16  # of a digest in an id that is made
_SILENT = ("system", "developer")  # what the agent must keep to is no part of what it did


@dataclass(slots=True)
class _Turn:
    """An action of the agent, with what users said before it and what the tool answered."""

    name: str
    args: dict[str, Any]
    said: list[str]
    thought: str = ""
    answer: str | None = None

    @property
    def told(self) -> list[str]:
        return [] if self.answer is None else [f"{self.name} returned: {self.answer}"]


@dataclass(slots=True)
class _Chat:
    """What was read of a chat: its actions, the last call of each id, and what users said since the last."""

    turns: list[_Turn] = field(default_factory=list)
    calls: dict[str, _Turn] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    task: str | None = None

    def act(self, name: str, args: dict[str, Any], thought: str = "") -> _Turn:
        turn = _Turn(name, args, self.said, thought)
        self.turns.append(turn)
        self.said = []
        return turn


def row_of(held: Mapping[str, Any], domain: str) -> dict[str, Any]:
    """Return the row of a chat `{messages, trajectory_id, task_id, domain, success}`.

    All but `messages` may be missing; a `domain` is then the one given, a `trajectory_id` is made of the
    digest of the messages, a `task_id` of that of domain and task, so that several runs of one task count as
    one. Text beside calls is their step's `thought`.

    Raises:
        NotRead: It is no such chat; the reasons are `wrong-message`, `broken-arguments`, `unknown-call`,
            `no-task`.
    """
    messages = held.get("messages")
    if not isinstance(messages, list):
        raise NotRead("wrong-message", "messages must be a list of objects with a role")
    chat = _Chat()
    for number, message in enumerate(messages):
        _read(chat, message, f"message {number}")
    if chat.task is None:
        raise NotRead("no-task", "no user says what to do; give the task as the first message of a user")
    own = domain if held.get("domain") is None else held["domain"]
    made = {
        "trajectory_id": f"chat-{_digest(messages)}", "task_id": f"task-{_digest([own, chat.task])}",
        "domain": domain, "success": None,
    }  # fmt: skip
    given = {name: default if held.get(name) is None else held[name] for name, default in made.items()}
    return {**given, "task": chat.task, **_steps(chat)}


def _digest(value: object) -> str:
    told = json.dumps(without_nulls(value), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(told.encode()).hexdigest()[:_DIGITS]


def _steps(chat: _Chat) -> dict[str, Any]:
    """Return the steps, each of which sees what the one before was told, and what was seen after the last."""
    steps, seen = [], list[str]()
    for t, turn in enumerate(chat.turns):
        failed = turn.answer is not None and turn.answer.startswith("Error")
        steps.append({
            "t": t, "observation": "\n".join([*seen, *turn.said]),
            "action": {"name": turn.name, "args": turn.args}, "error": turn.answer if failed else None,
            **({"thought": turn.thought} if turn.thought else {}),
        })  # fmt: skip
        seen = turn.told
    return {"steps": steps, "final": "\n".join([*seen, *chat.said])}


def _read(chat: _Chat, message: object, where: str) -> None:
    role = message.get("role") if isinstance(message, Mapping) else None
    if not isinstance(message, Mapping) or message.get("function_call"):
        msg = f"{where}: must be an object with a role, and tool_calls in place of function_call"
        raise NotRead("wrong-message", msg)
    text = _text(message.get("content"), where)
    if role == "user":
        chat.task = text if chat.task is None else chat.task
        chat.said.append(f"user: {text}")
    elif role == "assistant":
        _read_actions(chat, message, text, where)
    elif role == "tool":
        _answer(chat, message.get("tool_call_id"), text, where)
    elif role not in _SILENT:
        msg = f"{where}: the role must be system, user, assistant or tool, not {str(role)[:40]!r}"
        raise NotRead("wrong-message", msg)


def _read_actions(chat: _Chat, message: Mapping[str, Any], text: str, where: str) -> None:
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise NotRead("wrong-message", f"{where}: tool_calls must be a list")
    if text.strip() and not calls:
        chat.act(_SAY, {"text": text})
    for place, call in enumerate(calls):
        name, args, call_id = _call(call, where)
        turn = chat.act(name, args, thought="" if place else text)
        if call_id is not None:
            chat.calls[call_id] = turn


def _call(call: object, where: str) -> tuple[str, dict[str, Any], str | None]:
    function = call.get("function") if isinstance(call, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping) or not isinstance(name, str):
        raise NotRead("wrong-message", f"{where}: a call must have a function with a name and arguments")
    call_id = call.get("id")
    args = _arguments(function.get("arguments"), where)
    return name, args, call_id if isinstance(call_id, str) else None


def _arguments(told: object, where: str) -> dict[str, Any]:
    if told is None or (isinstance(told, str) and not told.strip()):
        return {}
    try:
        found = json_value(told, where, "of arguments") if isinstance(told, str) else told
    except WrongInput as error:
        raise NotRead("broken-arguments", str(error)) from error
    if not isinstance(found, dict):
        msg = f"{where}: arguments must be a JSON object by name, not {str(found)[:60]!r}"
        raise NotRead("broken-arguments", msg)
    return found


def _answer(chat: _Chat, call_id: object, text: str, where: str) -> None:
    turn = chat.calls.get(call_id) if isinstance(call_id, str) else None
    if turn is None or turn.answer is not None:
        msg = f"{where}: tool_call_id {str(call_id)[:40]!r} is that of no call before that has no answer yet"
        raise NotRead("unknown-call", msg)
    turn.answer = text


def _text(content: object, where: str) -> str:
    """Return the text of a message; of what is no text (a picture) its kind in brackets."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list) or not all(isinstance(part, Mapping) for part in content):
        raise NotRead("wrong-message", f"{where}: content must be a text or a list of parts")
    return "\n".join(_parts(content))


def _parts(content: list[Mapping[str, Any]]) -> Iterator[str]:
    for part in content:
        text = part.get("text")
        yield text if isinstance(text, str) else f"[{str(part.get('type'))[:40]}]"
