"""The choice of the skills that most likely do what is to be done next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.induce.skills.actions import Body, Find
from tasks.induce.trajectories.outline import outline_of
from tasks.induce.windows.recurrence import Moment, Situation, moments
from tasks.models.protocols import Vectors
from tasks.retrieve.suggest.choose import WEIGHTS, choose
from tasks.retrieve.suggest.memory import FEATURES, Memory
from tests.support.induce.runs import BEDS, FORM, HOME, add_bed, call, mooring, press
from tests.support.models.word_models import WordEncoder

A: Body = (call("a"), call("b"))
B: Body = (call("b"), call("c"))
LONG: Body = (call("a"), call("b"), call("c"), call("d"))
ONE: Vectors = np.ones(1, dtype=np.float32)
NOTHING = Situation("", frozenset(), (), None)
ONLY_STATE = dict.fromkeys(FEATURES, 0.0) | {"state": 1.0}


def memory_of(*known: tuple[str, Sequence[Body]], task_ids: str = "") -> Memory:
    memory = Memory()
    for number, (marks, bodies) in enumerate(known):
        met = Situation("t", frozenset(marks.split()), (), None)
        task_id = task_ids[number] if task_ids else "a"
        memory.add([Moment("h", task_id, "d", 0, "", met, (), tuple(bodies))], ONE)
    return memory


def test_each_feature_has_a_weight() -> None:
    assert tuple(WEIGHTS) == FEATURES


def test_a_moment_counts_by_a_softmax_over_its_features() -> None:
    memory = memory_of(("x", [A]), ("y", [B]))

    offers = choose(memory, Situation("", frozenset({"x"}), (), None), ONE, weights=ONLY_STATE)

    # The states are alike by 1 and 0. An action saved counts 0.1 beside the 1 for one that is usable.
    near, far = np.e / (np.e + 1), 1 / (np.e + 1)
    assert [offer.skill for offer in offers] == [0, 1]
    assert [offer.score for offer in offers] == pytest.approx([1.1 * near, 1.1 * far])


def test_skills_that_cover_other_moments_come_before_those_that_cover_the_same() -> None:
    memory = memory_of(("x", [A, LONG]), ("x", [A, LONG]), ("x", [B]))

    offers = choose(memory, NOTHING, ONE, weights=ONLY_STATE)

    # The long one saves 3 actions of 2 moments in 3; the short one adds nothing behind it.
    assert [memory.skills[offer.skill] for offer in offers] == [LONG, B]
    assert [offer.score for offer in offers] == pytest.approx([1.3 * 2 / 3, 1.1 / 3])


def test_a_skill_that_fits_more_moments_comes_before_a_longer_one() -> None:
    memory = memory_of(("x", [A, LONG]), ("x", [A]))

    offers = choose(memory, NOTHING, ONE, weights=ONLY_STATE)

    assert [memory.skills[offer.skill] for offer in offers] == [A, LONG]
    assert [offer.score for offer in offers] == pytest.approx([1.1, 0.2 / 2])


def test_at_most_k_skills_are_offered() -> None:
    memory = memory_of(*((f"m{n}", [(call(f"a{n}"), call("b"))]) for n in range(9)))

    assert [len(choose(memory, NOTHING, ONE, k)) for k in (0, 1, 5, 9, 20)] == [0, 1, 5, 9, 9]


def test_moments_that_are_left_out_do_not_count() -> None:
    memory = memory_of(("x", [A]), ("x", [B]), ("y", [A]), task_ids="aab")

    (offer,) = choose(memory, NOTHING, ONE, left_out=memory.of_task("a"), weights=ONLY_STATE)

    assert offer.skill == 0
    assert offer.score == pytest.approx(1.1 / 3)
    assert choose(memory, NOTHING, ONE, left_out=np.ones(3, dtype=bool)) == []


def test_a_skill_whose_elements_the_page_does_not_show_is_not_offered() -> None:
    adding = (press("button", "add bed"), press("button", "save", Find(0)))
    helping = (press("button", "help"), call("wait"))
    memory = memory_of(("x", [adding]), ("y", [helping]))

    def offered(page: str | None) -> set[Body]:
        met = Situation("", frozenset(), (), outline_of(page) if page else None)
        return {memory.skills[offer.skill] for offer in choose(memory, met, ONE)}

    assert offered(HOME) == {helping}
    assert offered(BEDS) == {adding}  # what it finds later need not be there yet
    assert offered(FORM) == set()
    assert offered(None) == {adding, helping}


def test_nothing_is_offered_of_an_empty_memory() -> None:
    assert choose(Memory(), NOTHING, ONE) == []
    assert choose(memory_of(("x", [])), NOTHING, ONE) == []


ENCODE = WordEncoder().encode
RUNS = [
    add_bed("g1", "a"), add_bed("g2", "b", "Palm house", "peat"), mooring("h1", "c"),
    mooring("h2", "d", "Auk", "C3", 55), add_bed("g3", "a", "Herb wall", "sand"), mooring("h3", "e", "Tern"),
]  # fmt: skip
ASKED = [*moments(add_bed("g4", "f", "Moss wall", "clay")), *moments(mooring("h4", "g", "Gannet"))]


def offers_by_what_they_do(order: Sequence[int], asked: Moment) -> list[tuple[float, frozenset[object], int]]:
    """Return of each skill offered the score, the moments that it did, and its length."""
    memory, names = Memory(), list[object]()
    for n in order:
        found = moments(RUNS[n])
        memory.add(found, ENCODE([RUNS[n].task])[0])
        names += [(one.trajectory_id, one.t) for one in found]
    moment, skill = memory.pairs
    offers = choose(memory, asked.situation, ENCODE([asked.situation.task])[0])
    return [
        (
            round(offer.score, 9),
            frozenset(names[place] for place in moment[skill == offer.skill]),
            len(memory.skills[offer.skill]),
        )
        for offer in offers
    ]


@settings(deadline=None)
@given(st.permutations(range(len(RUNS))), st.sampled_from(ASKED))
def test_the_order_of_trajectories_does_not_change_what_is_offered(order: list[int], asked: Moment) -> None:
    found = offers_by_what_they_do(range(len(RUNS)), asked)

    assert found
    assert offers_by_what_they_do(order, asked) == found
    assert [score for score, _, _ in found] == sorted((score for score, _, _ in found), reverse=True)


def test_what_was_done_in_like_situations_is_offered() -> None:
    memory = Memory()
    for run in RUNS:
        memory.add(moments(run), ENCODE([run.task])[0])
    for asked in ASKED:
        offers = choose(memory, asked.situation, ENCODE([asked.situation.task])[0])
        if asked.bodies:
            assert {memory.skills[offer.skill] for offer in offers} & set(asked.bodies)


def test_no_skill_is_offered_twice_however_short_it_is() -> None:
    memory = memory_of(("x", [(call("a"),)]), ("x", [(call("b"),)]), ("x", [(call("c"),)]))

    assert sorted(offer.skill for offer in choose(memory, NOTHING, ONE, weights=ONLY_STATE)) == [0, 1, 2]


def test_of_many_moments_the_next_best_kind_counts_too() -> None:
    memory = memory_of(*[("x y", [A])] * 1500, *[("x", [B])] * 1000, *[("z", [LONG])] * 1000)

    offers = choose(memory, Situation("", frozenset({"x", "y"}), (), None), ONE, weights=ONLY_STATE)

    assert [memory.skills[offer.skill] for offer in offers][:2] == [A, B]
