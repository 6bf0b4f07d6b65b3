"""Scripted language models of the tests: by rules they plan, judge, induce, write, type and work."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from tasks.parse.classify.options import known_fragments
from tasks.retrieve.routing.skill import Skill
from tests.support.llm.llm_server import Asked, Say, label_of

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


_LAYERS = ("{} for beginners", "tools for {}", "how to {}", "{} at home", "the craft of {}", "mistakes in {}")


def say(asked: Asked) -> str:
    """Write the task's last words as queries; select skills that share a longer word with the task."""
    record, *skills = asked.fragments
    words = [word for word in re.findall(r"[a-z]+", record["task"].lower()) if len(word) > 3]
    if skills:
        taken = [s["skill"] for s in skills if set(words) & set(re.findall(r"[a-z]+", s["text"].lower()))]
        return json.dumps({"selected": taken})
    subject = " ".join(words[-4:])
    wanted = re.search(r"Write (\d+) queries", asked.prompt)
    if wanted is None:
        return subject
    return json.dumps([layer.format(subject) for layer in _LAYERS[: int(wanted[1])]])


def temperatures(asked: list[Asked]) -> list[float]:
    return [round(float(one.body["temperature"]), 2) for one in asked]


def distractors_of(name: str) -> list[dict[str, str]]:
    """Return a skill of each kind, of texts that have nothing in common."""
    return [
        {
            "kind": kind, "name": f"{name}-{word}", "description": f"Something about {name} and {word}.",
            "body": f"# {word}\n\n" + " ".join(f"{word} {name} {n}" for n in range(60)),
        }
        for kind, word in (("same-domain", "paint"), ("same-tools", "press"), ("too-general", "shop"))
    ]  # fmt: skip


def writes_distractors(asked: Asked) -> str:
    """Speak as a model that makes distractors as it is told."""
    (record,) = asked.fragments
    return json.dumps({"distractors": distractors_of(record["name"])})


Errs = Callable[[str, str], str]


def says(errs: Errs = lambda _text, true: true) -> Say:
    """Return what types fragments: `errs` is given a text and its type, known or of `label_of`."""
    fragments, types = known_fragments()
    known = {fragment.text: true for fragment, true in zip(fragments, types, strict=True)}

    def say(asked: Asked) -> str:
        texts = {f["id"]: f["text"] for f in asked.fragments}
        return json.dumps({k: errs(text, known.get(text, label_of(text))) for k, text in texts.items()})

    return say


_SIZES = (("narrow", 1), ("narrow", 1), ("medium", 2), ("medium", 3), ("broad", 4))


def skill_about(name: str) -> Skill:
    """Return a skill of fourteen sentences of its own."""
    body = "\n".join(f"Turn the {name} crank {n} times before step {n}." for n in range(1, 15))
    return Skill(f"market/{name}/guide", name, f"How to crank a {name}.", f"# {name}\n\n{body}\n")


def requests_about(body: str, name: str) -> list[dict[str, Any]]:
    """Return five requests about a body, each with other lines of it as evidence."""
    lines = [line for line in body.splitlines() if line and not line.startswith(("#", "-", "`"))]
    found, at = [], 0
    for number, (breadth, size) in enumerate(_SIZES, start=1):
        evidence = [{"any_of": [line]} for line in lines[at : at + size]]
        found.append(
            {"breadth": breadth, "query": f"What about {name}, case {number}?", "evidence": evidence}
        )
        at += size
    return found


def writes_five(asked: Asked) -> str:
    """Speak as a model that does as it is told."""
    (record,) = asked.fragments
    return json.dumps({"queries": requests_about(record["body"], record["name"])})


def judges_by_length(asked: Asked) -> str:
    """Find that any excerpt of more than ten words suffices."""
    (record,) = asked.fragments
    return json.dumps({"missing": "nothing", "sufficient": len(record["excerpt"].split()) > 10})


def works(asked: Asked) -> str:
    """Answer a request by the skill's text, else by shrugging; an expectation is met whose words are said."""
    first, *others = asked.fragments
    if "answer" not in first:
        return others[0]["text"] if others else "I would look into it."
    said = set(re.findall(r"\w+", first["answer"].lower()))
    met = [one["number"] for one in others if set(re.findall(r"\w+", one["expectation"].lower())) <= said]
    return json.dumps({"met": met})
