"""Drafts of a task: steps, what is left out of them, and the order that keeps their dependencies."""

from __future__ import annotations

import json
import random
import re
import unicodedata
from graphlib import TopologicalSorter
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from storage.errors import WrongInput
from tasks.retrieve.compose.compose import ComposeOptions, compose
from tasks.retrieve.compose.dependencies import (
    Dependency,
    PlannedTask,
    closure,
    condition_of,
    ordered,
    planned,
    reduced,
)
from tasks.retrieve.compose.drafts import Draft, DraftStep, leads
from tasks.retrieve.compose.task_model import packaged_model
from tasks.retrieve.served_index import ServedIndex

TASK = "There is a wheat loaf to make. Bake it, and repair the bicycle chain."


def test_what_leads_to_a_step_stands_right_before_it_and_nothing_leads_to_one_within_another() -> None:
    assert leads(TASK, [((31, 38),), ((44, 68),)]) == ["There is a wheat loaf to make. ", ", and "]
    assert leads(TASK, [((0, 29), (44, 68)), ((31, 38),)]) == ["", ""]


JOINING = {
    "and", "or", "nor", "but", "plus", "then", "next", "also", "finally", "lastly", "afterwards", "first",
    "second", "third", "please", "so", "a", "as", "by", "for", "in", "into", "last", "of", "on",
    "that", "the", "to", "too", "well", "which", "with",
}  # fmt: skip


PIECES = [
    "bake a loaf of bread", "brew a pot of green tea", "mend the tyre", "if it is flat", "my oven is new",
    "book a flight", "choose the better one", "thanks", "it", "Brot backen", "パンを焼いて", "'a, b'", "🥖",
    "\x1b[31m", "\u202e", "and then", "please",
]  # fmt: skip


SIGNS = [" ", ", ", ". ", "; ", ": ", " and ", " - ", " (", ") ", "\n", "? ", ", then ", "。"]


TASKS = st.one_of(
    st.text(min_size=1, max_size=120),
    st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(SIGNS)), min_size=1, max_size=20).map(
        lambda parts: "".join(piece + sign for piece, sign in parts)
    ),
)


LOG = "".join(
    f"2026-01-01T03:12:{n % 60:02d} ERROR worker[{n}] timeout after 30 s (retry {n % 5})\n"
    for n in range(200)
)


def require_whole(plan: dict[str, Any], task: str) -> None:
    """Fail unless each letter, digit and symbol of a task is told of, or is one of a joining word."""
    spans = [span for step in plan["steps"] for span in step["spans"]]
    spans += [part["span"] for part in plan["left_out"]]
    held = bytearray(len(task))
    for start, end in spans:
        assert 0 <= start < end <= len(task)
        assert task[start:end].strip()
        held[start:end] = b"\1" * (end - start)
    for word in re.finditer(r"[^\W_]+", task):
        assert all(held[slice(*word.span())]) or word[0].lower() in JOINING, word
    assert not [c for c, told in zip(task, held, strict=True) if not told and unicodedata.category(c) == "So"]


def require_ordered(plan: dict[str, Any]) -> None:
    """Fail unless the steps stand in an order that keeps the edges, as `after` and the groups tell them."""
    numbers = [step["step"] for step in plan["steps"]]
    edges = {(edge["from"], edge["to"]) for edge in plan["edges"]}
    assert numbers == list(range(1, len(numbers) + 1))
    assert [number for group in plan["groups"] for number in group] == numbers
    assert edges == {(before, step["step"]) for step in plan["steps"] for before in step["after"]}
    assert all(before < after for before, after in edges)
    TopologicalSorter({step["step"]: step["after"] for step in plan["steps"]}).prepare()
    side = {number: place for place, group in enumerate(plan["groups"], start=1) for number in group}
    assert [step["group"] for step in plan["steps"]] == [side[number] for number in numbers]
    assert all(side[before] < side[after] for before, after in edges)


