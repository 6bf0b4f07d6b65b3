"""Actions of an induced skill as data: what each acts on, and where each of its arguments comes from."""

from __future__ import annotations

import json
import keyword
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from storage.errors import WrongInput
from tasks.induce.trajectories.cleaning import ELEMENT

KEY = "@key"  # at the end of a path: the key of the entry before it
ON, FROM = "on", "_from"  # what code has for itself: an argument, and how names of arguments may end
Path = tuple[str | int, ...]
LEAST, MOST = 2, 5  # actions of a skill that is cut out of windows
Granularity = str  # what skills are cut out of (`windows.windows`): one of these, or `window:LEAST-MOST`
GRANULARITIES: tuple[Granularity, ...] = ("window", "trajectory", "action")


@dataclass(frozen=True, slots=True)
class Arg:
    """The caller gives it under a name: a value, or an element of the page at the call."""

    name: str


@dataclass(frozen=True, slots=True)
class Const:
    """It is always the same; `told` is the value as `const` gives it."""

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
            "name": action.name, "role": action.role, "target": action.target,
            "args": {name: _told(source) for name, source in action.args},
        }
        for action in body
    ]  # fmt: skip


def granularity_of(text: object) -> Granularity:
    """Return what skills are cut out of, by its name; raises `WrongInput` if it has none."""
    if text in GRANULARITIES or window_lengths(text) is not None:
        return str(text)
    msg = f"--granularity {text!s:.40} is not known: name one of {', '.join(GRANULARITIES)}, or window:2-5"
    raise WrongInput(msg)


def window_lengths(granularity: object) -> tuple[int, int] | None:
    """Return the least and the most actions of a window, None where skills are cut out of something else."""
    if granularity == "window":
        return LEAST, MOST
    found = re.fullmatch(r"window:([1-9])-([1-9])", str(granularity))
    least, most = map(int, found.groups()) if found else (1, 0)
    return (least, most) if least <= most else None


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
    """Return the actions of what `told` gave; raise `WrongInput` for what code cannot say (`checked`)."""
    try:
        body = tuple(
            SkillAction(
                row["name"], row["role"], row["target"],
                tuple((name, _source(held)) for name, held in sorted(row["args"].items(), key=itemgetter(0))),
            )
            for row in rows
        )  # fmt: skip
    except (KeyError, TypeError, AttributeError) as error:
        raise WrongInput(f"actions of a skill are not as they must be: {error!r}") from error
    return checked(body)


def _source(held: Mapping[str, Any]) -> Source:
    if "arg" in held:
        return Arg(held["arg"])
    if "const" in held:
        return Const(const(held["const"]))
    if "result" in held:
        return Result(held["result"], tuple(held["path"]))
    return Find(held["find"])


def const(value: object) -> str:
    """Return a value as `Const` holds it, as JSON with keys in order; raise `WrongInput` if JSON has none."""
    try:
        # Keys that are numbers become texts, and only then have their order.
        held = json.loads(json.dumps(value, allow_nan=False))
        return json.dumps(held, sort_keys=True, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise WrongInput(f"a value of a skill must be one of JSON: {error}") from error


def is_name(text: object) -> bool:
    """Tell whether code can say a text as a name, and the parser gives back the same one."""
    is_one = isinstance(text, str) and text.isidentifier() and not keyword.iskeyword(text)
    return is_one and text != "__debug__" and unicodedata.normalize("NFKC", str(text)) == text


def is_sayable(name: object) -> bool:
    """Tell whether code can say an argument of an action of that name."""
    return is_name(name) and name != ON and not str(name).endswith(FROM)


def checked(body: Body) -> Body:
    """Return the actions of a skill, of which code can say all.

    Raises:
        WrongInput: A name is none of Python; a role stands without a label; a source is out of its range:
            a result of no earlier action of the skill, an element found where no role says which.
    """
    for place, action in enumerate(body):
        on_element = isinstance(action.role, str) and isinstance(action.target, str)
        if not is_name(action.name) or (not on_element and (action.role, action.target) != (None, None)):
            msg = f"action {place}: an action has a name, and is on a role and a label, or on neither"
            raise WrongInput(msg)
        if len({name for name, _ in action.args}) < len(action.args):
            raise WrongInput(f"action {place}: {action.name} is given an argument twice")
        for name, source in action.args:
            is_right = _is_in_range(source, place, on_element=on_element and name == ELEMENT)
            if not (is_sayable(name) and is_right):
                msg = f"action {place}: {action.name} cannot have {str(name)[:60]!r} from {source!r:.120}"
                raise WrongInput(msg)
    return body


def _is_in_range(source: Source, place: int, *, on_element: bool) -> bool:
    match source:
        case Arg(name):
            return is_name(name)
        case Const():
            return True
        case Result(number, path):
            is_earlier = _is_number(number) and number < place
            return is_earlier and all(isinstance(key, str) or _is_number(key) for key in path)
        case Find(ordinal):
            return on_element and _is_number(ordinal)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
