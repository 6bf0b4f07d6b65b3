"""Sessions of hosts: what a user asked, what the agent did, and how that ended, out of their logs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.induce.trajectories.messages import row_of
from tasks.induce.trajectories.read import Format, Reading, Row, read_trajectories
from tasks.induce.trajectories.rows import Unread
from tasks.induce.trajectories.sessions import Host, turns, without_homes
from tests.support.roots.storied import KEY

Event = tuple[str, Any]
Write = Callable[[Event], dict[str, Any]]


def claude(event: Event) -> dict[str, Any]:
    """Return a line of Claude Code's log."""
    kind, told = event
    role = "user" if kind in ("user", "result", "meta") else "assistant"
    content: Any = told if kind == "user" else [{"type": "text", "text": told}]
    if kind == "call":
        content = [{"type": "tool_use", "id": told[0], "name": told[1], "input": told[2]}]
    elif kind == "result":
        content = [{"type": "tool_result", "tool_use_id": told[0], "content": told[1], "is_error": told[2]}]
    message = {"role": role, "content": content}
    line = {"type": role, "message": message, "sessionId": "s", "cwd": "/home/ann/shop"}
    return line | ({"isMeta": True} if kind == "meta" else {})


def codex(event: Event) -> dict[str, Any]:
    """Return a line of Codex's log."""
    kind, told = event
    item: dict[str, Any] = {"type": "message", "role": "user" if kind in ("user", "meta") else "assistant"}
    if kind == "call":
        arguments = json.dumps(told[2])
        item = {"type": "function_call", "call_id": told[0], "name": told[1], "arguments": arguments}
    elif kind == "result":
        output = json.dumps({"output": told[1], "metadata": {"exit_code": int(told[2])}})
        item = {"type": "function_call_output", "call_id": told[0], "output": output}
    else:
        text = f"<environment_context>{told}</environment_context>" if kind == "meta" else told
        item["content"] = [{"type": "input_text" if item["role"] == "user" else "output_text", "text": text}]
    return {"timestamp": "2026-11-01T00:00:00Z", "type": "response_item", "payload": item}


HOSTS: list[tuple[Host, Write]] = [("claude", claude), ("codex", codex)]
both = pytest.mark.parametrize(("host", "write"), HOSTS, ids=["claude", "codex"])


def chats(host: Host, write: Write, *events: Event) -> Iterator[tuple[str, Any]]:
    return turns([(f"log:{n}", write(event)) for n, event in enumerate(events, 1)], host)


SESSION = [
    ("meta", "/home/ann/shop"),
    ("user", "Order beans from /home/ann/shop/list.txt"),
    ("text", "I read the list."),
    ("call", ("1", "Bash", {"command": "cat /home/ann/shop/list.txt"})),
    ("result", ("1", f"beans 2\nKEY={KEY}", False)),
    ("call", ("2", "mcp__my-shop__order", {"seed": "beans", "packets": 2})),
    ("result", ("2", "ordered", False)),
    ("text", "Two packets are on their way."),
    ("user", "Now peas."),
    ("call", ("3", "mcp__my-shop__order", {"seed": "peas"})),
    ("result", ("3", "no such seed", True)),
    ("text", "There are none."),
    ("user", "Thanks!"),
    ("text", "You are welcome."),
    ("user", "And leeks?"),
    ("call", ("4", "mcp__my-shop__order", {"seed": "leeks"})),
    ("result", ("4", "ordered", False)),
]


@both
def test_each_prompt_is_a_run_with_its_calls_and_a_verdict(host: Host, write: Write) -> None:
    """What the agent says before a call is its thought; the last prompt waits for its answer."""
    found = [value for _, value in chats(host, write, *SESSION)]
    beans, peas = (row_of(value, host) for value in found if not isinstance(value, Unread))
    assert [(value.place, value.reason) for value in found if isinstance(value, Unread)] == [
        ("log:13", "no-call"), ("log:15", "unfinished"),
    ]  # fmt: skip
    assert (beans["task"], beans["success"]) == ("Order beans from ~/shop/list.txt", True)
    assert [step["action"] for step in beans["steps"]] == [
        {"name": "Bash", "args": {"command": "cat ~/shop/list.txt"}},
        {"name": "mcp__my_shop__order", "args": {"seed": "beans", "packets": 2}},
        {"name": "send_msg_to_user", "args": {"text": "Two packets are on their way."}},
    ]
    assert beans["steps"][0]["thought"] == "I read the list."
    assert (peas["task"], peas["success"]) == ("Now peas.", False)
    assert peas["steps"][0]["error"] == "Error: no such seed"


