"""Rows of trajectories: a garden shop's tools, and its page."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

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
