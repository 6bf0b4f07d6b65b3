"""What tests of benches share: a model that writes requests about what it is shown, and one that judges."""

from __future__ import annotations

import json
from typing import Any

from tasks.retrieve.routing.skill import Skill
from tests.support.llm.llm_server import Asked

_SIZES = (("narrow", 1), ("narrow", 1), ("medium", 2), ("medium", 3), ("broad", 4))


def skill_about(name: str, lines: int = 14) -> Skill:
    """Return a skill of so many sentences of its own."""
    body = "\n".join(f"Turn the {name} crank {n} times before step {n}." for n in range(1, lines + 1))
    return Skill(f"market/{name}/guide", name, f"How to crank a {name}.", f"# {name}\n\n{body}\n")


def requests_about(body: str, name: str) -> list[dict[str, Any]]:
    """Return five requests about a body, each with other lines of it as evidence."""
    lines = [line for line in body.splitlines() if line and not line.startswith(("#", "-", "`"))]
    found, at = [], 0
    for number, (breadth, size) in enumerate(_SIZES, start=1):
        evidence = [{"any_of": [line]} for line in lines[at : at + size]]
        found.append(
            {"breadth": breadth, "query": f"What about {name}, case {number}?", "evidence": evidence}
        )
        at += size
    return found


def writes_five(asked: Asked) -> str:
    """Speak as a model that does as it is told."""
    (record,) = asked.fragments
    return json.dumps({"queries": requests_about(record["body"], record["name"])})


def judges_by_length(asked: Asked) -> str:
    """Find that any excerpt of more than ten words suffices."""
    (record,) = asked.fragments
    return json.dumps({"missing": "nothing", "sufficient": len(record["excerpt"].split()) > 10})
