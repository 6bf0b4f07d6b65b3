"""Near skills: which are named, and that none is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.induce.library.near import MOST, linked
from tasks.induce.skills.actions import Arg, Body, Const, Find, Result, SkillAction, const
from tasks.induce.skills.skill import InducedSkill
from tests.support.induce.runs import call, press

OPEN, SAVE = press("link", "beds"), press("button", "save")
FIND = call("find_berth", boat=Arg("boat"))
HOLD = call("hold_berth", code=Arg("code"))


def skill(number: int, *body: SkillAction) -> InducedSkill:
    return InducedSkill(f"d/{number:04}", "d", "s", "", body, ("t",), (("r", 0),))


def are_near(first: Body, second: Body) -> bool:
    one, other = linked([skill(1, *first), skill(2, *second)])
    assert (one.near == (other.skill_id,)) == (other.near == (one.skill_id,))
    return bool(one.near)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((FIND, HOLD), (FIND, call("hold_berth", code=Result(0, ("code",))))),
        ((FIND, HOLD), (FIND, call("hold_berth", code=Const(const("B7"))))),
        ((OPEN, SAVE), (OPEN, press("button", "save", Find(1)))),
        ((OPEN, SAVE), (press("link", "12 beds"), SAVE)),
        ((press("tab", "page 2 of 9"), SAVE), (press("tab", "page of"), SAVE)),
        ((OPEN, SAVE), (OPEN, SAVE, FIND)),
        ((OPEN, SAVE), (FIND, OPEN, SAVE)),
        ((OPEN, OPEN), (OPEN, OPEN, OPEN)),
    ],
)
def test_skills_are_near_if_sources_numbers_or_an_end_differ(first: Body, second: Body) -> None:
    assert are_near(first, second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((OPEN, SAVE), (SAVE, OPEN)),
        ((OPEN, SAVE), (press("button", "beds"), SAVE)),
        ((OPEN, SAVE), (press("link", "bedsteads"), SAVE)),
        ((OPEN, SAVE), (press("link", "beds", name="hover"), SAVE)),
        ((press("button", "7"), SAVE), (press("button", "8"), SAVE)),
        ((press("button", ""), SAVE), (press("button", "8"), SAVE)),
        ((OPEN, SAVE), (OPEN, FIND, SAVE)),
        ((OPEN, SAVE), (OPEN, SAVE, FIND, HOLD)),
        ((OPEN,), (SAVE,)),
    ],
)
def test_skills_that_do_something_else_are_not_near(first: Body, second: Body) -> None:
    assert not are_near(first, second)


def test_at_most_twenty_are_named_those_that_do_the_same_actions_first() -> None:
    longer = [skill(number, OPEN, SAVE, FIND) for number in range(15)]
    same = [skill(number, OPEN, SAVE) for number in range(100, 115)]
    found = linked([*longer, *same])

    assert found[-1].near == tuple(f"d/{number:04}" for number in (*range(6), *range(100, 114)))
    assert all(len(one.near) == MOST for one in found)
    first, *others = linked([skill(number, OPEN, SAVE) for number in range(25)])
    assert first.near == tuple(one.skill_id for one in others[:MOST])


ACTIONS = st.sampled_from([OPEN, SAVE, FIND, HOLD, press("link", "3 beds"), call("find_berth")])


@given(st.lists(st.lists(ACTIONS, min_size=1, max_size=4), max_size=10), st.randoms(use_true_random=False))
def test_links_go_both_ways_and_do_not_depend_on_order(
    bodies: list[list[SkillAction]], chance: object
) -> None:
    given = [skill(number, *body) for number, body in enumerate(bodies)]
    found = {one.skill_id: one for one in linked(given)}
    shuffled = sorted(given, key=lambda _: chance.random())  # type: ignore[attr-defined]

    assert [replace(one, near=()) for one in found.values()] == given
    assert {one.skill_id: one for one in linked(shuffled)} == found
    assert all(one in found[other].near for one in found for other in found[one].near)
    assert all(list(one.near) == sorted({*one.near} - {one.skill_id}) for one in found.values())
