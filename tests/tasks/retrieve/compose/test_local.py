"""The local decomposer: the clauses of a task, the labels of its words, and the steps cut by them."""

from __future__ import annotations

import itertools
import re
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.models.encoder import OnnxEncoder
from tasks.retrieve.compose.clauses import JOINS, MOST_CLAUSES, aligned, clauses
from tasks.retrieve.compose.drafts import Draft, Span
from tasks.retrieve.compose.local import BEGIN, INSIDE, LABELS, LocalDecomposer, Scores, counted, filled
from tasks.retrieve.compose.ranking import Matcher
from tasks.retrieve.compose.task_model import NEITHER, ONWARD, TaskModel, packaged_model, placed_words
from tests.support.roots.skill_root import SkillRoot

TASK = "My shop is new. Count the open orders in Shopify, write them to a Google sheet, and mail it to Ida."


@pytest.fixture(scope="module")
def matcher(served_bakery: SkillRoot) -> Matcher:
    with served_bakery.ask().version() as now:
        return Matcher(now.searcher())


def said(task: str, draft: Draft) -> list[str]:
    return [" … ".join(task[a:b] for a, b in step.spans) for step in draft.steps]


def test_a_task_is_cut_where_it_says_its_steps_with_the_words_of_conditions(matcher: Matcher) -> None:
    # A task is cut where it says its steps.
    draft = LocalDecomposer().decompose(TASK, None, matcher)
    assert said(TASK, draft) == [
        "Count the open orders in Shopify", "write them to a Google sheet", "mail it to Ida",
    ]  # fmt: skip
    assert draft.steps[1].text.startswith("write them to a Google sheet (")
    assert 0 < draft.certainty <= 1
    # The word that tells a condition is part of its step.
    task = "If it rains on Saturday, move the picnic in my calendar and tell Ida by mail."
    steps = LocalDecomposer().decompose(task, None, matcher).steps
    assert said(task, Draft(steps))[0].startswith("If it rains")


@pytest.mark.parametrize("most", [1, 2])
def test_steps_beyond_the_limit_are_left_out_as_such(matcher: Matcher, most: int) -> None:
    draft = LocalDecomposer(most=most).decompose(TASK, None, matcher)
    assert len(draft.steps) <= most
    assert "beyond-max-steps" in {part.reason for part in draft.left_out}


@pytest.mark.parametrize("exactly", [1, 2, 4])
def test_a_known_number_of_steps_is_kept_to(matcher: Matcher, exactly: int) -> None:
    assert len(LocalDecomposer(exactly=exactly).decompose(TASK, None, matcher).steps) == exactly


def test_another_script_is_cut_into_sentences_without_certainty(matcher: Matcher) -> None:
    task = "パンを焼いて。お茶をいれる。GitHubのissueを作成し。"
    draft = LocalDecomposer().decompose(task, None, matcher)
    assert said(task, draft) == ["パンを焼いて", "お茶をいれる", "GitHubのissueを作成し"]
    assert draft.certainty == 0
    assert len(LocalDecomposer(exactly=2).decompose(task, None, matcher).steps) == 2


def spans(task: str, *steps: str) -> list[list[Span]]:
    return [[(task.index(step), task.index(step) + len(step))] for step in steps]


@pytest.mark.parametrize(
    ("task", "steps", "number", "wanted"),
    [
        (
            "There is a recipe on the kitchen wiki. Fetch it.", ("Fetch it",), 0,
            "Fetch it (There is a recipe on the kitchen wiki)",
        ),
        (
            "Photograph the cracked jar on the shelf, and put it into our shop.",
            ("Photograph the cracked jar on the shelf", "put it into our shop"), 1,
            "put it into our shop (the cracked jar)",
        ),
        ("Bake bread. Brew tea.", ("Bake bread", "Brew tea"), 1, "Brew tea"),
        ("Fetch it", ("Fetch it",), 0, "Fetch it"),
    ],
)  # fmt: skip
def test_what_a_step_refers_to_stands_in_brackets(
    task: str, steps: tuple[str, ...], number: int, wanted: str
) -> None:
    assert filled(task, spans(task, *steps), number) == wanted


WORDS = [
    "weigh", "flour", "Oven", "and", "then", "if", "it", "rises", "as soon as", "2.5", "Mr. Rye", "お茶",
    "'a, b'",
]  # fmt: skip


SIGNS = [" ", ", ", ". ", "; ", ": ", " and ", " - ", " (", ") ", "\n", "? "]


def texts(request: str) -> list[str]:
    return [clause.text for clause in clauses(request)]


COMPOSED = st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(SIGNS)), max_size=12)


@given(st.text(max_size=200) | COMPOSED.map(lambda parts: "".join(word + sign for word, sign in parts)))
def test_clauses_of_any_text_are_parts_of_it_in_order(request: str) -> None:
    found = clauses(request)
    assert all(request[c.start : c.end] == c.text and c.join in JOINS for c in found)
    assert all(one.end <= other.start for one, other in pairwise(found))


