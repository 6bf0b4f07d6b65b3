"""A language model of the tests that judges runs, writes skills of windows and sums up states by rules."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tests.support.llm.llm_server import Asked
from tests.support.llm.plan_llm import record_of

SUCCESS = 'Thoughts: a change was wanted, and it is seen.\nStatus: "success"'
_NAME = re.compile(r"def (\w+)\(")


def teaches(asked: Asked) -> str:
    """Answer every question about runs, windows and states."""
    record = record_of(asked)
    if "windows" in record:
        return skills(*(skill_of(window) for window in record["windows"]))
    return SUCCESS if "intent" in record else "A page of the greenhouse, where beds can be added."


def windows_of(asked: Asked) -> list[dict[str, Any]]:
    """Return the windows that a question is about; none if it is about something else."""
    found: list[dict[str, Any]] = record_of(asked).get("windows", [])
    return found


def skills(*rows: Mapping[str, Any]) -> str:
    """Return an answer about windows."""
    return json.dumps({"skills": rows})


def skill_of(window: Mapping[str, Any], **fields: object) -> dict[str, Any]:
    """Return what is said of a window: its own code under another name, or as the fields say."""
    (name,) = _NAME.findall(window["code"])
    called = f"routine_{name}"[:60].strip("_")
    return {
        "window_idx": window["window_idx"], "reusable": True, "func_name": called,
        "description": f"Carry out a routine: {window['does'][:200].lower()}",
        "code": window["code"].replace(f"def {name}(", f"def {called}("),
        **fields,
    }  # fmt: skip