@both
def test_a_log_is_read_as_far_as_it_is_whole_and_holds_no_secret_and_no_home(
    host: Host, write: Write, tmp_path: Path
) -> None:
    """A folder of logs, one cut within a line, read twice; then the cut one goes on."""
    lines = [json.dumps(write(event)) for event in SESSION]
    log = tmp_path / "logs/a.jsonl"
    log.parent.mkdir()
    log.write_text("\n".join(lines)[:-9], "utf-8")
    (tmp_path / "logs/copy.jsonl").write_text("\n".join(lines[:8]), "utf-8")  # of a resumed session
    reading = Reading()
    rows = read(tmp_path / "logs", host, reading)
    assert (reading.read, reading.repeated, reading.redacted) == (2, 1, 1)
    assert reading.reasons == {"no-call": 1, "broken-line": 1, "unfinished": 1}
    assert {own.domain for _, own in rows} == {host}
    kept = json.dumps([row for row, _ in rows])
    assert KEY not in kept
    assert "ann" not in kept
    log.write_text("\n".join([*lines, json.dumps(write(("text", "Ordered.")))]), "utf-8")
    read(tmp_path / "logs", host, reading)
    assert (reading.read, reading.repeated) == (3, 4)


def read(path: Path, form: Format, reading: Reading) -> list[Row]:
    return list(read_trajectories([path], form, reading))


HOMES = [
    ("/home/ann/x.py", "~/x.py"),
    ("see /Users/Ann/notes", "see ~/notes"),
    (r"C:\Users\Ann\x.py", r"~\x.py"),
    ("ls /root and /rooted", "ls ~ and /rooted"),
    ("~/.claude/projects/-home-ann-shop/1.jsonl", "~/.claude/projects/~-shop/1.jsonl"),
    ("docker run -v/home/ann/x:/x", "docker run -v~/x:/x"),
    ("https://example.org/home/page and file:///home/ann/x", "https://example.org/home/page and file://~/x"),
    ("src/home/index.tsx docs/Users/a.md [id]/home/b", "src/home/index.tsx docs/Users/a.md [id]/home/b"),
    ("/srv/app/home/page.tsx ../home/x", "/srv/app/home/page.tsx ../home/x"),
    (r"C:\Users\John Smith\x", r"~\x"),
    (r"cd 'C:\Users\John Smith'; C:/Users/John Smith/x", r"cd '~'; ~/x"),
    (r"C:\Users\Jörg Müller", "~"),
    (r"see C:\Users\John Smith now: C:\Users\Ann READ it", "see ~ now: ~ READ it"),
    (r"see C:\Users\Ann or C:/Users/Ann/x", "see ~ or ~/x"),
    ("A=/home/ann/x B:/home/ann 'x'|/home/ann", "A=~/x B:~ 'x'|~"),
    (r"cd\n/home/ann/x /home/jos\u00e9/x", r"cd\n~/x ~/x"),
    ("\x1b[01;34m/home/ann/x\x1b[0m", "\x1b[01;34m~/x\x1b[0m"),
    ("/mnt/c/Users/Ann/x /var/home/ann /usr/home/ann", "~/x ~ ~"),
]


@pytest.mark.parametrize(("text", "told"), HOMES)
def test_home_folders_lose_their_names(text: str, told: str) -> None:
    assert without_homes({"a": [text]}) == {"a": [told]}


def test_keys_that_would_be_one_without_names_of_homes_stay_two() -> None:
    both_homes = {"/home/ann": 1, "/home/bob": 2, "/home/eve/x": 3}
    assert without_homes(both_homes) == {"/home/ann": 1, "/home/bob": 2, "~/x": 3}