@given(st.lists(st.sampled_from(["weigh", "flour", "rye", "oven"]), min_size=1, max_size=9))
def test_no_word_but_joining_ones_is_lost(words: list[str]) -> None:
    request = ", ".join(words) + "."
    assert re.findall(r"\w+", " ".join(texts(request))) == words


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ("Weigh the flour, then bake it.", ["Weigh the flour", "bake it"]),
        ("Ring me as soon as the dough is ready", ["Ring me", "as soon as the dough is ready"]),
        ("Post 'Rye, spelt and oat' today", ["Post 'Rye, spelt and oat' today"]),
        ("Ask Mr. Rye for 2.5 kg; pay him", ["Ask Mr. Rye for 2.5 kg", "pay him"]),
        ("mill -> oven", ["mill", "oven"]),
        ("粉を量る。パンを焼く。", ["粉を量る", "パンを焼く"]),
        ("", []),
        (" ... ?!", []),
    ],
)
def test_requests_are_cut_where_a_step_may_begin(request_: str, expected: list[str]) -> None:
    assert texts(request_) == expected
    # Words between a sign and a clause are in neither.
    assert [c.join for c in clauses("Mill it, and then bake it")] == ["start", "comma"]


def drafted(minilm: OnnxEncoder, task: str, *steps: str) -> Draft:
    found = clauses(task)
    vectors = minilm.encode([*steps, *(clause.text for clause in found)])
    return aligned(task, found, steps, vectors[: len(steps)] @ vectors[len(steps) :].T)


def parts_said(task: str, draft: Draft) -> list[list[str]]:
    return [[task[a:b] for a, b in step.spans] for step in draft.steps]


def test_each_step_has_the_words_that_say_it_and_context_is_left_out(minilm: OnnxEncoder) -> None:
    task = "I run a bakery. Bake two loaves of bread, and then tell my sister about it on Telegram."
    draft = drafted(minilm, task, "bake bread", "send a Telegram message about the bread to the sister")
    assert parts_said(task, draft) == [["Bake two loaves of bread"], ["tell my sister about it on Telegram"]]
    assert [(out.text, out.reason) for out in draft.left_out] == [("I run a bakery", "context")]


def test_steps_keep_the_model_s_order_and_point_to_where_they_are_told(minilm: OnnxEncoder) -> None:
    task = "Ping me on Telegram when the bread is baked; before that, order flour."
    draft = drafted(minilm, task, "order flour", "bake bread", "send a Telegram message")
    assert [step.text for step in draft.steps] == ["order flour", "bake bread", "send a Telegram message"]
    assert draft.steps[0].spans > draft.steps[2].spans
    assert parts_said(task, draft)[2] == ["Ping me on Telegram"]


def test_a_clause_that_says_two_steps_is_shared_and_a_condition_stays_with_its_step(
    minilm: OnnxEncoder,
) -> None:
    # One clause that says two steps is shared whole.
    task = "Sync flour orders with Telegram."
    draft = drafted(minilm, task, "list flour orders", "send them to Telegram")
    assert parts_said(task, draft) == [["Sync flour orders with Telegram"]] * 2
    # A condition that the model left out stays with its step.
    task = "Compare flour prices. If they rose a lot, order three bags."
    draft = drafted(minilm, task, "compare flour prices", "order three bags")
    assert draft.left_out == ()
    assert draft.steps[1].words == "If they rose a lot, order three bags"
    # A task without words is said by all of it.
    draft = aligned(" 🥖🥖 ", [], ["bake bread"], np.zeros((1, 0)))
    assert parts_said(" 🥖🥖 ", draft) == [["🥖🥖"]]


@settings(max_examples=150)
@given(data=st.data())
def test_spans_lie_in_the_task_and_are_the_same_or_apart(data: st.DataObject) -> None:
    words = st.sampled_from(
        ["bake", "bread", "if", "it", "rains,", "then", "and", "tea.", "order", "now;", "パン"]
    )
    task = " ".join(data.draw(st.lists(words, min_size=1, max_size=90)))
    texts = data.draw(st.lists(st.text("abe r", min_size=1, max_size=9), min_size=1, max_size=8))
    found = clauses(task)
    seed = data.draw(st.integers(0, 2**32 - 1))
    cosines = np.random.default_rng(seed).uniform(-1, 1, (len(texts), len(found)))

    draft = aligned(task, found, texts, cosines)

    assert [step.text for step in draft.steps] == texts
    for step in draft.steps:
        ends = [place for span in step.spans for place in span]
        assert step.spans
        assert ends == sorted(ends)
        assert ends[0] >= 0
        assert ends[-1] <= len(task)
    for one, other in combinations(draft.steps, 2):
        for (a, b), (c, d) in ((x, y) for x in one.spans for y in other.spans):
            assert (a, b) == (c, d) or b <= c or d <= a
    told = [span for step in draft.steps for span in step.spans]
    for a, b in (out.span for out in draft.left_out):
        assert all(b <= c or d <= a for c, d in told)
    covered = set(told) | {out.span for out in draft.left_out}
    assert all(any(a <= c.start and c.end <= b for a, b in covered) for c in found[:MOST_CLAUSES])


