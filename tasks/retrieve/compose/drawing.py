"""Drawing of a plan: as the text of a Mermaid flowchart, which many wikis draw themselves, or as an SVG file.

The task's text and third parties' names are data. Whatever in them might mean something to Mermaid, to the
Markdown that it reads in labels, or to HTML is written as a numbered entity: `#35;` is `#`.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tasks.models.visible import visible
from tasks.retrieve.graph.layout import MOST_CHARACTERS, Line, lay_out, one_line
from tasks.retrieve.graph.svg import Arc, Dot, Legend, Look, Picture, svg_file

_CHARACTERS = 200  # of a text; Mermaid breaks lines itself
# Letters, digits and these are written as they are. A dot inside a word may make it a link.
_MEANING = re.compile(r"[^\w ,/.-]|_|\.(?=\S)|(?<!\w)-|-(?!\w)")
_ARROWS = {"data": "-->", "order": "-.->", "condition": "==>"}
_MERMAID_LOOKS = """\
  classDef gap fill:#fff,stroke:#a32020,stroke-width:2px,stroke-dasharray:5 3
  classDef served fill:#fff,stroke:#444"""
# Dashes tell edges apart for readers who cannot tell colours (Okabe and Ito's).
EDGE_LOOKS: Mapping[str, Look] = {
    "data": ("#0072B2", ""), "order": ("#6E6E6E", "6 3"), "condition": ("#D55E00", "2 3"),
}  # fmt: skip
_STEP_LOOKS: Mapping[str, Look] = {"served": ("#00507D", ""), "gap": ("#A32020", "")}
_WIDE = MOST_CHARACTERS[1] - 6  # characters of a line; a wide one counts twice


def as_mermaid(plan: Mapping[str, Any]) -> str:
    """Return a plan as the text of a Mermaid flowchart; the same plan gives the same text.

    Steps that may be done side by side stand in a subgraph. An edge is named for its type, and has an arrow
    of its own. A step that nothing served fits is of class `gap`.
    """
    return "\n".join(_mermaid_lines(plan)) + "\n"


def _mermaid_lines(plan: Mapping[str, Any]) -> Iterator[str]:
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
    yield _MERMAID_LOOKS
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


def plan_file(plan: Mapping[str, Any]) -> bytes:
    """Return a plan as an SVG file: a line a step, grouped, and an arc a dependency, by type.

    A step that nothing served fits has a red dot. The same plan gives the same bytes.
    """
    steps = plan["steps"]
    dots = {
        str(step["step"]): Dot(*(("gap", "gap") if step["gap"] else ("served", "step"))) for step in steps
    }
    arcs = [Arc(str(edge["from"]), str(edge["to"]), edge["type"]) for edge in plan["edges"]]
    lines = list(_plan_lines(plan)) or [Line("no step: nothing is asked for")]
    gaps = sum(step["gap"] for step in steps)
    counts = ", ".join(
        f"{n} {name}{'' if n == 1 else 's'}" for n, name in ((len(steps), "step"), (gaps, "gap"))
    )
    kinds = Counter(edge["type"] for edge in plan["edges"])
    legend = Legend(
        plan["query"], counts,
        {
            "served": (_STEP_LOOKS["served"], f"served {len(steps) - gaps}"),
            "gap": (_STEP_LOOKS["gap"], f"nothing served fits {gaps}"),
        },
        {kind: (look, f"{kind} {kinds[kind]}") for kind, look in EDGE_LOOKS.items()},
    )  # fmt: skip
    return svg_file(Picture(lines, dots, arcs), lay_out(lines, one_column=True), legend)


def _plan_lines(plan: Mapping[str, Any]) -> Iterator[Line]:
    steps = {step["step"]: step for step in plan["steps"]}
    for number, group in enumerate(plan["groups"], start=1):
        yield Line(f"group {number}{', side by side' if len(group) > 1 else ''}", heading=True)
        for step in (steps[place] for place in group):
            first, *rest = _broken(f"{step['step']}. {step['text']}")
            yield Line(first, str(step["step"]))
            notes = [*rest, *(_broken(f"only: {step['condition']}") if step["condition"] else [])]
            if step["gap"]:
                notes.append("nothing served fits this step")
            else:
                notes += [*_broken(step["doc_id"]), f"{step['confidence']:.0%} sure"]
            yield from (Line(note) for note in notes)


def _broken(text: str) -> list[str]:
    """Return a text in at most three lines, broken between words."""
    shown = visible(" ".join(text.split()))
    wide = any(unicodedata.east_asian_width(character) in "WF" for character in shown)
    return textwrap.wrap(shown, _WIDE // 2 if wide else _WIDE, max_lines=3, placeholder=" …") or [""]
