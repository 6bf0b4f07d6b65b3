"""A small library that lends books: a world in this process, and one behind a command.

`python lending.py [MISCHIEF]` speaks JSON lines. MISCHIEF is what the process does when it is asked for a
step: `die`, `hang`, `nonsense`, `no-object`, `two-lines`, `flood`, `no-text`; or `forget`: a reset resets
nothing; or `alone`: it knows nobody to speak to.
"""

from __future__ import annotations

import copy
import json
import shlex
import sys
import time
from typing import Any

MEMBERS: dict[str, dict[str, Any]] = {
    f"m_{name}": {
        "name": name.title(),
        "email": f"{name}@example.com",
        "loans": [f"L{number}1", f"L{number}2"],
        "cards": {f"card_{number}7": {"kind": kind}, f"card_{number}9": {"kind": "paper"}},
    }
    for number, (name, kind) in enumerate((("ada", "plastic"), ("ben", "plastic"), ("cleo", "metal")), 1)
}
LOANS: dict[str, dict[str, Any]] = {
    loan: {"loan_id": loan, "member_id": member, "copies": [f"{loan}a", f"{loan}b"], "shelf": f"S{loan}"}
    for member, held in MEMBERS.items()
    for loan in held["loans"]
}


class Lending:
    """The library: its members, their loans, and what was renewed."""

    def __init__(self) -> None:
        self.members, self.loans = copy.deepcopy(MEMBERS), copy.deepcopy(LOANS)
        self.renewed: list[dict[str, Any]] = []

    def do(self, name: str, args: dict[str, Any]) -> str:
        """Return what an action gives; a KeyError tells that there is no such thing."""
        if name == "find_member":
            return next(key for key, own in self.members.items() if own["email"] == args["email"])
        if name == "get_member":
            return json.dumps(self.members[args["member_id"]])
        if name == "get_loan":
            return json.dumps(self.loans[args["loan_id"]])
        if name == "renew_loan":
            self.renewed.append({**args, "was": self.loans[args["loan_id"]]["copies"]})
            return json.dumps({"renewed": args["loan_id"], "times": len(self.renewed)})
        return {"send_msg_to_user": ""}[name]


def lending(mischief: str = "") -> str:
    """Return the command line of the library."""
    return shlex.join([sys.executable, __file__, *([mischief] if mischief else [])])


def main() -> None:
    """Answer lines until there are no more."""
    mischief, world = sys.argv[1:] and sys.argv[1], Lending()
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["op"] == "reset":
            world = world if mischief == "forget" else Lending()
            unknown = None if asked["domain"] == "lending" else "no such domain"
            answer: dict[str, Any] = {"observation": "", "error": unknown}
        elif asked["op"] == "digest":
            answer = {"digest": json.dumps(world.renewed, sort_keys=True)}
        else:
            if misbehave(mischief):
                continue
            answer = stepped(world, asked["action"], alone=mischief == "alone")
        print(json.dumps(answer), flush=True)  # noqa: T201


def stepped(world: Lending, action: dict[str, Any], *, alone: bool) -> dict[str, Any]:
    """Return the answer to a step."""
    try:
        if alone and action["name"] == "send_msg_to_user":
            raise KeyError(action["name"])
        return {"observation": world.do(action["name"], action["args"]), "error": None}
    except (KeyError, TypeError, StopIteration) as error:
        return {"observation": "", "error": f"there is no {error}"}


def misbehave(mischief: object) -> bool:
    """Do what the process was started to do, and tell whether that stands for an answer."""
    if mischief == "die":
        sys.exit("the library burned down")
    if mischief == "hang":
        time.sleep(600)
    while mischief == "flood":
        sys.stdout.write("x" * 65536)
    said = {
        "nonsense": "Welcome!",
        "no-object": "[1]",
        "two-lines": "{}\n{}",
        "no-text": '{"observation": 1}',
    }
    if not isinstance(mischief, str) or mischief not in said:
        return False
    print(said[mischief], flush=True)  # noqa: T201
    return True


if __name__ == "__main__":
    main()
