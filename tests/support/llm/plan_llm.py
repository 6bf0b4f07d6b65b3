"""A language model of the tests that plans by rules: cuts requests, names candidates, chooses, searches."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.support.llm.llm_server import Asked

_CUT = re.compile(r"(?:,|\.|;)\s*(?:and\s+)?(?:then\s+)?|\s+and\s+then\s+|\s+and\s+")


def record_of(asked: Asked) -> dict[str, Any]:
    """Return the data of a question."""
    (record,) = asked.fragments
    return record


def hints_of(asked: Asked) -> list[str]:
    """Return the names that a question about steps shows, in either wording."""
    record = record_of(asked)
    told = record["hint_list"].split(", ") if "hint_list" in record else []
    return told or [service["name"] for service in record.get("services", ())]


def plans(asked: Asked) -> str:
    """Answer every question about plans."""
    record = record_of(asked)
    if "candidates" in record:
        best = max(record["candidates"], key=lambda c: _shared(c["description"], record["step"]))
        return json.dumps({"best": best["number"]})
    if "turns" in record:
        return _turn(record)
    if "number" in (record.get("services") or [{}])[0]:
        fitting = sorted(record["services"], key=lambda s: -_shared(s["name"], record["request"]))
        return json.dumps({"services": [fitting[0]["number"]]})
    return json.dumps(cut(record.get("request") or record["query"]))


def cut(text: str) -> list[str]:
    """Return the pieces of a text between signs, "and" and "then"."""
    return [piece.strip() for piece in _CUT.split(text) if len(piece.split()) > 1]


def _turn(record: dict[str, Any]) -> str:
    """Search for each piece of the request, then use the first that each search found."""
    pieces, turns = cut(record["request"]), record["turns"]
    if len(turns) < len(pieces):
        words = pieces[len(turns)]
        return json.dumps({"thought": "look", "action": "search", "search": words, "use": []})
    firsts = [turn["found"][0]["number"] for turn in turns]
    return json.dumps({"thought": "done", "action": "finish", "search": "", "use": firsts})


def _shared(one: str, other: str) -> int:
    return len(_words(one) & _words(other))


def _words(text: str) -> set[str]:
    return {word[:4] for word in re.findall(r"[a-z]{3,}", text.lower())}
