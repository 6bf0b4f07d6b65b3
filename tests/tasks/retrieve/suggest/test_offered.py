"""What can be offered in a domain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tasks.induce.windows.recurrence import moments
from tasks.retrieve.suggest.offered import Offered
from tests.support.induce.runs import add_bed, mooring
from tests.support.models.word_models import WordEncoder


def learned(*runs: tuple[str, str]) -> tuple[Offered, WordEncoder]:
    encoder = WordEncoder()
    offered = Offered(encoder.encode)
    for name, task_id in runs:
        run = mooring(name, task_id)
        offered.learn(moments(run))
    encoder.encoded.clear()
    return offered, encoder


def test_support_is_the_number_of_tasks_and_not_of_trajectories() -> None:
    offered, _ = learned(("h1", "a"), ("h2", "a"), ("h3", "b"))
    assert offered.support().tolist() == [2, 2, 2]
    assert offered.support("a").tolist() == offered.support("b").tolist() == [1, 1, 1]
    assert offered.support("c").tolist() == [2, 2, 2]


def test_a_skill_of_one_task_alone_has_no_support_without_it() -> None:
    offered, _ = learned(("h1", "a"), ("h2", "a"))
    assert offered.support("a").tolist() == [0, 0, 0]


def test_a_skill_is_described_on_the_page_that_most_of_its_tasks_had() -> None:
    offered, _ = learned()
    (found, *_) = moments(add_bed("g1", "a"))
    for page, tasks in (
        ("on the Beds page", "abc"),
        ("on the Home page", "abcd"),
        ("on the Admin page", "abcd"),
    ):
        for task_id in tasks:
            offered.learn([replace(found, page=page, task_id=task_id)])
    assert offered.description(0) == "Click the beds link, then click the add bed button (on the Admin page)."


def test_a_page_that_two_tasks_had_often_is_not_named() -> None:
    offered, _ = learned()
    (found, *_) = moments(add_bed("g1", "a"))
    for task_id in "ababab":
        offered.learn([replace(found, page="on Ann's page", task_id=task_id)])
    assert offered.description(0) == "Click the beds link, then click the add bed button."


def test_a_skill_that_is_described_already_keeps_its_words() -> None:
    (found, *_) = moments(add_bed("g1", "a"))
    offered = Offered(WordEncoder().encode, {found.bodies[0]: "Adds a bed."})
    offered.learn([found])
    assert offered.description(0) == "Adds a bed."


def test_texts_are_encoded_once() -> None:
    offered, encoder = learned(("h1", "a"), ("h2", "b"))
    vectors, states = offered.vectors(), offered.states()
    offered.learn(moments(mooring("h3", "a")))
    offered.vectors()
    offered.states()
    met = [moment.state for moment in moments(mooring("h1", "a")) if moment.bodies]
    assert encoder.encoded == [*map(offered.description, range(3)), *met]
    assert len(states) == len(met)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)


def test_nothing_is_offered_before_anything_is_learned() -> None:
    offered, _ = learned()
    assert (offered.skills, offered.support("a").tolist()) == ([], [])
    offered.learn([])
    assert (offered.skills, offered.support().tolist()) == ([], [])


def test_uses_are_told_once_by_skill() -> None:
    offered, _ = learned(("h1", "a"), ("h2", "b"), ("h3", "b"))
    uses = offered.uses()
    # Of three skills two begin at the first step and one at the second, in two tasks.
    assert uses.skill.tolist() == [0, 0, 1, 1, 2, 2]
    assert uses.first.tolist() == [0, 2, 4]
    assert uses.task.tolist() == [offered.number_of_task(task) for task in "ababab"]
    assert uses.state.tolist() == [0, 0, 0, 0, 1, 1]
    begun, found = offered.number_of_target(None), offered.number_of_target(("find_berth", None, None))
    assert uses.before.tolist() == [begun] * 4 + [found] * 2
    assert offered.number_of_target(("new", None, None)) == offered.number_of_task("new") == -1