@settings(max_examples=60)
@given(TASKS, st.integers(1, 8))
@example("\ud800 bake bread", 8)
@example("🥖" * 30, 1)
@example("bake bread, " * 100, 2)
def test_any_text_becomes_a_plan_that_holds_all_of_it(index: ServedIndex, task: str, most: int) -> None:
    options = ComposeOptions(k=2, max_steps=most)
    if not task.strip() or task.encode(errors="ignore").decode() != task:
        with pytest.raises(WrongInput):
            compose(index, task, options)
        return
    plan = json.loads(json.dumps(compose(index, task, options), ensure_ascii=False).encode())
    assert plan["query"] == task
    assert len(plan["steps"]) <= most
    assert all(step["text"].strip() for step in plan["steps"])
    require_whole(plan, task)
    require_ordered(plan)


@pytest.mark.parametrize(
    "task",
    [
        pytest.param("The bees in my hive have mites. " * 32_000, id="a megabyte"),
        pytest.param(f"Bake bread:\n{LOG}", id="a log after a request", marks=pytest.mark.slow),
        pytest.param("(" * 1_000_000, id="signs", marks=pytest.mark.slow),
    ],
)
def test_of_a_task_that_is_too_long_the_rest_is_left_out_in_one_piece(index: ServedIndex, task: str) -> None:
    plan = compose(index, task)
    assert [part["reason"] for part in plan["left_out"]].count("too-long") == 1
    last = plan["left_out"][-1]
    assert (last["reason"], last["span"][1]) == ("too-long", len(task))
    assert len(last["text"]) <= 160
    assert plan["took_ms"] < 20_000
    require_whole(plan, task)
    require_ordered(plan)


@pytest.mark.parametrize("task", ["thanks!", "Thank you so much, that was great.", "hm"])
def test_a_task_that_asks_for_nothing_has_no_step_and_says_so(index: ServedIndex, task: str) -> None:
    plan = compose(index, task)
    assert (plan["steps"], plan["edges"], plan["groups"]) == ([], [], [])
    assert {part["reason"] for part in plan["left_out"]} == {"no-request"}
    require_whole(plan, task)


def test_symbols_alone_hold_no_words(index: ServedIndex) -> None:
    assert compose(index, "🥖🍵")["left_out"] == [{"text": "🥖🍵", "span": [0, 2], "reason": "no-words"}]


def test_what_would_be_a_step_is_told_to_be_one_too_many(index: ServedIndex) -> None:
    tasks = [
        "Clean the messy table. Choose the right chart for the trend.",
        "Look after the bees in winter. Mend the flat tyre of my bicycle.",
        "Find a recipe for bread. Look up the weather. Send both to the baker.",
    ]
    reasons = set()
    for task in tasks:
        whole, cut = (compose(index, task, ComposeOptions(max_steps=m, rounds=0)) for m in (8, 1))
        background = {part["text"] for part in whole["left_out"]}
        assert len(cut["steps"]) == 1
        for part in cut["left_out"]:
            assert (part["reason"] == "beyond-max-steps") != (part["text"] in background)
            reasons.add(part["reason"])
        require_whole(cut, task)
    assert "beyond-max-steps" in reasons


@pytest.mark.parametrize(
    ("task", "steps"),
    [("パンを焼いてください。お茶をいれてください。", 2), ("請烤麵包,然後泡茶", 1), ("испеки хлеб", 1)],
)
def test_a_task_in_a_script_without_weights_is_cut_at_its_sentences(
    index: ServedIndex, task: str, steps: int
) -> None:
    plan = compose(index, task)
    assert len(plan["steps"]) == steps
    require_whole(plan, task)


def draft_of(task: str, *steps: str, in_order: bool = False) -> Draft:
    made = (DraftStep(step, ((task.index(step), task.index(step) + len(step)),)) for step in steps)
    return Draft(tuple(made), in_order=in_order)


def needs(task: str, draft: Draft) -> set[tuple[int, int]]:
    return {(d.before, d.after) for d in ordered(task, draft, packaged_model()).dependencies}


