"""Recordings of the small library and of a few pages, with the skills that do them again; rows of runs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tasks.induce.replay.window import SourceWindow
from tasks.induce.skills.actions import Body
from tasks.induce.skills.windows import bodies, windows
from tasks.induce.trajectories.cleaning import cleaned
from tasks.induce.trajectories.record import Action, Step, Trajectory, trajectory_of
from tests.support.induce.lending import MEMBERS, Lending

Did = tuple[str, dict[str, Any]]


def renewal(name: str, loan: int = 0) -> Trajectory:
    """Record that all copies of a member's loan are renewed, and that the member is told."""
    member = MEMBERS[f"m_{name}"]
    number = member["loans"][loan]
    card = list(member["cards"])[loan]
    did: list[Did] = [
        ("find_member", {"email": member["email"]}),
        ("get_member", {"member_id": f"m_{name}"}),
        ("get_loan", {"loan_id": number}),
        ("renew_loan", {"card": card, "copies": [f"{number}a", f"{number}b"], "desk": "north",
                        "loan_id": number}),
        ("get_loan", {"loan_id": number}),
        ("send_msg_to_user", {"text": "It is done."}),
    ]  # fmt: skip
    task = f"Renew what {member['email']} has on loan, at the desk north, please."
    return recorded(f"renewal-{name}-{loan}", task, did)


def recorded(name: str, task: str, did: list[Did]) -> Trajectory:
    """Record actions in the library as they are done there."""
    world, seen, steps = Lending(), f"user: {task}", []
    for t, (action, args) in enumerate(did):
        steps.append(Step(t, seen, Action(action, args)))
        seen = f"{action} returned: {world.do(action, args)}"
    return Trajectory(name, name, "lending", task, True, tuple(steps), seen)


_LIST = """[1] button "Compose"
[2] link "Inbox 3"
[3] clickable "Anna: Lunch on Friday"
  [4] checkbox ""
[5] clickable "Omar: Harvest plan"
  [6] checkbox ""
"""
_MAIL = """[{0}] button "Back"
[{1}] heading "Harvest plan"
[{2}] button "Reply"
[{3}] button "Reply"
"""
_REPLY = """[31] button "Back"
[32] textbox "Message" value="{}"
[33] textbox "Subject" value=""
[34] button "Send"
"""


def mails() -> Trajectory:
    """Record that a mail is answered: pages, whose elements change their ids."""
    did = [
        (_LIST, "click", {"element": "6"}),
        (_LIST.replace("[6] checkbox", "[6] checkbox checked"), "click", {"element": "5"}),
        (_MAIL.format(11, 12, 13, 14), "click", {"element": "14"}),
        (_REPLY.format(""), "fill", {"element": "32", "text": "Gladly"}),
        (_REPLY.format("Gladly"), "click", {"element": "34"}),
    ]
    steps = [
        {"t": t, "observation": page, "action": {"name": name, "args": args}}
        for t, (page, name, args) in enumerate(did)
    ]
    row = {"trajectory_id": "mails", "task_id": "mails", "domain": "mail", "success": True, "steps": steps}
    return trajectory_of({**row, "task": "Answer 'Harvest plan' with: Gladly", "final": _LIST})


def windows_of(trajectory: Trajectory) -> list[tuple[Body, SourceWindow]]:
    """Return the skills that do a trajectory's windows again, each with its window."""
    steps, _ = cleaned(trajectory)
    held = (trajectory.trajectory_id, trajectory.domain, trajectory.task, steps)
    return [
        (body, SourceWindow(*held, start, length))
        for start in range(len(steps))
        for length in windows(steps, start)
        for body in bodies(trajectory.task, steps, start, length)
    ]


def whole(trajectory: Trajectory, length: int) -> tuple[Body, SourceWindow]:
    """Return the skill, with most read inside it, that does a trajectory's first actions again."""
    found = [(body, window) for body, window in windows_of(trajectory) if window.length == length]
    return next(each for each in reversed(found) if each[1].start == 0)


PAGE = '[1] button "Seeds"\n[2] textbox "Search" value=""\ntext "3 packets"'


def step(
    name: str, observation: str = "user: Hello", /, error: str | None = None, **args: object
) -> dict[str, Any]:
    return {"observation": observation, "action": {"name": name, "args": args}, "error": error}


def row(*steps: dict[str, Any], trajectory_id: str = "run-1", **fields: object) -> dict[str, Any]:
    """Return a row; one that orders seeds by tools where no steps are given."""
    own = steps or (
        step("find_seed", "user: Order beans.", name="beans"),
        step("order", 'find_seed returned: {"id": "b1"}', seed_id="b1", packets=2),
    )
    return {
        "trajectory_id": trajectory_id,
        "task_id": "order-beans",
        "domain": "garden",
        "task": "Order beans.",
        "success": True,
        "steps": list(own),
        "final": "order returned: done",
        **fields,
    }


def lines_of(*rows: object) -> bytes:
    return "".join(json.dumps(each) + "\n" for each in rows).encode()


def written(path: Path, *rows: object) -> Path:
    """Write rows as JSON lines, gzipped if the name says so."""
    held = lines_of(*rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(held) if path.suffix == ".gz" else held)
    return path
