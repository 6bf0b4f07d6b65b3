"""Code and names of a skill: one Python function of bare calls, which says all that its actions do, and back.

Arguments of calls are names of parameters or values. What an action is on is `on=[ROLE, LABEL]`, where the
caller gives the element, or `on=[ROLE, LABEL, ORDINAL]`, where it is found; what is read off the result of an
earlier call is `NAME_from=[CALL, KEY, ...]`. Nothing here is ever executed.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import json
import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from storage.errors import WrongInput
from tasks.induce.skills.actions import (
    FROM,
    LEAST,
    MOST,
    ON,
    Arg,
    Body,
    Const,
    Find,
    Granularity,
    Result,
    SkillAction,
    Source,
    body_of,
    checked,
    const,
    granularity_of,
    told,
)  # fmt: skip
from tasks.induce.trajectories.cleaning import ELEMENT

_SIGN = re.compile(r"\W+", re.ASCII)
_WORDS = 3  # of a label that stand in a name
_MOST_NAME = 60  # characters


def with_names(body: Body) -> Body:
    """Return a skill's actions with a name of its own for each argument that the caller gives."""
    used: set[str] = set()
    return tuple(_named(action, used) for action in body)


def _named(action: SkillAction, used: set[str]) -> SkillAction:
    own: list[tuple[str, Source]] = []
    for name, source in action.args:
        if isinstance(source, Arg):
            called = parameter_name(action, name)
            numbered = (f"{called}_{number}" for number in itertools.count(2))
            free = next(each for each in itertools.chain([called], numbered) if each not in used)
            used.add(free)
            own.append((name, Arg(free)))
        else:
            own.append((name, source))
    return replace(action, args=tuple(own))


def parameter_name(action: SkillAction, name: str) -> str:
    """Return what an argument is called: by what the action is on, where that is an element."""
    if action.role is None:
        return identifier(name)
    label = _slug(action.target or "")
    if name == ELEMENT:
        return identifier(f"{label}_{action.role}")
    return identifier(f"{label or action.role}_{name}")


def _slug(label: str) -> str:
    return "_".join(_SIGN.sub(" ", label).split()[:_WORDS])


def identifier(text: str) -> str:
    """Return a text as an identifier that is no word of Python."""
    name = _SIGN.sub("_", text).strip("_").lower()[:_MOST_NAME] or "value"
    return f"{name}_" if keyword.iskeyword(name) else f"_{name}" if name[0].isdigit() else name


def parameters(body: Body) -> list[str]:
    """Return what the caller gives, in the order in which it is needed first."""
    names = [source.name for action in body for _, source in action.args if isinstance(source, Arg)]
    return list(dict.fromkeys(names))


def skill_id_of(domain: str, body: Body) -> str:
    """Return the id of a skill: its domain and a digest of its actions."""
    held = json.dumps(told(body), sort_keys=True, ensure_ascii=False)
    return f"{domain}/{hashlib.sha256(held.encode(errors='surrogatepass')).hexdigest()[:16]}"


def with_id(name: str, skill_id: str) -> str:
    """Return a name that other skills have too with the first digits of the skill's id."""
    return f"{name}_{skill_id.rpartition('/')[2][:8]}"


def function_name(body: Body) -> str:
    """Return the name of a skill's function: what its first and its last action do."""
    ends = (body[0], body[-1]) if len(body) > 1 else body
    return identifier("_then_".join(f"{one.name}_{_slug(one.target or '')}".strip("_") for one in ends))


_FOUND = 3  # entries of `on` where the element is found


def code_of(name: str, body: Body) -> str:
    """Return the function of a skill."""
    lines = [f"def {name}({', '.join(parameters(body))}):"]
    return "\n".join([*lines, *(f"    {_call(action)}" for action in body)]) + "\n"


def _call(action: SkillAction) -> str:
    own = [_argument(name, source) for name, source in action.args if not isinstance(source, Find)]
    if action.role is not None:
        found = [source.ordinal for _, source in action.args if isinstance(source, Find)]
        own.append(f"{ON}={[action.role, action.target, *found]!r}")
    return f"{action.name}({', '.join(own)})"


def _argument(name: str, source: Arg | Const | Result) -> str:
    match source:
        case Arg(given):
            return f"{name}={given}"
        case Const():
            return f"{name}={source.value!r}"
        case Result(number, path):
            return f"{name}{FROM}={[number, *path]!r}"


# What is given by position to the actions of pages (SGDR, table 5); other actions take named arguments alone.
_BY_POSITION: Mapping[str, tuple[str, ...]] = {
    "click": (ELEMENT,), "fill": (ELEMENT, "text"), "hover": (ELEMENT,), "keyboard_press": ("key",),
    "scroll": ("delta_x", "delta_y"), "tab_focus": ("index",), "goto": ("url",),
    "select_option": (ELEMENT, "option"), "send_msg_to_user": ("text",), "report_infeasible": ("reason",),
}  # fmt: skip


