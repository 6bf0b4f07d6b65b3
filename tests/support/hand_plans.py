"""Plans written by hand, as `compose` answers them, to be drawn and printed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from tasks.retrieve.compose.dependencies import Dependency, planned

FROM = {"source": "dir:shelf", "url": None, "licence": "MIT", "commit": None}


def hand_plan(
    texts: Sequence[str],
    edges: Sequence[tuple[int, int, str]] = (),
    gaps: Collection[int] = (),
    conditions: dict[int, str] | None = None,
    ids: dict[int, str] | None = None,
) -> dict[str, Any]:
    """Return a plan of steps that stand in an order in which they can be done; all numbers are from 1."""
    found = planned(len(texts), [Dependency(a - 1, b - 1, kind, "") for a, b, kind in edges])
    assert list(found.order) == list(range(len(texts)))
    groups = [[place + 1 for place in group] for group in found.groups]
    steps = []
    for number, text in enumerate(texts, start=1):
        doc_id = None if number in gaps else (ids or {}).get(number, f"shelf/skill-{number}")
        others = [f"shelf/other-{number}-{k}" for k in range(4)]
        candidates = [{"doc_id": d, "kind": "skill", **FROM} for d in ([doc_id] if doc_id else []) + others]
        steps.append({
            "step": number, "text": text, "doc_id": doc_id, "gap": doc_id is None, "confidence": 0.7,
            "group": next(k for k, group in enumerate(groups, start=1) if number in group),
            "after": sorted(d.before + 1 for d in found.dependencies if d.after == number - 1),
            "condition": (conditions or {}).get(number), "candidates": candidates,
        })  # fmt: skip
    kept = [{"from": d.before + 1, "to": d.after + 1, "type": d.kind, "why": ""} for d in found.dependencies]
    return {
        "query": ", ".join(texts), "steps": steps, "edges": kept, "groups": groups, "left_out": [],
        "tokens": {"chosen": 1200, "pages": 0, "all": 9000}, "took_ms": 12.3,
    }  # fmt: skip


def party() -> dict[str, Any]:
    """Return a plan with steps side by side, a fan-in, a condition, an edge past a group, and a gap."""
    return hand_plan(
        [
            "fetch the guest list",
            "order flour",
            "look up the weather",
            "bake",
            "move it indoors",
            "invite all",
        ],
        [(2, 4, "data"), (3, 5, "condition"), (4, 5, "order"), (1, 6, "data"), (5, 6, "order")],
        gaps=[3],
        conditions={5: "if it rains"},
    )
