"""The forms in which measures of a stream of trajectories are printed for a person."""

from __future__ import annotations

from typing import Any

from flows.commands.console import say, table

_MEASURES = ("usable@5", "action@5", "decisions", "reachable")


def print_stream(found: dict[str, Any]) -> None:
    """Print the measures of methods that offer skills, with 95 % intervals over tasks."""
    read = found["trajectories"]
    say(f"{read['read']} trajectories, {read['successful']} of them successful, {found['steps']} steps")
    if read["unread"]:
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(read["unread"].items()))
        say(f"not read: {reasons}")
    rows = found["methods"]
    cells = [
        [row["method"], *(f"{row[measure]:.3f}" for measure in _MEASURES), _interval(row)] for row in rows
    ]
    table("skills offered", ["method", *_MEASURES, "95 % of usable@5"], cells)
    domains = list(rows[0]["by_domain"]) if rows else []
    cells = [[row["method"], *(f"{row['by_domain'][d]['usable@5']:.3f}" for d in domains)] for row in rows]
    table("usable@5 by domain", ["method", *domains], cells)
    for row in rows:
        if against := row["against"]:
            low, high = against["ci95"]
            say(
                f"{rows[0]['method']} less {row['method']}: {against['difference']:+.3f} over tasks"
                f" [{low:+.3f}, {high:+.3f}], adjusted p {against['adjusted_p']:.4f}"
            )
    for file in found.get("report", ()):
        say(f"written: {file}")


def _interval(row: dict[str, Any]) -> str:
    low, high = row["ci95"]["usable@5"]
    return f"{low:.3f} to {high:.3f}"
