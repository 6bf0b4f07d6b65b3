"""The figures of the papers, as they are packaged."""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any


@functools.cache
def papers(part: str) -> dict[str, Any]:
    """Return what the papers measured.

    Args:
        part: `compose` (SkillWeaver: shares, and our method for each row of table 2), `paging` (SkillPager,
            by table: rows of `label`, our `method` and, where given, in per cent, `sufficient`, `interval`,
            `nodes` and `reduction`) or `routing` (by method: `table`, and each measure that is given).
    """
    file = resources.files("tasks.evaluate").joinpath(f"data/papers_{part}.json")
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return found