FERRY = "Look up when the ferry leaves, and once you know it, tell Ida by mail."


@pytest.fixture(scope="module")
def model() -> TaskModel:
    return packaged_model()


def test_each_word_has_a_state_and_a_span_the_mean_of_its_words(model: TaskModel) -> None:
    reading = model.read(FERRY)
    assert [FERRY[a:b] for a, b in reading.words[:4]] == ["Look", "up", "when", "the"]
    assert reading.states.shape[0] == len(reading.words) == model.labels(reading).shape[0]
    reading = model.read(FERRY)
    assert np.allclose(reading.pooled([(0, 7)]), reading.states[:2].mean(axis=0))
    assert np.allclose(reading.pooled([]), reading.states.mean(axis=0))


def test_pairs_of_steps_have_probabilities_and_what_a_step_seeks_its_context_changes(
    model: TaskModel,
) -> None:
    # A pair of steps has three probabilities.
    steps = [[(0, 29)], [(53, 69)]]
    shares = model.pairs(model.read(FERRY), steps)
    assert shares[0, 1].sum() == pytest.approx(1, abs=1e-5)
    assert not shares[1, 0].any()
    assert shares[0, 1, ONWARD] > shares[0, 1, NEITHER]
    # What a step seeks is a unit vector that its context changes.
    other = "The dentist called. Look up when the ferry leaves."
    one = model.queries(model.read(FERRY), [[(0, 29)]])
    two = model.queries(model.read(other), [[(20, 49)]])
    assert np.linalg.norm(one) == pytest.approx(1, abs=1e-5)
    assert 0.3 < float(one[0] @ two[0]) < 0.9999


@given(st.text(max_size=60), st.integers(1, 5))
def test_words_lie_in_the_text_in_order(text: str, size: int) -> None:
    tokens = [(at, min(at + size, len(text))) for at in range(0, len(text), size)]
    placed = placed_words(text, tokens)
    assert all(0 <= a < b <= len(text) for (a, b), _ in placed)
    assert [word for word, _ in placed] == sorted(word for word, _ in placed)
    assert all(tokens[place][0] >= a for (a, _), place in placed)


def all_labellings(own: Scores, moves: Scores) -> dict[tuple[int, ...], float]:
    """Return the score of each labelling in which no word continues a step before one has begun."""
    return {
        labels: float(own[range(len(own)), labels].sum() + sum(moves[pair] for pair in pairwise(labels)))
        for labels in itertools.product(range(LABELS), repeat=len(own))
        if all(BEGIN in labels[:k] for k, label in enumerate(labels) if label == INSIDE)
    }


@given(st.integers(1, 5), st.integers(0, 10_000))
def test_the_likeliest_count_is_found_and_its_best_labels(length: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    own, moves = draw.normal(size=(length, LABELS)), draw.normal(size=(LABELS, LABELS))
    scores = all_labellings(own, moves)
    by_count = {
        n: np.logaddexp.reduce([s for labels, s in scores.items() if labels.count(BEGIN) == n])
        for n in {labels.count(BEGIN) for labels in scores}
    }
    count = max(by_count, key=lambda n: by_count[n])
    best = max(
        (labels for labels in scores if labels.count(BEGIN) == count), key=lambda labels: scores[labels]
    )
    found = counted(own, moves, most=8)
    assert (found.likeliest(), found.labels(count)) == (count, best)
    assert found.shares.sum() == pytest.approx(1)
    total = np.logaddexp.reduce(list(by_count.values()))
    assert found.shares[count] == pytest.approx(np.exp(by_count[count] - total))


def test_no_more_steps_than_asked_for() -> None:
    found = counted(np.tile([5.0, 0.0, 0.0], (6, 1)), np.zeros((3, 3)), most=2)
    assert found.labels(found.likeliest()).count(BEGIN) == 2


@given(st.integers(1, 5), st.integers(0, 10_000), st.integers(0, 7))
def test_a_known_number_of_steps_has_the_best_labels_of_that_number(
    length: int, seed: int, wanted: int
) -> None:
    draw = np.random.default_rng(seed)
    own, moves = draw.normal(size=(length, LABELS)), draw.normal(size=(LABELS, LABELS))
    every = all_labellings(own, moves)
    scores = {labels: s for labels, s in every.items() if labels.count(BEGIN) == min(wanted, length)}
    found = counted(own, moves, most=8)
    assert found.labels(found.nearest(wanted)) == max(scores, key=lambda key: scores[key])