def done(call: str, *, failed: bool = False) -> list[Event]:
    return [("call", (call, "Bash", {"command": call})), ("result", (call, call, failed))]


def told(found: Iterator[tuple[str, Any]], host: Host) -> list[tuple[str, Any]]:
    """Return the task and verdict of each run, the place and reason of what is left out."""
    return [
        (value.place, value.reason) if isinstance(value, Unread)
        else ((row := row_of(value, host))["task"], row["success"])
        for _, value in found
    ]  # fmt: skip


A, B = done("a"), done("b", failed=True)
VERDICTS: list[tuple[list[Event], list[tuple[str, Any]]]] = [
    ([("user", "x"), A[0], B[0], B[1], A[1], ("text", "b failed")], [("x", False)]),  # made at once
    ([("user", "x"), *B, *A, ("text", "done")], [("x", True)]),
    ([("user", "x"), *A, *B, ("text", "b failed")], [("x", False)]),
    ([("user", "x"), *A, *B], [("log:1", "unfinished")]),
    ([("user", "x"), A[0], ("user", "y"), A[1], *done("c"), ("text", "done")], [("x", None), ("y", True)]),
    ([*A, ("user", "x"), *done("c"), ("text", "done")], [("log:1", "no-prompt"), ("x", True)]),
    ([("meta", "x"), ("text", "hello")], [("log:1", "no-prompt")]),
    ([("text", "hello"), ("user", "x"), *A, ("text", "done")], [("x", True)]),
]  # fmt: skip


@both
@pytest.mark.parametrize(("events", "expected"), VERDICTS)
def test_a_verdict_follows_the_last_calls_and_the_last_word(
    host: Host, write: Write, events: list[Event], expected: list[tuple[str, Any]]
) -> None:
    assert told(chats(host, write, *events), host) == expected


PROMPTS: list[tuple[str, list[tuple[str, Any]]]] = [
    ("<command-name>/ship</command-name><command-args>it", [("x", None), ("log:4", "command")]),
    ("<command-message>ship</command-message>\n<command-name>/ship", [("x", None), ("log:4", "command")]),
    ("[Request interrupted by user]\nDo y.", [("x", False), ("Do y.", True)]),
    ("<turn_aborted>by user</turn_aborted>Do y.", [("x", False), ("Do y.", True)]),
    ("[Request interrupted by user for tool use]", [("x", False)]),
    ("<system-reminder>a\nb</system-reminder>\nDo y.", [("x", None), ("Do y.", True)]),
    ("Do y.\n<ide_selection>z</ide_selection>", [("x", None), ("Do y.", True)]),
    ("What is a <system-reminder>?", [("x", None), ("What is a <system-reminder>?", True)]),
    ("<bash-input>ls</bash-input>", [("x", True)]),
    ("<bash-stdout>a</bash-stdout><bash-stderr></bash-stderr>", [("x", True)]),
    ("<local-command-stdout>a</local-command-stdout>", [("x", True)]),
    ("<task-notification>a</task-notification>", [("x", True)]),
    ("<user_instructions>a</user_instructions>", [("x", True)]),
]


@both
@pytest.mark.parametrize(("said", "expected"), PROMPTS)
def test_what_hosts_put_into_a_prompt_is_no_part_of_it(
    host: Host, write: Write, said: str, expected: list[tuple[str, Any]]
) -> None:
    events = [("user", "x"), *A, ("user", said), *done("c"), ("text", "done")]
    assert told(chats(host, write, *events), host) == expected


