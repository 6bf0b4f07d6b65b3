"""The moments of a domain as arrays, and how like each of them a situation is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.induce.skills.actions import Arg, Body, Find, SkillAction
from tasks.induce.trajectories.outline import outline_of
from tasks.induce.windows.recurrence import Moment, Situation, Target, moments
from tasks.models.protocols import Vectors
from tasks.retrieve.suggest.memory import FEATURES, Memory, shows_all, telling_terms
from tests.support.induce.runs import BEDS, HOME, add_bed, call, mooring, press
from tests.support.models.word_models import WordEncoder

TAKE: Target = ("take_fee", None, None)
HOLD: Target = ("hold_berth", None, None)
FIND: Target = ("find_berth", None, None)


def east(cosine: float = 1.0) -> Vectors:
    """Return a unit vector with that cosine to the first axis."""
    return np.array([cosine, np.sqrt(1 - cosine**2)], dtype=np.float32)


def moment(
    task: str = "t", marks: str = "", before: Sequence[Target] = (), after: Sequence[Target] = (),
    bodies: Sequence[Body] = (), task_id: str = "a",
) -> Moment:  # fmt: skip
    met = Situation(task, frozenset(marks.split()), tuple(before), None)
    return Moment("h1", task_id, "harbour", 0, "", met, tuple(after), tuple(bodies))


def column(memory: Memory, name: str, situation: Situation, vector: Vectors | None = None) -> list[float]:
    found = memory.features(situation, east() if vector is None else vector)
    assert found.shape == (len(memory), len(FEATURES))
    return [float(value) for value in found[:, FEATURES.index(name)]]


def filled(*known: Moment) -> Memory:
    memory = Memory()
    memory.add(known, east())
    return memory


def test_equal_skills_have_one_number_and_pairs_say_which_moment_did_which() -> None:
    one: Body = (call("a"), call("b"))
    other: Body = (call("a"), call("c"))
    memory = filled(moment(bodies=[one, other, one]), moment(bodies=[]), moment(bodies=[other]))

    assert memory.skills == [one, other]
    assert [pair.tolist() for pair in memory.pairs] == [[0, 0, 2], [0, 1, 1]]


def test_the_moments_of_a_task_are_told() -> None:
    memory = filled(moment(task_id="a"), moment(task_id="b"), moment(task_id="a"))

    assert memory.of_task("a").tolist() == [True, False, True]
    assert memory.of_task("c").tolist() == memory.of_task("").tolist() == [False] * 3


def test_states_are_alike_by_the_rarity_of_the_marks_that_they_share() -> None:
    memory = filled(moment(marks="x y"), moment(marks="x"), moment(marks="z"))
    # Of three moments x marks two and y and z one: log(4 / 2.5) and log(4 / 1.5).
    x, y = np.log(4 / 2.5), np.log(4 / 1.5)

    found = column(memory, "state", Situation("", frozenset({"x", "y"}), (), None))

    assert found == pytest.approx([1, x / (x + y), 0])
    unknown = column(memory, "state", Situation("", frozenset({"x", "new"}), (), None))
    assert unknown == pytest.approx([x / (x + y + np.log(8)), x / (x + np.log(8)), 0])


def test_tasks_are_alike_by_the_cosine_of_their_vectors() -> None:
    memory = filled(moment(task="one"))
    memory.add([moment(task="two")], east(0.6))

    assert column(memory, "task", Situation("", frozenset(), (), None)) == pytest.approx([1, 0.6])


@pytest.mark.parametrize(
    ("known", "met", "agreed"),
    [
        ([FIND, HOLD, TAKE], [FIND, HOLD, TAKE], 3),
        ([FIND, HOLD, TAKE], [TAKE, HOLD, TAKE], 2),
        ([FIND, HOLD, TAKE], [FIND, HOLD, FIND], 0),
        ([HOLD], [HOLD], 2),  # the same action, and nothing before it on both sides
        ([HOLD], [FIND, HOLD], 1),
        ([], [], 1),
        ([], [HOLD], 0),
        ([HOLD], [("new", None, None)], 0),
        ([HOLD, FIND, HOLD, TAKE], [TAKE, FIND, HOLD, TAKE], 3),  # only the last three count
    ],
)
def test_histories_are_alike_by_the_actions_that_agree_from_the_last_one_back(
    known: list[Target], met: list[Target], agreed: int
) -> None:
    memory = filled(moment(before=known))

    assert column(memory, "before", Situation("", frozenset(), tuple(met), None)) == [agreed]


def test_a_moment_is_absent_where_the_page_lacks_what_was_acted_on() -> None:
    memory = filled(
        moment(after=[("click", "link", "beds")]),
        moment(after=[("click", "button", "add bed")]),
        moment(after=[("keyboard_press", None, None)]),
        moment(),
    )

    assert column(memory, "absent", Situation("", frozenset(), (), outline_of(HOME))) == [0, 1, 0, 0]
    assert column(memory, "absent", Situation("", frozenset(), (), outline_of(BEDS))) == [0, 0, 0, 0]
    assert column(memory, "absent", Situation("", frozenset(), (), None)) == [0, 0, 0, 0]


def test_what_is_done_next_is_said_as_far_as_the_task_has_its_words() -> None:
    memory = filled(moment(task="take the boat", after=[TAKE]), moment(task="moor a boat", after=[HOLD]))
    rarity = np.log(3 / 0.5), np.log(3 / 1.5)  # of words in none and in one of two tasks

    asked = Situation("Pay the fee, then hold it", frozenset(), (), None)

    assert column(memory, "said", asked) == pytest.approx([rarity[0] / 2, rarity[0] / 2])  # fee; hold
    assert column(memory, "said_by_its_task", asked) == pytest.approx([rarity[1] / 2, 0])  # take


def test_words_are_compared_by_their_stems_and_function_words_left_out() -> None:
    assert telling_terms("Adding the BEDS and a box!") == telling_terms("add bed boxes")
    assert telling_terms("is as it") == telling_terms("") == frozenset()
    assert telling_terms("bed") != telling_terms("red")


def test_an_empty_memory_has_features_of_no_moments() -> None:
    memory = Memory()

    assert memory.features(Situation("x", frozenset({"m"}), (HOLD,), outline_of(HOME)), east()).shape == (
        0,
        6,
    )
    assert len(memory) == 0
    assert [len(pair) for pair in memory.pairs] == [0, 0]


def test_a_page_shows_what_the_caller_must_give() -> None:
    later = press("button", "save", Find(0))
    open_one = SkillAction("click", None, None, (("element", Arg("element")),))

    assert shows_all((press("link", "beds"), later, open_one), outline_of(HOME))
    assert not shows_all((press("button", "add bed"), later), outline_of(HOME))
    assert shows_all((press("button", "add bed"), later), None)
    assert shows_all((), outline_of(HOME))


@settings(deadline=None)
@given(st.permutations(range(5)))
def test_a_moment_is_as_like_a_situation_in_whatever_order_trajectories_came(order: list[int]) -> None:
    encode = WordEncoder().encode
    runs = [add_bed("g1", "a"), add_bed("g2", "b", "Palm house", "peat"), mooring("h1", "c")]
    runs += [mooring("h2", "d", "Auk", "C3", 55), add_bed("g3", "a", "Herb wall")]
    asked = moments(add_bed("g4", "e", "Moss wall", "sand"))[2].situation

    def features(order: Sequence[int]) -> dict[tuple[str, int], list[float]]:
        memory, names = Memory(), []
        for n in order:
            memory.add(found := moments(runs[n]), encode([runs[n].task])[0])
            names += [(one.trajectory_id, one.t) for one in found]
        return dict(zip(names, memory.features(asked, encode([asked.task])[0]).tolist(), strict=True))

    one, other = features(range(5)), features(order)

    assert one.keys() == other.keys()
    for name, values in one.items():
        assert other[name] == pytest.approx(values)
