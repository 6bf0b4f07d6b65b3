"""A language model of the tests that writes queries and selects skills by rules."""

from __future__ import annotations

import json
import re

from tests.support.llm.llm_server import Asked

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