def actions_of(
    code: str, allowed: Sequence[str] | None = None, *, least: int = LEAST, most: int = MOST
) -> tuple[str, Body]:
    """Return the name and the actions of a function; exactly those that `code_of` was given.

    Actions of pages may be given their arguments by position, as in SGDR's printed skills. `allowed` are the
    actions of the domain, None means any; the function has `least` to `most` calls.

    Raises:
        WrongInput: It is no function of so many bare calls of allowed actions with names or values.
    """
    try:
        (function,) = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise WrongInput(f"the code of a skill must be one function: {error}") from error
    if not isinstance(function, ast.FunctionDef) or function.decorator_list:
        raise WrongInput("the code of a skill must be one function without decorators")
    given = _parameters(function)
    if not least <= len(function.body) <= most:
        raise WrongInput(f"{function.name}: a skill has {least} to {most} calls, not {len(function.body)}")
    body = checked(tuple(_action(function.name, line, given, allowed) for line in function.body))
    if unused := given - set(parameters(body)):
        raise WrongInput(f"{function.name}: parameters that no call is given: {', '.join(sorted(unused))}")
    return function.name, body


def _parameters(function: ast.FunctionDef) -> set[str]:
    own = function.args
    if own.vararg or own.kwarg or own.kwonlyargs or own.posonlyargs or own.defaults:
        raise WrongInput(f"{function.name}: parameters are names alone")
    return {each.arg for each in own.args}


def _action(name: str, line: ast.stmt, given: set[str], allowed: Sequence[str] | None) -> SkillAction:
    call = line.value if isinstance(line, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise WrongInput(f"{name}, line {line.lineno}: a line is one bare call")
    names = _BY_POSITION.get(call.func.id, ())
    if len(call.args) > len(names):
        msg = f"{name}, line {line.lineno}: {call.func.id} takes {len(names)} arguments without names"
        raise WrongInput(msg)
    if allowed is not None and call.func.id not in allowed:
        raise WrongInput(f"{name}, line {line.lineno}: {call.func.id} is no action of the domain")
    told = [*zip(names, call.args, strict=False), *((each.arg or "**", each.value) for each in call.keywords)]
    held = dict(told)
    if len(held) < len(told):
        raise WrongInput(f"{name}, line {line.lineno}: an argument is given twice")
    on = _value(held.pop(ON), name) if ON in held else [None, None]
    if not isinstance(on, list) or len(on) not in (_FOUND - 1, _FOUND):
        msg = f"{name}, line {line.lineno}: what it is on is [role, label] or [role, label, ordinal]"
        raise WrongInput(msg)
    args = [_source(key, value, given, name) for key, value in held.items()]
    if len(on) == _FOUND:
        args.append((ELEMENT, Find(on[2])))
    return SkillAction(call.func.id, on[0], on[1], tuple(sorted(args, key=lambda each: each[0])))


def _source(key: str, value: ast.expr, given: set[str], name: str) -> tuple[str, Source]:
    if isinstance(value, ast.Name):
        if value.id not in given:
            raise WrongInput(f"{name}: {value.id} is no parameter")
        return key, Arg(value.id)
    held = _value(value, name)
    if key.endswith(FROM) and isinstance(held, list) and held:
        return key.removesuffix(FROM), Result(held[0], tuple(held[1:]))
    return key, Const(const(held))


def _value(value: ast.expr, name: str) -> object:
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        msg = f"{name}, line {value.lineno}: arguments of calls are parameters or values"
        raise WrongInput(msg) from error


@dataclass(frozen=True, slots=True)
class InducedSkill:
    """A skill of a domain.

    `tasks` are those whose trajectories did it, `sources` the trajectories and steps at which they did;
    `verified` names the replays that it passed, in `verified_sources` of its sources; `inducer` found it;
    `near` are the ids of skills that do nearly the same (`library.build.linked`); `granularity` is what all
    of its library are cut out of.
    """

    skill_id: str
    domain: str
    name: str
    description: str
    body: Body
    tasks: tuple[str, ...]
    sources: tuple[tuple[str, int], ...]
    verified: tuple[str, ...] = ()
    verified_sources: int = 0
    inducer: str = "recurrence"
    near: tuple[str, ...] = ()
    granularity: Granularity = "window"

    @property
    def support(self) -> int:
        """The number of tasks that did it."""
        return len(self.tasks)

    @property
    def callable(self) -> str:
        """`state` if all that it needs is known when it is called, else `bound` (beyond SGDR's rule)."""
        sources = (source for action in self.body for _, source in action.args)
        return "state" if all(isinstance(source, Arg | Const) for source in sources) else "bound"

    @property
    def code(self) -> str:
        """Its function."""
        return code_of(self.name, self.body)

    def told(self) -> dict[str, Any]:
        """Return what is kept and printed of it."""
        return {
            "skill_id": self.skill_id, "domain": self.domain, "name": self.name,
            "description": self.description, "code": self.code, "actions": told(self.body),
            "callable": self.callable, "support": self.support, "inducer": self.inducer,
            "granularity": self.granularity,
            "verified": {"how": list(self.verified), "sources": self.verified_sources},
            "near": list(self.near), "tasks": list(self.tasks),
            "sources": [{"trajectory_id": one, "t": t} for one, t in self.sources],
        }  # fmt: skip


def skill_told(record: Mapping[str, Any]) -> InducedSkill:
    """Return the skill of which `InducedSkill.told` gives a record."""
    return InducedSkill(
        record["skill_id"], record["domain"], record["name"], record["description"],
        body_of(record["actions"]), tuple(record["tasks"]),
        tuple((one["trajectory_id"], one["t"]) for one in record["sources"]),
        tuple(record["verified"]["how"]), record["verified"]["sources"], record["inducer"],
        tuple(record["near"]), granularity_of(record["granularity"]),
    )  # fmt: skip
