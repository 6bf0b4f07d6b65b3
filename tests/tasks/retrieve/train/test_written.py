"""Written requests: what the packaged file marks, and lessons made of requests."""

from __future__ import annotations

from itertools import pairwise

from tasks.retrieve.compose.chain import BEGIN, INSIDE, OUT
from tasks.retrieve.compose.task_model import BACKWARD, NEITHER, ONWARD
from tasks.retrieve.train.composing import folds_of
from tasks.retrieve.train.step_lessons import lessons
from tasks.retrieve.train.written import WrittenRequest, read_written


def test_the_packaged_requests_mark_parts_of_their_texts() -> None:
    for request in read_written():
        marked = sorted(span for spans in request.steps for span in spans)
        assert all(0 <= a < b <= len(request.text) for a, b in marked)
        assert all(one[1] <= other[0] for one, other in pairwise(marked)), request.text
        assert all(a != b and max(a, b) < len(request.steps) for a, b in request.edges)
        assert request.servers is None or len(request.servers) == len(request.steps)


def test_a_lesson_labels_words_and_pairs_in_the_order_in_which_they_are_told() -> None:
    text = "My oven is new. Brew tea once you bake bread."
    request = WrittenRequest(
        text, (((30, 44),), ((16, 24),)), ((0, 1),), (frozenset({"b"}), frozenset({"t"}))
    )

    (lesson,) = lessons([request], {"t": 4, "b": 7})

    assert lesson.labels == [OUT] * 5 + [BEGIN, INSIDE, OUT, BEGIN, INSIDE, INSIDE, OUT]
    assert lesson.pairs == [BACKWARD]
    assert lesson.served == [[4], [7]]


def test_pairs_follow_from_others_and_independent_steps_need_nothing() -> None:
    text = "one two three four"
    steps = (((0, 3),), ((4, 7),), ((8, 13),), ((14, 18),))

    (lesson,) = lessons([WrittenRequest(text, steps, ((0, 1), (1, 2)))], {})

    assert lesson.pairs == [ONWARD, ONWARD, NEITHER, ONWARD, NEITHER, NEITHER]
    assert lesson.served is None


def test_requests_that_say_the_same_are_in_one_fold() -> None:
    requests = [WrittenRequest(str(k), (), (), None, k % 7) for k in range(40)]

    folds = folds_of(requests, 3)

    assert set(folds) == {0, 1, 2}
    assert all(folds[k] == folds[k % 7] for k in range(40))
