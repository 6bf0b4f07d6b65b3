"""Sessions: logs that hosts of agents keep become chats, one for each prompt that a user gave.

Read are those of Claude Code (`~/.claude/projects`) and of Codex (`~/.codex/sessions`), JSON lines. Neither
host documents them: what a line does not say as is known here is passed over, so that another version loses
steps and not the session. They were tried on made sessions alone.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tasks.induce.trajectories.rows import NotRead, Unread, object_of, unread

Host = Literal["claude", "codex"]
Begun = tuple[str, str]  # a prompt, and why its turn is not read
# A path begins where nothing of one stands before it; `-v/home`, a `\n` and a colour's end stand before none.
_BEGINS = (
    r"(?:(?<![A-Za-z0-9_.~)\]])|(?<=(?<!\w)-[A-Za-z])|(?<=\\[nrt])|(?<=\[m)|(?<=[\[;]\dm)|(?<=[\[;]\d\dm))"
)
_ABOVE = r"(?:/System/Volumes/Data|(?:/mnt)?/[a-z]|/(?:private|usr|export|mnt))?(?:/var)?"  # what holds homes
_NAME = r"(?:[^/\\\s\"'`:;,)\]}]|\\u[0-9a-fA-F]{4})+"
_TITLED = r"[^\W\d_a-z][^\W\d_A-Z][\w-]*"  # as a name goes on after a blank
_HOME = re.compile(  # an address on the web keeps its path
    rf"(https?://[^\s\"'`|]+)|{_BEGINS}{_ABOVE}/(?:home|Users)/{_NAME}"
    rf"|[A-Za-z]:[\\/]+Users[\\/]+(?:{_NAME}(?: {_NAME}){{1,3}}(?=[\\\"'`])|{_NAME}(?: {_TITLED}){{0,2}})"
    r"|(?<![\w./~)\]])/root(?![\w-])|(?<=/)-(?:home|Users)-[^-/\\\s\"']+"
)
# What hosts put into a user's turn by themselves, from the beginning of a line or one after the other.
_BY_HOST = re.compile(
    r"(?<![^\n>])<(system-reminder|local-command[\w-]*|bash-(?:input|stdout|stderr)|task-notification|ide_\w+"
    r"|environment_context|user_instructions)>.*?(?:</\1>|\Z)"
    r"|\A# AGENTS\.md instructions.*?(?:</INSTRUCTIONS>|\Z)",
    re.DOTALL,
)
_STOPPED = re.compile(
    r"\A\s*(?:\[Request interrupted[^\]\n]*\]|<turn_aborted>.*?(?:</turn_aborted>|\Z))", re.DOTALL
)
_CODE = re.compile(r"(?:Exit code:|Process exited with code) (-?\d+)")
_HEAD = 9  # lines of an answer in which its code may stand
# Events of Codex that begin and end a turn, by either name.
_GOES_ON = {"task_started": True, "turn_started": True, "task_complete": False, "turn_complete": False}
_LEFT = {
    "command": "a command of the host began it: what the user asked for is not in the log",
    "summary": "the host summed up what came before: what the user asked for is not in the log",
    "no-prompt": "no prompt of a user stands before it, as in what subagents keep; is --format right?",
}
_NOT_WORD = re.compile(r"\W+")


@dataclass(slots=True)
class Turn:
    """What was said and done from one prompt of a user to the next, as messages of a chat.

    `success` is told by a rule: the agent had the last word, after calls of which none failed that were made
    at once, and was not stopped. It is None while nothing tells.
    """

    place: str
    left: str = ""  # why it is not read whatever it holds
    before: Turn | None = None  # which may still be answered
    messages: list[dict[str, Any]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)  # by the agent since its last call
    open: dict[str, int] = field(default_factory=dict)  # calls without an answer: where they stand
    failed: bool = False
    stopped: bool = False
    goes_on: bool = False  # the host says that what was said last is not the last word

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
        self.failed = self.failed and bool(self.open)  # a call after the others' answers makes up for them
        self.open[call_id] = len(self.messages)
        self.messages.append(
            {"role": "assistant", "content": text, "tool_calls": [{"id": call_id, "function": function}]}
        )

    def answer(self, call_id: object, text: str, *, failed: bool) -> None:
        """Add the answer to a call of this turn or the one before; that of another is passed over."""
        if isinstance(call_id, str) and call_id not in self.open and self.before is not None:
            self.before.answer(call_id, text, failed=failed)
        elif isinstance(call_id, str) and self.open.pop(call_id, None) is not None:
            self.failed |= failed
            told = f"Error: {text}" if failed and not text.startswith("Error") else text
            self.messages.append({"role": "tool", "tool_call_id": call_id, "content": told})

    def row(self) -> dict[str, Any]:
        """Return the chat and its success, without the names of home folders."""
        last = [{"role": "assistant", "content": "\n".join(self.said)}] if self.said else []
        found: dict[str, Any] = without_homes({"messages": [*self.messages, *last], "success": self.success})
        return found


def turns(values: Iterable[tuple[str, object | Unread]], host: Host) -> Iterator[tuple[str, object | Unread]]:
    """Yield the turns of a session as chats (`messages.row_of`), each with the place of its prompt.

    One without a call comes as `Unread` (`no-call`), and so does the last one while the agent has not had the
    last word (`unfinished`: its session may go on), one that a command or a summary of the host began
    (`command`, `summary`), and what comes before any prompt (`no-prompt`).
    """
    read, now = _claude if host == "claude" else _codex, Turn("", "no-prompt")
    for place, value in values:
        if isinstance(value, Unread):
            yield place, value
            continue
        try:
            begun = read(object_of(value), now)
        except NotRead as error:
            yield place, unread(place, None, error)
            continue
        now.place = now.place or place
        if begun is not None:
            prompt, left = begun
            yield from _ended(now.before)
            now.before = None
            now = Turn(place, left, now, [{"role": "user", "content": prompt}], goes_on=now.goes_on)
    yield from _ended(now.before)
    if now.left or now.stopped or (now.said and not (now.open or now.goes_on)):
        yield from _ended(now, is_last=True)
    else:
        msg = "the agent has not answered its last prompt: the session may go on"
        yield now.place, unread(now.place, None, NotRead("unfinished", msg))


def _ended(turn: Turn | None, *, is_last: bool = False) -> Iterator[tuple[str, object | Unread]]:
    if turn is None or not turn.place or (turn.left == "no-prompt" and not (turn.calls or is_last)):
        return
    if turn.calls and not turn.left:
        yield turn.place, turn.row()
        return
    why = _LEFT.get(turn.left, "the agent did nothing but speak: there is nothing to learn from")
    yield turn.place, unread(turn.place, None, NotRead(turn.left or "no-call", why))


def _claude(line: Mapping[str, Any], turn: Turn) -> Begun | None:
    """Add a line to a turn; return the prompt with which it begins another, if it does."""
    message, kind = line.get("message"), line.get("type")
    aside = line.get("isSidechain") or line.get("isMeta")
    if aside or kind not in ("user", "assistant") or not isinstance(message, Mapping):
        return None
    if line.get("isCompactSummary"):
        return "", "summary"
    if line.get("isApiErrorMessage"):
        turn.stopped = True
        return None
    turn.goes_on = message.get("stop_reason") == "tool_use"
    prompts = list[str]()
    for part in _parts(message.get("content")):
        does, text = part.get("type"), part.get("text")
        if does == "tool_use":
            turn.call(part.get("name"), part.get("id"), part.get("input"))
        elif does == "tool_result":
            turn.answer(
                part.get("tool_use_id"), _text(part.get("content")), failed=part.get("is_error") is True
            )
        elif isinstance(text, str) and text.strip():
            (prompts if kind == "user" else turn.said).append(text)
    return _prompt(prompts, turn)


def _codex(line: Mapping[str, Any], turn: Turn) -> Begun | None:
    """Add a line to a turn; return the prompt with which it begins another, if it does."""
    # Older files hold the items themselves.
    item = line.get("payload") if line.get("type") in ("response_item", "event_msg") else line
    if not isinstance(item, Mapping):
        return None
    if line.get("type") == "event_msg":  # what the items say too, but for this
        turn.stopped = turn.stopped or item.get("type") == "turn_aborted"
        turn.goes_on = _GOES_ON.get(str(item.get("type")), turn.goes_on)
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


def _prompt(said: list[str], turn: Turn) -> Begun | None:
    """Return what a user asks for, without what the host adds; a user may stop the agent before that."""
    asked = list[str]()
    for text in said:
        rest, stops = _STOPPED.subn("", _BY_HOST.sub("", text))
        if rest.lstrip().startswith("<command-"):
            return "", "command"
        turn.stopped = turn.stopped or stops > 0
        asked.append(rest)
    prompt = "\n".join(asked).strip()
    return (prompt, "") if prompt else None


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
        return (text := _text(held)), _is_failure(text)
    about = held.get("metadata")
    code = about.get("exit_code") if isinstance(about, Mapping) else None
    text = held.get("output") or held.get("content") or ""
    failed = code not in (None, 0) or held.get("success") is False
    return text if isinstance(text, str) else _text(text), failed


def _is_failure(text: str) -> bool:
    """Tell whether a code of failure stands in the head of an answer."""
    head, *output = text.split("\nOutput:", 1)
    found = [code[1] for line in head.split("\n", _HEAD)[:_HEAD] if (code := _CODE.match(line))]
    return bool(output) and any(code.strip("-0") for code in found)


def without_homes(value: Any) -> Any:  # noqa: ANN401 (a value of JSON)
    """Return a value of JSON in which `~` stands for the home folders of people, keys included."""
    if isinstance(value, str):
        return _HOME.sub(lambda found: found[1] or "~", value)
    if isinstance(value, Mapping):
        names = {name: without_homes(name) for name in value}
        times = Counter(names.values())  # where two would be one, each keeps its own
        return {name if times[names[name]] > 1 else names[name]: without_homes(value[name]) for name in names}
    return [without_homes(each) for each in value] if isinstance(value, list) else value
