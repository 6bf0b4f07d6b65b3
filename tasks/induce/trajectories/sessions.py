"""Sessions: logs that hosts of agents keep become chats, one for each prompt that a user gave.

Read are those of Claude Code (`~/.claude/projects`) and of Codex (`~/.codex/sessions`), JSON lines. Neither
host documents them: what a line does not say as is known here is passed over, so that another version loses
steps and not the session. They were tried on made sessions alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tasks.induce.trajectories.rows import NotRead, Unread, object_of, unread

Host = Literal["claude", "codex"]
_HOME = re.compile(  # an address on the web keeps its path
    r"(https?://[^\s\"'`]+)|(?:/home/|/Users/|[A-Za-z]:(?:\\|/)+Users(?:\\|/)+)[^/\\\s\"'`:;,)\]}]+|(?<![\w/])/root(?![\w-])"
    r"|(?<=/)-(?:home|Users)-[^-/\\\s\"']+"
)
# What hosts put into a user's turn by themselves, and a user who stops the agent.
_BY_HOST = re.compile(
    r"<(?:command-|local-command|environment_context|user_instructions|system-reminder)|# AGENTS"
)
_INTERRUPTED = re.compile(r"\[Request interrupted|<turn_aborted>")
_NOT_WORD = re.compile(r"\W+")


@dataclass(slots=True)
class Turn:
    """What was said and done from one prompt of a user to the next, as messages of a chat.

    `success` is told by a rule: the agent had the last word, after a call that did not fail, and was not
    stopped. It is None while nothing tells.
    """

    place: str
    messages: list[dict[str, Any]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)  # by the agent since its last call
    open: dict[str, int] = field(default_factory=dict)  # calls without an answer: where they stand
    failed: bool = False
    stopped: bool = False

    @property
    def calls(self) -> bool:
        """Whether the agent did anything but speak."""
        return any("tool_calls" in message for message in self.messages)

    @property
    def success(self) -> bool | None:
        """The verdict of the rule."""
        if self.stopped or (self.failed and not self.open):
            return False
        return True if self.said and not self.open else None

    def call(self, name: object, call_id: object, arguments: object) -> None:
        """Add a call; what the agent said before it is its thought."""
        if not isinstance(name, str) or not isinstance(call_id, str) or call_id in self.open:
            return
        function = {"name": _NOT_WORD.sub("_", name).strip("_") or "tool", "arguments": arguments}
        text, self.said = "\n".join(self.said), []
        self.open[call_id] = len(self.messages)
        self.messages.append(
            {"role": "assistant", "content": text, "tool_calls": [{"id": call_id, "function": function}]}
        )

    def answer(self, call_id: object, text: str, *, failed: bool) -> None:
        """Add the answer to a call of this turn; that of another is passed over."""
        if isinstance(call_id, str) and self.open.pop(call_id, None) is not None:
            self.failed = failed
            told = f"Error: {text}" if failed and not text.startswith("Error") else text
            self.messages.append({"role": "tool", "tool_call_id": call_id, "content": told})

    def row(self) -> dict[str, Any]:
        """Return the chat and its success, without the names of home folders."""
        last = [{"role": "assistant", "content": "\n".join(self.said)}] if self.said else []
        told = {"messages": [*self.messages, *last], "success": self.success}
        found: dict[str, Any] = without_homes(told)
        return found


def turns(values: Iterable[tuple[str, object | Unread]], host: Host) -> Iterator[tuple[str, object | Unread]]:
    """Yield the turns of a session as chats (`messages.row_of`), each with the place of its prompt.

    One without a call comes as `Unread` (`no-call`), and so does the last one while the agent has not
    answered (`unfinished`): its session may go on.
    """
    read, now = _READERS[host], None
    for place, value in values:
        if isinstance(value, Unread):
            yield place, value
            continue
        try:
            prompt = read(object_of(value), now or Turn(place))
        except NotRead as error:
            yield place, unread(place, None, error)
            continue
        if prompt is not None:
            yield from _ended(now)
            now = Turn(place, [{"role": "user", "content": prompt}])
    if now is not None and now.success is None:
        msg = "the agent has not answered its last prompt: the session may go on"
        yield now.place, unread(now.place, None, NotRead("unfinished", msg))
    else:
        yield from _ended(now)


def _ended(turn: Turn | None) -> Iterator[tuple[str, object | Unread]]:
    if turn is None:
        return
    if turn.calls:
        yield turn.place, turn.row()
    else:
        why = NotRead("no-call", "the agent did nothing but speak: there is nothing to learn from")
        yield turn.place, unread(turn.place, None, why)


def _claude(line: Mapping[str, Any], turn: Turn) -> str | None:
    """Add a line to a turn; return the prompt with which it begins another, if it does."""
    message = line.get("message")
    aside = any(line.get(name) for name in ("isSidechain", "isMeta", "isCompactSummary"))
    if aside or line.get("type") not in ("user", "assistant") or not isinstance(message, Mapping):
        return None
    prompts = list[str]()
    for part in _parts(message.get("content")):
        kind, text = part.get("type"), part.get("text")
        if kind == "tool_use":
            turn.call(part.get("name"), part.get("id"), part.get("input"))
        elif kind == "tool_result":
            turn.answer(
                part.get("tool_use_id"), _text(part.get("content")), failed=part.get("is_error") is True
            )
        elif isinstance(text, str) and text.strip():
            (prompts if line["type"] == "user" else turn.said).append(text)
    return _prompt(prompts, turn)


def _codex(line: Mapping[str, Any], turn: Turn) -> str | None:
    """Add a line to a turn; return the prompt with which it begins another, if it does."""
    # Older files hold the items themselves.
    item = line.get("payload") if line.get("type") == "response_item" else line
    if not isinstance(item, Mapping):
        return None
    kind, call_id = str(item.get("type")), item.get("call_id")
    if kind in ("function_call", "custom_tool_call"):
        given = item.get("arguments") if kind == "function_call" else {"input": item.get("input")}
        turn.call(item.get("name"), call_id, given)
    elif kind == "local_shell_call":
        turn.call("shell", call_id, item.get("action"))
    elif kind.endswith("_call_output"):
        told, failed = _output(item.get("output"))
        turn.answer(call_id, told, failed=failed)
    elif kind == "message" and item.get("role") in ("user", "assistant"):
        said = [text for part in _parts(item.get("content")) if isinstance(text := part.get("text"), str)]
        if item["role"] == "user":
            return _prompt(said, turn)
        turn.said += said
    return None


_READERS: Mapping[Host, Callable[[Mapping[str, Any], Turn], str | None]] = {
    "claude": _claude,
    "codex": _codex,
}


def _prompt(said: list[str], turn: Turn) -> str | None:
    """Return what a user asks for, without what the host adds; a user who stops the agent asks nothing."""
    if any(_INTERRUPTED.match(text) for text in said):
        turn.stopped = True
        return None
    return "\n".join(text for text in said if not _BY_HOST.match(text.lstrip())).strip() or None


def _parts(content: object) -> list[Mapping[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []


def _text(content: object) -> str:
    return "\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in _parts(content))


def _output(told: object) -> tuple[str, bool]:
    """Return what a call of Codex gave, and whether it failed."""
    held = told
    if isinstance(told, str) and told.startswith("{"):
        try:
            held = json.loads(told)
        except (ValueError, RecursionError):
            return told, False
    if not isinstance(held, Mapping):
        return _text(held), False
    about = held.get("metadata")
    code = about.get("exit_code") if isinstance(about, Mapping) else None
    text = held.get("output") or held.get("content") or ""
    return text if isinstance(text, str) else _text(text), code not in (None, 0) or held.get(
        "success"
    ) is False


def without_homes(value: Any) -> Any:  # noqa: ANN401 (a value of JSON)
    """Return a value of JSON in which `~` stands for the home folders of people, keys included."""
    if isinstance(value, str):
        return _HOME.sub(lambda found: found[1] or "~", value)
    if isinstance(value, Mapping):
        return {without_homes(name): without_homes(each) for name, each in value.items()}
    return [without_homes(each) for each in value] if isinstance(value, list) else value
