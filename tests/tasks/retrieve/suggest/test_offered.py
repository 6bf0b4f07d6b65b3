"""What can be offered in a domain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tasks.induce.recurrence import moments
from tasks.retrieve.suggest.offered import Offered
from tests.support.induce.runs import add_bed, mooring
from tests.support.models.word_models import WordEncoder


def learned(*runs: tuple[str, str]) -> tuple[Offered, WordEncoder]:
    encoder = WordEncoder()
    offered = Offered(encoder.encode)
    for name, task_id in runs:
        run = mooring(name, task_id)
        offered.learn(moments(run), encoder.encode([run.task])[0])
    encoder.encoded.clear()
    return offered, encoder


def test_support_is_the_number_of_tasks_and_not_of_trajectories() -> None:
    offered, _ = learned(("h1", "a"), ("h2", "a"), ("h3", "b"))

    assert offered.support() == [2, 2, 2]
    assert offered.support("a") == offered.support("b") == [1, 1, 1]
    assert offered.support("c") == [2, 2, 2]


def test_a_skill_of_one_task_alone_has_no_support_without_it() -> None:
    offered, _ = learned(("h1", "a"), ("h2", "a"))

    assert offered.support("a") == [0, 0, 0]


def test_a_skill_is_described_on_the_page_where_it_was_done_most_often() -> None:
    offered, encoder = learned()
    found = moments(add_bed("g1", "a"))
    for page, times in (("on the Beds page", 1), ("on the Home page", 2), ("on the Admin page", 2)):
        for _ in range(times):
            offered.learn([replace(found[0], page=page)], encoder.encode(["x"])[0])

    assert offered.description(0) == "Click the beds link, then click the add bed button (on the Admin page)."


def test_texts_are_encoded_once() -> None:
    offered, encoder = learned(("h1", "a"), ("h2", "b"))

    vectors = offered.vectors()
    offered.encoded(["a state", "a state"])
    offered.vectors()
    offered.encoded(["a state"])

    assert encoder.encoded == [*map(offered.description, range(3)), "a state"]
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)


def test_nothing_is_offered_before_anything_is_learned() -> None:
    offered, _ = learned()

    assert (offered.skills, offered.support("a")) == ([], [])
    offered.learn([], np.ones(2, dtype=np.float32))
    assert (offered.skills, offered.support()) == ([], [])
