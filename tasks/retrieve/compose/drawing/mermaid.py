"""Mermaid: a plan as a flowchart in text, which many wikis and forges draw themselves.

The task's text and third parties' names are data. Whatever in them might mean something to Mermaid, to the
Markdown that it reads in labels, or to HTML is written as a numbered entity: `#35;` is `#`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tasks.retrieve.graph.layout import one_line

_CHARACTERS = 200  # of a text; Mermaid breaks lines itself
# Letters, digits and these are written as they are. A dot inside a word may make it a link.
_MEANING = re.compile(r"[^\w ,/.-]|_|\.(?=\S)|(?<!\w)-|-(?!\w)")
_ARROWS = {"data": "-->", "order": "-.->", "condition": "==>"}
_LOOKS = """\
  classDef gap fill:#fff,stroke:#a32020,stroke-width:2px,stroke-dasharray:5 3
  classDef served fill:#fff,stroke:#444"""


def as_mermaid(plan: Mapping[str, Any]) -> str:
    """Return a plan as the text of a Mermaid flowchart; the same plan gives the same text.

    Steps that may be done side by side stand in a subgraph. An edge is named for its type, and has an arrow
    of its own. A step that nothing served fits is of class `gap`.
    """
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: Mapping[str, Any]) -> Iterator[str]:
    yield "flowchart TD"
    steps = {step["step"]: step for step in plan["steps"]}
    if not steps:
        yield '  none["no step, as nothing is asked for"]'
        return
    for number, group in enumerate(plan["groups"], start=1):
        if len(group) > 1:
            yield f'  subgraph g{number}["group {number}, side by side"]'
        for step in group:
            yield f"{'    ' if len(group) > 1 else '  '}{_node(steps[step])}"
        if len(group) > 1:
            yield "  end"
    for edge in plan["edges"]:
        yield f"  s{edge['from']} {_ARROWS[edge['type']]}|{edge['type']}| s{edge['to']}"
    yield _LOOKS
    for name, gap in (("served", False), ("gap", True)):
        if members := [f"s{n}" for n, step in steps.items() if step["gap"] == gap]:
            yield f"  class {','.join(members)} {name}"


def _node(step: Mapping[str, Any]) -> str:
    """Return the node of a step.

    Each of its lines begins with a word of ours, because Markdown would read a list in `1.` or `-`.
    """
    lines = [f"step {step['step']}, {escaped(step['text'])}"]
    if step["condition"]:
        lines.append(f"only {escaped(step['condition'])}")
    if step["gap"]:
        lines.append("nothing served fits this step")
    else:
        lines.append(f"by {escaped(step['doc_id'])}, {round(100 * step['confidence'])} percent sure")
    return f's{step["step"]}["{"<br/>".join(lines)}"]'


def escaped(text: str) -> str:
    """Return a text on one line that a label of Mermaid shows as it is."""
    return _MEANING.sub(lambda found: f"#{ord(found[0])};", one_line(text, _CHARACTERS))