LAST_WORD = codex(("text", "now b"))
CALLS_NEXT = claude(("text", "now b"))
CALLS_NEXT["message"]["stop_reason"] = "tool_use"
BEGUN, ENDED = ({"type": "event_msg", "payload": {"type": f"task_{now}"}} for now in ("started", "complete"))
ASIDES: list[tuple[Host, list[dict[str, Any]], list[tuple[str, Any]]]] = [
    ("claude", [claude(("text", "API Error: 529")) | {"isApiErrorMessage": True}], [("x", False)]),
    ("claude", [
        claude(("user", "This session goes on.")) | {"isCompactSummary": True},
        *map(claude, [*done("c"), ("text", "done")]),
    ], [("x", None), ("log:4", "summary")]),
    ("codex", [LAST_WORD, {"type": "event_msg", "payload": {"type": "turn_aborted"}}], [("x", False)]),
    ("codex", [LAST_WORD, {"type": "event_msg", "payload": {"type": "token_count"}}], [("x", True)]),
    ("claude", [CALLS_NEXT], [("log:1", "unfinished")]),
    ("claude", [CALLS_NEXT, claude(("text", "done"))], [("x", True)]),
    ("codex", [BEGUN, LAST_WORD], [("log:1", "unfinished")]),
    ("codex", [BEGUN, LAST_WORD, ENDED], [("x", True)]),
    ("codex", [BEGUN, LAST_WORD, ENDED, BEGUN, *map(codex, [("user", "y"), *done("c"), ("text", "now d")])], [
        ("x", True), ("log:8", "unfinished"),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("host", "more", "expected"), ASIDES)
def test_lines_that_say_how_a_turn_ended(
    host: Host, more: list[dict[str, Any]], expected: list[tuple[str, Any]]
) -> None:
    lines = [*map(dict(HOSTS)[host], [("user", "x"), *A]), *more]
    assert told(turns([(f"log:{n}", line) for n, line in enumerate(lines, 1)], host), host) == expected


OUTPUTS = [
    ("Exit code: 1\nWall time: 0 seconds\nOutput:\nboom", False),
    ("Exit code: 0\nWall time: 0 seconds\nOutput:\nExit code: 1", True),
    ("Chunk ID: 1\nWall time: 0 seconds\nProcess exited with code 127\nOutput:\nboom", False),
    ("Chunk ID: 1\nProcess running with session ID 5\nOutput:\n", True),
    ("It says\nExit code: 1", True),
    ('{"output": "", "success": false}', False),
]


@pytest.mark.parametrize(("output", "success"), OUTPUTS)
def test_an_answer_of_codex_says_by_its_code_whether_it_failed(output: str, success: bool) -> None:
    result = codex(("result", ("a", "", False)))
    result["payload"]["output"] = output
    lines = [codex(("user", "x")), codex(A[0]), result, codex(("text", "done"))]
    assert told(turns([(f"log:{n}", line) for n, line in enumerate(lines, 1)], "codex"), "codex") == [
        ("x", success)
    ]


def test_a_wrong_format_is_told(tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    log.write_text("\n".join(json.dumps(claude(event)) for event in SESSION), "utf-8")
    reading = Reading()
    assert read(log, "codex", reading) == []
    (one,) = reading.unread
    assert (one.reason, one.place) == ("no-prompt", f"{log}:1")
    assert "is --format right?" in one.detail


@pytest.mark.parametrize("host", ["claude", "codex"])
def test_lines_of_unknown_form_are_passed_over(host: Host) -> None:
    strange: list[Any] = [
        {}, {"type": "user"}, {"type": "user", "message": 1}, {"type": "response_item", "payload": []},
        {"type": "assistant", "message": {"content": [{"type": "tool_use", "id": 1, "name": 2}]}},
        {"type": "response_item", "payload": {"type": "function_call_output", "call_id": "9", "output": "{"}},
        {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "9", "content": 3}]}},
    ]  # fmt: skip
    found = turns([("log:1", line) for line in strange], host)
    assert told(found, host) == [("log:1", "no-prompt")]


@pytest.mark.parametrize("host", ["claude", "codex"])
def test_lines_that_are_no_objects_or_too_deep_are_named(host: Host) -> None:
    deep: Any = "/home/ann"
    for _ in range(900):
        deep = [deep]
    called = {"type": "tool_use", "id": "1", "name": "a", "input": deep}
    line = {"type": "assistant", "message": {"content": [called]}}
    found = [value for _, value in turns([("log:1", [1]), ("log:2", line)], host)]
    assert [value.reason for value in found if isinstance(value, Unread)] == ["no-object", "too-deep"]
