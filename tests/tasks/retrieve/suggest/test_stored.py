"""Rows of the table `induced`: what they say comes back as it was."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.induce.library.build import build
from tasks.induce.replay.verify import RecordedReplay
from tasks.induce.skills.windows import decision_points
from tasks.induce.skills.wording import summed_up
from tasks.induce.trajectories.record import Trajectory
from tasks.retrieve.suggest.methods import Offered
from tasks.retrieve.suggest.stored import (
    RUN,
    SKILL,
    STATE,
    InducedRow,
    domain_of,
    rows_of_domain,
)
from tests.support.induce.learning import RUNS
from tests.support.induce.runs import add_bed, mooring
from tests.support.models.word_models import WordEncoder

GREENHOUSE = [run for run in RUNS if run.domain == "greenhouse"]
SKILLS = build("greenhouse", GREENHOUSE, RecordedReplay()).skills


def rows(runs: list[Trajectory]) -> list[InducedRow]:
    cut = ((run, decision_points(run)) for run in runs)
    return list(rows_of_domain("greenhouse", SKILLS, cut, summed_up))


def table(given: list[InducedRow]) -> pa.Table:
    """Return rows as they are stored, each with its own vector."""
    vectors = np.eye(len(given), dtype=np.float32)
    names = ("row_id", "kind", "domain", "text", "record", "digest")
    columns: dict[str, pa.Array] = {name: pa.array([getattr(row, name) for row in given]) for name in names}
    columns["vector"] = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), len(given))
    return pa.table(columns)


def test_skills_moments_and_tasks_come_back_whatever_the_order_of_the_rows() -> None:
    given = rows(GREENHOUSE)
    held = domain_of(table(given[::-1]))
    assert held.skills == sorted(SKILLS, key=lambda skill: skill.skill_id)
    assert held.tasks == {run.task_id: run.task for run in GREENHOUSE}
    known = [skill.body for skill in held.skills]
    assert held.runs == [
        [
            replace(moment, bodies=tuple(body for body in known if body in moment.bodies))
            for moment in decision_points(run)
        ]
        for run in GREENHOUSE
    ]


def test_vectors_are_of_their_own_rows_and_a_state_that_several_runs_met_is_one_row() -> None:
    # Each vector is that of its own row.
    given = rows(GREENHOUSE)
    held = domain_of(table(given))
    place = {row.row_id: n for n, row in enumerate(given)}
    assert [int(vector.argmax()) for vector in held.vectors] == [place[s.skill_id] for s in held.skills]
    assert {run.task for run in GREENHOUSE} < held.texts.keys()
    assert all(given[int(vector.argmax())].text == text for text, vector in held.texts.items())
    # A state that several runs met is one row.
    given = rows(GREENHOUSE)
    states = [row for row in given if row.kind == STATE]
    assert len(states) < sum(len(decision_points(run)) for run in GREENHOUSE)
    assert len({row.row_id for row in given}) == len(given)
    assert {row.kind for row in given} == {SKILL, RUN, STATE}
    # The order of runs changes no row.
    assert sorted(map(repr, rows(GREENHOUSE))) == sorted(map(repr, rows(GREENHOUSE[::-1])))


def test_rows_that_were_written_before_are_read() -> None:
    """They hold the last three actions before a moment, what was done next, and marks of a state."""
    given = rows(GREENHOUSE)
    old = [replace(row, record=json.dumps(_as_before(row.kind, json.loads(row.record)))) for row in given]
    assert domain_of(table(old)).runs == domain_of(table(given)).runs


def _as_before(kind: str, record: dict[str, Any]) -> dict[str, Any]:
    if kind == STATE:
        return {**record, "marks": ["link beds", "title Green"]}
    if kind == RUN:
        earlier = ["click", "link", "earlier"]
        for moment in record["moments"]:
            moment["before"] = [earlier, earlier, *moment["before"]] if moment["before"] else []
            moment["after"] = [earlier]
    return record


def learned(*runs: tuple[str, str]) -> tuple[Offered, WordEncoder]:
    encoder = WordEncoder()
    offered = Offered(encoder.encode)
    for name, task_id in runs:
        run = mooring(name, task_id)
        offered.learn(decision_points(run))
    encoder.encoded.clear()
    return offered, encoder


def test_support_is_the_number_of_tasks_without_the_own_one() -> None:
    # Support is the number of tasks and not of trajectories.
    offered, _ = learned(("h1", "a"), ("h2", "a"), ("h3", "b"))
    assert offered.support().tolist() == [2, 2, 2]
    assert offered.support("a").tolist() == offered.support("b").tolist() == [1, 1, 1]
    assert offered.support("c").tolist() == [2, 2, 2]
    # A skill of one task alone has no support without it.
    offered, _ = learned(("h1", "a"), ("h2", "a"))
    assert offered.support("a").tolist() == [0, 0, 0]


def test_a_skill_is_described_as_given_else_with_the_page_that_most_of_its_tasks_had() -> None:
    # A skill is described on the page that most of its tasks had.
    offered, _ = learned()
    (found, *_) = decision_points(add_bed("g1", "a"))
    for page, tasks in (
        ("on the Beds page", "abc"),
        ("on the Home page", "abcd"),
        ("on the Admin page", "abcd"),
    ):
        for task_id in tasks:
            offered.learn([replace(found, page=page, task_id=task_id)])
    assert offered.description(0) == "Click the beds link, then click the add bed button (on the Admin page)."
    # A page that two tasks had often is not named.
    offered, _ = learned()
    (found, *_) = decision_points(add_bed("g1", "a"))
    for task_id in "ababab":
        offered.learn([replace(found, page="on Ann's page", task_id=task_id)])
    assert offered.description(0) == "Click the beds link, then click the add bed button."
    # A skill that is described already keeps its words.
    (found, *_) = decision_points(add_bed("g1", "a"))
    offered = Offered(WordEncoder().encode, {found.bodies[0]: "Adds a bed."})
    offered.learn([found])
    assert offered.description(0) == "Adds a bed."


def test_texts_are_encoded_once() -> None:
    offered, encoder = learned(("h1", "a"), ("h2", "b"))
    vectors, states = offered.vectors(), offered.states()
    offered.learn(decision_points(mooring("h3", "a")))
    offered.vectors()
    offered.states()
    met = [moment.state for moment in decision_points(mooring("h1", "a")) if moment.bodies]
    assert encoder.encoded == [*map(offered.description, range(3)), *met]
    assert len(states) == len(met)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)


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
