"""The gate's look back: a new version that lost too many rows is not served."""

from __future__ import annotations

from storage.lance import NODES, SKILLS, connect, open_at
from storage.root import Root
from storage.served import read_served
from tasks.retrieve.checks import Check
from tasks.retrieve.index import Built


def check_shrink(root: Root, built: Built, *, max_shrink: float, few: int) -> list[Check]:
    """Compare the rows of the built tables with those of the version served; nothing served, no check.

    Args:
        root: Where the tables lie.
        built: The versions to check.
        max_shrink: The share of rows that may be lost, 0 to 1.
        few: Losing no more rows than this is no shrink, whatever their share.

    Raises:
        StorageError: What is served cannot be opened.
    """
    served = read_served(root)
    if served is None:
        return []
    db, checks = connect(root), []
    for name, rows, before in (
        (SKILLS, built.skills_rows, served.skills),
        (NODES, built.nodes_rows, served.nodes),
    ):
        if before is not None and (name == SKILLS or built.nodes is not None):
            held = open_at(db, name, before).count_rows()
            share = max(0.0, (held - rows) / held) if held - rows > few else 0.0
            passed = share <= max_shrink
            checks.append(Check(f"{name}.shrink", passed, round(share, 4), max_shrink, "may be at most"))
    return checks
