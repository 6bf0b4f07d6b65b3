"""Near skills of a domain: they do the same but for numbers in labels, sources, or an action at an end.

Windows overlap, so that procedures recur with other bounds (SGDR, section 4.2, arXiv 2606.04391).
All are kept, as their arguments come from different places, which fit different states.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tasks.induce.skills.actions import Body
from tasks.induce.skills.skill import InducedSkill

MOST = 20  # near skills that are named
_NUMBERS = re.compile(r"[\W\d_]+")
Shape = tuple[tuple[str, str | None, str | None], ...]
_Groups = Mapping[Shape, Sequence[str]]


def linked(skills: Sequence[InducedSkill]) -> list[InducedSkill]:
    """Return skills of a domain with the ids of those that are near each, sorted.

    Two are near if they do the same actions in the same order, on elements of the same roles whose labels are
    the same but for numbers, wherever their arguments come from, or if one does so without its first or its
    last action. At most 20 are named, those that do the same actions first, then in the order of their ids.

    Args:
        skills: All of the domain; their order is kept and decides nothing.
    """
    same, longer = defaultdict[Shape, list[str]](list), defaultdict[Shape, list[str]](list)
    for skill in sorted(skills, key=lambda one: one.skill_id):
        shape = shape_of(skill.body)
        same[shape].append(skill.skill_id)
        for part in _without_an_end(shape):
            longer[part].append(skill.skill_id)
    return [replace(skill, near=_near(skill, same, longer)) for skill in skills]


def shape_of(body: Body) -> Shape:
    """Return what near skills share: names of actions, roles, and labels without numbers."""
    return tuple((action.name, action.role, _lettered(action.target)) for action in body)


def _lettered(label: str | None) -> str | None:
    # A label without letters is all that tells its element from others.
    return label and (" ".join(_NUMBERS.sub(" ", label).split()) or label)


def _without_an_end(shape: Shape) -> Iterator[Shape]:
    yield from (part for part in dict.fromkeys((shape[1:], shape[:-1])) if part)


def _near(skill: InducedSkill, same: _Groups, longer: _Groups) -> tuple[str, ...]:
    shape = shape_of(skill.body)
    # Of a group no more are read than can be named: it may hold most skills of a domain.
    alike = [one for one in same[shape][: MOST + 1] if one != skill.skill_id]
    parts = (same.get(part, ())[:MOST] for part in _without_an_end(shape))
    others = {one for group in (longer.get(shape, ())[:MOST], *parts) for one in group}
    return tuple(sorted([*alike, *sorted(others)][:MOST]))
