"""A workspace of files as an environment: what a task's file says is there, and what should be there.

    python -m tasks.evaluate.agents.workspace

It runs in a task's folder, whose `task.json` has `files`, texts by their paths, and `expected`: the same of
all files that the task makes or changes, null for those that must be gone. All others must stay as they were.
Files lie in memory alone. The lines that it answers are those of `tasks.induce.replay.environment`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def _plain(text: str | None) -> list[str] | None:
    """Return lines without blanks at their ends, and without empty ones at the end of the text."""
    return None if text is None else [line.rstrip() for line in text.rstrip().splitlines()]


def done(files: dict[str, str], name: str, args: dict[str, Any]) -> str:
    """Do an action to files, and return what it gives; raises `ValueError` if it cannot be done."""
    path, text, to = (str(args.get(key, "")) for key in ("path", "text", "to"))
    match name:
        case "list_files":
            return "\n".join(sorted(files))
        case "find_text":
            lines = [f"{one}: {line}" for one, whole in files.items() for line in whole.splitlines()]
            return "\n".join(line for line in lines if text in line.partition(": ")[2]) or "nothing"
        case "write_file" if path and "text" in args:
            files[path] = text
        case "read_file" | "delete_file" | "move_file" if path not in files:
            raise ValueError(f"there is no file {path!r}")
        case "read_file":
            return files[path]
        case "delete_file":
            del files[path]
        case "move_file" if to:
            files[to] = files.pop(path)
        case _:
            msg = f"{name}({', '.join(args)}) is no action: see the list for its name and all its arguments"
            raise ValueError(msg)
    return "done"


def score(now: dict[str, str], before: dict[str, str], expected: dict[str, str | None]) -> float:
    """Return the share of what was expected that is so; 0 if a file that should stay has changed."""
    if any(now.get(one) != before.get(one) for one in {*now, *before} - expected.keys()):
        return 0.0
    return sum(_plain(now.get(one)) == _plain(text) for one, text in expected.items()) / len(expected)


def main() -> None:
    """Answer lines until there are no more."""
    held = json.loads(Path("task.json").read_text("utf-8"))
    files: dict[str, str] = {}
    for line in sys.stdin:
        asked, answer = json.loads(line), dict[str, Any](observation="", error=None)
        if asked["op"] == "reset":
            files = dict(held["files"])
        elif asked["op"] == "score":
            answer = {"score": score(files, held["files"], held["expected"])}
        else:
            try:
                answer["observation"] = done(files, asked["action"]["name"], asked["action"]["args"])
            except ValueError as error:
                answer = {"observation": f"Error: {error}", "error": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
