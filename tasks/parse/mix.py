"""The corpus' node types beside those that SkillPager reports."""

from __future__ import annotations

from typing import Any

from storage.root import Root
from storage.schemas import NODE_TYPES
from storage.state import nodes_table

# SkillPager, table 3: shares of 22,774 nodes of 395 skills, in percent.
SKILLPAGER = {
    "concept": 49.9, "param": 22.7, "step": 11.5, "example": 11.1, "precondition": 2.5, "error_handling": 2.2,
}  # fmt: skip


def node_type_mix(root: Root) -> list[dict[str, Any]]:
    """Return a row a node type: how many nodes, their share in percent, and SkillPager's share."""
    types = nodes_table(root).read(columns=["node_type"])
    counts = dict(types.group_by("node_type").len().iter_rows())
    total = max(sum(counts.values()), 1)
    return [
        {
            "node_type": t,
            "nodes": counts.get(t, 0),
            "percent": round(100 * counts.get(t, 0) / total, 1),
            "skillpager_percent": SKILLPAGER[t],
        }
        for t in sorted(NODE_TYPES, key=lambda t: -SKILLPAGER[t])
    ]
