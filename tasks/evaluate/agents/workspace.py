"""A workspace of files as an environment: what the task files say is there, and what should be there.

    python -m tasks.evaluate.agents.workspace

It runs in a task's folder, whose `task.json` has `files`, texts by their paths, and `expected`: the same of
all files that the task makes or changes, null for those that must be gone. All others must stay as they were.
Files lie in memory alone. The lines that it answers are those of `tasks.induce.replay.environment`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Workspace:
    """The files of a task, and what was asked of them."""

    def __init__(self, files: Mapping[str, str], expected: Mapping[str, str | None]) -> None:
        self._before, self._expected = dict(files), expected
        self._files = dict(files)

    def do(self, name: str, args: Mapping[str, Any]) -> str:
        """Return what an action gives.

        Raises:
            ValueError: There is no such action, argument or file.
        """
        path, text, to = (str(args.get(key, "")) for key in ("path", "text", "to"))
        match name:
            case "list_files":
                return "\n".join(sorted(self._files))
            case "find_text":
                lines = [(one, line) for one, whole in self._files.items() for line in whole.splitlines()]
                return "\n".join(f"{one}: {line}" for one, line in lines if text in line) or "nothing"
            case "write_file" if path and "text" in args:
                self._files[path] = text
            case "read_file" | "delete_file" | "move_file" if path not in self._files:
                msg = f"there is no file {path!r}"
                raise ValueError(msg)
            case "read_file":
                return self._files[path]
            case "delete_file":
                del self._files[path]
            case "move_file" if to:
                self._files[to] = self._files.pop(path)
            case _:
                msg = f"there is no action {name!r} with the arguments {', '.join(args) or 'none'}"
                raise ValueError(msg)
        return "done"

    def score(self) -> float:
        """Return the share of what was expected that is so; 0 if a file that should stay has changed."""
        kept = {one: text for one, text in self._before.items() if one not in self._expected}
        now = {one: text for one, text in self._files.items() if one not in self._expected}
        right = [_plain(self._files.get(one)) == _plain(text) for one, text in self._expected.items()]
        return sum(right) / len(right) if right and kept == now else 0.0


def _plain(text: str | None) -> list[str] | None:
    """Return lines without blanks at their ends, and without empty ones at the end of the text."""
    return None if text is None else [line.rstrip() for line in text.rstrip().splitlines()]


def answered(asked: Mapping[str, Any], world: Workspace) -> dict[str, Any]:
    """Return the answer to a line of a world, but to a reset."""
    if asked["op"] == "score":
        return {"score": world.score()}
    try:
        return {"observation": world.do(asked["action"]["name"], asked["action"]["args"]), "error": None}
    except ValueError as error:
        return {"observation": f"Error: {error}", "error": str(error)}


def main() -> None:
    """Answer lines until there are no more."""
    held = json.loads(Path("task.json").read_text("utf-8"))
    world = Workspace(held["files"], held["expected"])
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["op"] == "reset":
            world, answer = Workspace(held["files"], held["expected"]), {"observation": "", "error": None}
        else:
            answer = answered(asked, world)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