def test_needs_follow_from_what_the_steps_say_and_in_an_order_none_is_a_later_one() -> None:
    # What collects two results needs both.
    task = "Look up the tide for Friday, find the ferry times, and put both on one page in the club's wiki."
    steps = ("Look up the tide for Friday", "find the ferry times", "put both on one page in the club's wiki")
    assert needs(task, draft_of(task, *steps)) == {(0, 2), (1, 2)}
    # What follows from others is not told.
    task = "Download the report, then translate it, and finally mail it to Ida."
    steps = ("Download the report", "translate it", "mail it to Ida")
    assert needs(task, draft_of(task, *steps)) == {(0, 1), (1, 2)}
    # What is told first may be done last.
    task = "Ping me in the team chat as soon as the backup in the vault has finished."
    steps = ("Ping me in the team chat", "as soon as the backup in the vault has finished")
    assert needs(task, draft_of(task, *steps)) == {(1, 0)}
    # Steps in an order need no later one.
    task = "Ping me in the team chat as soon as the backup in the vault has finished."
    steps = ("as soon as the backup in the vault has finished", "Ping me in the team chat")
    assert needs(task, draft_of(task, *steps, in_order=True)) == {(0, 1)}


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("if it rains, move the picnic", "if it rains"),
        ("tell Ida as soon as the oven is hot", "as soon as the oven is hot"),
        ("once the dough has risen, bake it", "once the dough has risen"),
        ("post it at once and tell Ida", None),
        ("water the plants once a week", None),
        ("bake the bread", None),
    ],
)
def test_a_condition_is_what_a_step_waits_for(text: str, condition: str | None) -> None:
    assert condition_of(text) == condition


def dependency(before: int, after: int) -> Dependency:
    return Dependency(before, after, "data", "")


def pairs(plan: PlannedTask) -> set[tuple[int, int]]:
    return {(d.before, d.after) for d in plan.dependencies}


GRAPHS = st.integers(1, 6).flatmap(
    lambda n: st.tuples(
        st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=14)
    )
)


@given(GRAPHS)
def test_every_graph_has_an_order_that_keeps_its_dependencies(
    graph: tuple[int, list[tuple[int, int]]],
) -> None:
    steps, edges = graph
    plan = planned(steps, [dependency(a, b) for a, b in edges])
    assert sorted(plan.order) == list(range(steps))
    assert [place for group in plan.groups for place in group] == list(plan.order)
    assert all(list(group) == sorted(group) for group in plan.groups)
    # A step stands right after the last of what it needs: none could be done earlier.
    side = {place: k for k, group in enumerate(plan.groups) for place in group}
    needed = {place: [side[a] for a, b in pairs(plan) if b == place] for place in range(steps)}
    assert all(side[place] == max(needed[place], default=-1) + 1 for place in range(steps))


@given(GRAPHS)
def test_a_graph_without_a_circle_keeps_all_of_it(graph: tuple[int, list[tuple[int, int]]]) -> None:
    steps, edges = graph
    forward = {(a, b) for a, b in edges if a < b}
    assert pairs(planned(steps, [dependency(a, b) for a, b in sorted(forward)])) == forward
    # Of a circle the later one is dropped.
    assert pairs(planned(2, [dependency(1, 0), dependency(0, 1)])) == {(1, 0)}


@given(GRAPHS, st.randoms(use_true_random=False))
def test_the_order_in_which_dependencies_are_found_does_not_change_a_plan_without_a_circle(
    graph: tuple[int, list[tuple[int, int]]], draw: random.Random
) -> None:
    steps, edges = graph
    forward = [dependency(a, b) for a, b in sorted({(a, b) for a, b in edges if a < b})]
    shuffled = draw.sample(forward, len(forward))
    assert planned(steps, shuffled) == planned(steps, forward)
    assert reduced(planned(steps, shuffled), steps) == reduced(planned(steps, forward), steps)


@given(GRAPHS)
def test_a_reduced_plan_means_the_same_with_no_dependency_to_spare(
    graph: tuple[int, list[tuple[int, int]]],
) -> None:
    steps, edges = graph
    plan = planned(steps, [dependency(a, b) for a, b in edges])
    less = reduced(plan, steps)
    assert (less.order, less.groups) == (plan.order, plan.groups)
    closed = closure(pairs(plan))
    assert closure(pairs(less)) == closed == closure(closed)
    assert all((a, d) in closed for a, b in closed for c, d in closed if b == c)
    assert all(closure(pairs(less) - {one}) != closure(pairs(less)) for one in pairs(less))
