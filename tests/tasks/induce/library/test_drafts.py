"""Drafts are merged where they do the same; near skills are named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.induce.library.build import MOST, SkillDraft, linked, merged
from tasks.induce.skills.actions import Arg, Body, Const, Find, Result, SkillAction, const
from tasks.induce.skills.skill import InducedSkill, skill_id_of
from tests.support.induce.runs import any_body, call, press


def draft(body: Body, name: str = "do", task: str = "t", inducer: str = "llm") -> SkillDraft:
    return SkillDraft(
        InducedSkill(skill_id_of("d", body), "d", name, "Do it.", body, (task,), (), inducer=inducer), []
    )


def renamed(body: Body) -> Body:
    """Return the same actions with other names of parameters."""
    return tuple(
        replace(
            action, args=tuple((n, Arg(f"z{s.name}") if isinstance(s, Arg) else s) for n, s in action.args)
        )
        for action in body
    )


@given(st.lists(any_body(), max_size=5, unique=True))
def test_what_differs_in_names_of_parameters_alone_is_one_skill_with_all_tasks(bodies: list[Body]) -> None:
    drafts = [draft(body, task="a") for body in bodies]
    others = [draft(renamed(body), task="b") for body in bodies]
    found = merged([*drafts, *others], "llm")
    assert found == merged([*others, *drafts][::-1], "llm")
    assert len(found) == len(merged(drafts, "llm")) <= len(bodies)
    assert all(one.skill.tasks == ("a", "b") for one in found)
    assert len({one.skill.name for one in found}) == len(found)
    assert [one.skill.skill_id for one in found] == sorted(one.skill.skill_id for one in found)


def test_a_verdict_holds_for_the_draft_s_own_windows_alone() -> None:
    body = (call("a", x=Arg("p")), call("b"))
    own = SkillDraft(draft(body).skill.with_verdict(("recorded",), 1), [])
    (alone,), (joined,) = merged([own], "llm"), merged([own, draft(renamed(body))], "llm")
    assert (alone.skill.verified, joined.skill.verified) == (("recorded",), ())


def test_other_sources_or_another_use_of_parameters_are_another_skill() -> None:
    twice = (call("a", x=Arg("p")), call("b", x=Arg("p")))
    apart = (call("a", x=Arg("p")), call("b", x=Arg("q")))
    assert len(merged([draft(twice), draft(apart)], "llm")) == 2


def test_the_inducer_s_words_come_before_those_of_recurrence() -> None:
    plain = draft((call("a", x=Arg("p")), call("b")), "a_then_b", "t1", "recurrence")
    theirs = draft((call("a", x=Arg("boat")), call("b")), "moor", "t2")
    for order in ([plain, theirs], [theirs, plain]):
        (found,) = merged(order, "llm")
        assert (found.skill.name, found.skill.inducer, found.skill.tasks) == ("moor", "llm", ("t1", "t2"))


def test_skills_of_one_name_get_the_digits_of_their_ids() -> None:
    drafts = [
        draft((call("a"), call("b"))),
        draft((call("b"), call("a"))),
        draft((call("c"), call("a")), "alone"),
    ]
    names = {one.skill.skill_id: one.skill.name for one in merged(drafts, "llm")}
    assert names == {
        one.skill.skill_id: f"do_{one.skill.skill_id[2:10]}" if one.skill.name == "do" else "alone"
        for one in drafts
    }


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
