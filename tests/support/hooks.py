"""A host that runs the hook, as hosts do: an event on standard input, a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HOOK = [sys.executable, "-c", "from flows.cli.start import main; main()", "hook"]
EVENTS = {"claude": "UserPromptSubmit", "codex": "UserPromptSubmit", "gemini": "BeforeAgent"}


def event(agent: str, prompt: str, session: str = "s1") -> bytes:
    """Return the event of a prompt, with what its host tells beside it."""
    told = {
        "session_id": session, "transcript_path": "/nowhere", "cwd": "/", "hook_event_name": EVENTS[agent],
        "prompt": prompt,
    }  # fmt: skip
    own: dict[str, dict[str, str]] = {
        "claude": {"permission_mode": "default", "prompt_id": "1"},
        "codex": {"permission_mode": "default", "turn_id": "1", "model": "m"},
        "gemini": {"timestamp": "2026-01-01T00:00:00Z"},
    }
    return json.dumps({**told, **own[agent]}).encode()


def run_hook(
    given: bytes, *options: str, state: Path, command: list[str] | None = None, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, "XDG_STATE_HOME": str(state), **environment}
    return subprocess.run(
        [*(command or HOOK), *options], input=given, capture_output=True, env=env, check=False
    )


def context(done: subprocess.CompletedProcess[bytes], agent: str) -> str:
    """Return what the hook tells; a host takes its output as JSON, and these keys alone."""
    assert done.returncode == 0, done.stderr
    if not done.stdout:
        return ""
    told: dict[str, Any] = json.loads(done.stdout)
    assert told.keys() == {"hookSpecificOutput"}
    assert told["hookSpecificOutput"].keys() == {"hookEventName", "additionalContext"}
    assert told["hookSpecificOutput"]["hookEventName"] == EVENTS[agent]
    return str(told["hookSpecificOutput"]["additionalContext"])
