"""Redaction: secrets in a trajectory's row are replaced, the same one by the same placeholder everywhere.

What a result gave and a later action was given stays equal, so that the action is still bound to the result.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from tasks.induce.trajectories.cleaning import ELEMENT
from tasks.induce.trajectories.outline import outline_of
from tasks.induce.trajectories.record import Trajectory
from tasks.models.redact import secrets_in

_IDS = frozenset({"trajectory_id", "task_id", "domain"})  # what these name must stay the same
# A shorter secret, as a password, may be part of an unrelated word.
_LEAST_ALONE = 16


def redacted(row: Mapping[str, Any], trajectory: Trajectory) -> Mapping[str, Any]:
    """Return a row with a placeholder `[redacted:KIND-N]` for each secret; the row itself if it has none.

    What is a secret is decided as in skills (`tasks.models.redact`), of each text with the name under
    which it stands, and of what is filled into an element with the element's label. It is replaced wherever
    it stands, one of less than 16 characters as a whole word; N is its number among those of its kind.
    """
    placeholders: dict[str, str] = {}
    found = _found([*_named(row, ""), *_filled(trajectory)])
    while new := {secret: kind for secret, kind in found.items() if secret not in placeholders}:
        _number(new, placeholders)
        row = _with(placeholders, row)
        # A placeholder may be what parts a secret from its neighbour.
        found = _found(_named(row, ""))
    return row


def _found(texts: Iterable[str]) -> dict[str, str]:
    return {secret: kind for text in texts for secret, kind in secrets_in(text).items()}


def _named(value: object, name: str) -> Iterator[str]:
    """Yield the texts of a value of JSON, each with the name under which it stands, names in order."""
    if isinstance(value, Mapping):
        for key in sorted(value.keys() - _IDS):
            yield from _named(value[key], key)
    elif isinstance(value, list):
        for each in value:
            yield from _named(each, name)
    elif isinstance(value, str):
        yield f'"{name}": "{value}"'


def _filled(trajectory: Trajectory) -> Iterator[str]:
    for step in trajectory.steps:
        args = step.action.args
        texts = [value for name, value in args.items() if name != ELEMENT and isinstance(value, str)]
        if texts and ELEMENT in args:
            element = outline_of(step.observation).elements.get(str(args[ELEMENT]))
            label = element.label.replace(" ", "_") if element else ""
            yield from (f'"{label}": "{text}"' for text in texts)


def _number(secrets: Mapping[str, str], placeholders: dict[str, str]) -> None:
    """Add a placeholder for each secret, the same for its forms: plain, and as a text of JSON has it."""
    numbers = Counter(name.rpartition("-")[0] for name in set(placeholders.values()))
    for secret, kind in secrets.items():
        plain, head = _plain(secret), f"[redacted:{kind}"
        if plain not in placeholders:
            numbers[head] += 1
            placeholders[plain] = f"{head}-{numbers[head]}]"
        forms = (secret, json.dumps(plain)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1])
        placeholders |= dict.fromkeys(forms, placeholders[plain])


def _plain(secret: str) -> str:
    """Return a secret as it is where a text of JSON has been parsed."""
    with suppress(ValueError):
        return str(json.loads(f'"{secret}"'))
    return secret


def _with(placeholders: Mapping[str, str], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with placeholders for secrets; names of fields, actions and arguments stay."""
    longest_first = sorted(placeholders, key=lambda secret: (-len(secret), secret))
    pattern = re.compile("|".join(map(_whole, longest_first)))

    def change(value: object) -> object:
        if isinstance(value, Mapping):
            return {change(name): change(each) for name, each in value.items()}
        if isinstance(value, list):
            return [change(each) for each in value]
        return pattern.sub(lambda found: placeholders[found[0]], value) if isinstance(value, str) else value

    own = {name: value if name in _IDS else change(value) for name, value in row.items()}
    return {**own, "steps": [_step(step, change) for step in row["steps"]]}


def _whole(secret: str) -> str:
    escaped = re.escape(secret)
    return escaped if len(secret) >= _LEAST_ALONE else f"(?<![A-Za-z0-9]){escaped}(?![A-Za-z0-9])"


def _step(step: Mapping[str, Any], change: Callable[[object], object]) -> dict[str, Any]:
    action = step["action"]
    args = {name: change(value) for name, value in action.get("args", {}).items()}
    own = {name: change(value) for name, value in step.items()}
    return {**own, "action": {**action, "args": args}}
