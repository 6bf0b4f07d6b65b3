"""Merged drafts: what differs in names of parameters alone is one skill, and no name is lost."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tasks.induce.library.drafts import SkillDraft, merged
from tasks.induce.skills.actions import Arg, Body
from tasks.induce.skills.naming import skill_id_of
from tasks.induce.skills.skill import InducedSkill
from tests.support.induce.runs import any_body, call


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
