"""Naming of skills and of what their callers give, by the actions alone."""

from __future__ import annotations

import hashlib
import itertools
import json
import keyword
import re

from tasks.induce.skills.actions import Arg, Body, SkillAction, Source, told
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
    return SkillAction(action.name, action.role, action.target, tuple(own))


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
    ends = [body[0], body[-1]] if len(body) > 1 else [body[0]]
    return identifier(
        "_then_".join("_".join((action.name, _slug(action.target or ""))).strip("_") for action in ends)
    )
