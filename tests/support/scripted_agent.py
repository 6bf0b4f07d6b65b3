"""`python scripted_agent.py [MISCHIEF [FILE]]`: an agent that does the example's tasks on some attempts.

The task at place n, by name, is done on the first n % 4 attempts, and on all of them if a skill was read. On
others the agent ends at once, or does its MISCHIEF: `die`, `nonsense`, `hang` (when it has made FILE),
`wander` (it never ends).
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TASKS = Path(__file__).parents[2] / "tasks/evaluate/data/agents"
NAMES = sorted(path.parent.name for path in TASKS.glob("*/instruction.md"))
PASSED = [place % 4 for place in range(len(NAMES))]  # of three attempts, without skills


def scripted(mischief: str = "") -> str:
    """Return what `--agent` is given for this agent."""
    return "command:" + shlex.join([sys.executable, __file__, *([mischief] if mischief else [])])


def acts(first: dict[str, Any], mischief: str) -> Iterator[dict[str, Any]]:
    if any(skill["form"] == "read" for skill in first["skills"]):
        yield {"name": "read_skill", "args": {"skill": first["skills"][0]["id"]}, "tokens": 7}
    elif first["attempt"] >= PASSED[NAMES.index(first["task_id"])]:
        while mischief:
            yield {"name": "list_files", "args": {}}
        yield {"name": "done", "args": {}}
    expected = json.loads((TASKS / first["task_id"] / "task.json").read_text("utf-8"))["expected"]
    for path, text in expected.items():
        name, args = ("write_file", {"text": text}) if text is not None else ("delete_file", {})
        yield {"name": name, "args": {"path": path, **args}, "tokens": 10, "cost": 0.5}
    yield {"name": "done"}


def main() -> None:
    mischief, script = (sys.argv[1:] or [""])[0], None
    for line in sys.stdin:
        asked = json.loads(line)
        script = script or acts(asked, mischief)
        act = next(script)
        if mischief != "wander" and act["name"] == "list_files":
            if mischief == "hang":
                for file in sys.argv[2:]:
                    Path(file).touch()
                time.sleep(600)
            if mischief == "die":
                sys.exit("the agent fell asleep")
            act = {"thought": "what now?"}
        print(json.dumps(act), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
