"""Actions of an induced skill as data: what each acts on, and where each of its arguments comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage.errors import WrongInput

KEY = "@key"  # at the end of a path: the key of the entry before it
Path = tuple[str | int, ...]
LEAST, MOST = 2, 5  # actions of a skill


@dataclass(frozen=True, slots=True)
class Arg:
    """The caller gives it under a name: a value, or an element of the page at the call."""

    name: str


@dataclass(frozen=True, slots=True)
class Const:
    """It is always the same; `told` is the value as JSON."""

    told: str

    @property
    def value(self) -> Any:  # noqa: ANN401
        """The value."""
        return json.loads(self.told)


@dataclass(frozen=True, slots=True)
class Result:
    """It is read off what an action of the skill gave, by a path.

    A text in the path is a key, a number a place in a list or among an object's entries; `@key` at its end is
    the key of the entry before it.
    """

    action: int
    path: Path


@dataclass(frozen=True, slots=True)
class Find:
    """It is the n-th element, from 0 on, of the action's role and label on the page when its turn comes."""

    ordinal: int


Source = Arg | Const | Result | Find


@dataclass(frozen=True, slots=True)
class SkillAction:
    """An action of a skill, with the source of each argument by its name, in the order of names.

    `role` and `target` are role and label of what it acts on; None where that is left to the caller, and
    where there is no page.
    """

    name: str
    role: str | None
    target: str | None
    args: tuple[tuple[str, Source], ...]

    def source(self, name: str) -> Source | None:
        """Return the source of an argument; None if it has none of that name."""
        return dict(self.args).get(name)


Body = tuple[SkillAction, ...]


def told(body: Body) -> list[dict[str, Any]]:
    """Return the actions as JSON holds them: `{name, role, target, args: {name: source}}`.

    A source is `{"arg": name}`, `{"const": value}`, `{"result": action, "path": [...]}` or
    `{"find": ordinal}`.
    """
    return [
        {
            "name": action.name,
            "role": action.role,
            "target": action.target,
            "args": {name: _told(source) for name, source in action.args},
        }
        for action in body
    ]


def _told(source: Source) -> dict[str, Any]:
    match source:
        case Arg(name):
            return {"arg": name}
        case Const():
            return {"const": source.value}
        case Result(action, path):
            return {"result": action, "path": list(path)}
        case Find(ordinal):
            return {"find": ordinal}


def body_of(rows: Sequence[Mapping[str, Any]]) -> Body:
    """Return the actions of what `told` gave.

    Raises:
        WrongInput: A row lacks a field, or a source is not known.
    """
    try:
        return tuple(
            SkillAction(
                row["name"], row["role"], row["target"],
                tuple(sorted((name, _source(held)) for name, held in row["args"].items())),
            )
            for row in rows
        )  # fmt: skip
    except (KeyError, TypeError, AttributeError) as error:
        msg = f"actions of a skill are not as they must be: {error!r}"
        raise WrongInput(msg) from error


def _source(held: Mapping[str, Any]) -> Source:
    if "arg" in held:
        return Arg(held["arg"])
    if "const" in held:
        return Const(const(held["const"]))
    if "result" in held:
        return Result(int(held["result"]), tuple(held["path"]))
    return Find(int(held["find"]))


def const(value: object) -> str:
    """Return a value as `Const` holds it."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
