"""Methods on a real index: what each finds for requests whose answers are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.errors import WrongInput
from tasks.evaluate.compose.measures import Planned, PlannedStep, measured
from tasks.evaluate.compose.methods import (
    METHODS,
    NEED_BODIES,
    Asking,
    MadePlan,
    at_commas,
    composed,
    depending,
    require_methods,
    with_found,
    with_own_work,
    without_references,
)
from tasks.evaluate.compose.requests import CategorySet, KnownRequest
from tasks.retrieve.compose.compatibility import most_compatible
from tasks.retrieve.compose.drafts import Draft, DraftStep, LeftOut


@pytest.mark.parametrize("name", [name for name in METHODS if name not in NEED_BODIES])
def test_each_method_plans_and_finds_at_most_ten(
    asking: Asking, requests: list[KnownRequest], name: str
) -> None:
    made = METHODS[name](asking, requests[0])
    assert made.plan.steps
    for step in made.plan.steps:
        assert step.text
        assert 0 < len(step.ids) == len(step.categories) <= 10
    assert all(0 <= place < len(made.plan.steps) for edge in made.plan.edges for place in edge)


@pytest.mark.parametrize("name", ["gold-steps", "gold-search", "gold-dense"])
def test_a_gold_method_is_told_the_steps_in_their_order(
    asking: Asking, requests: list[KnownRequest], name: str
) -> None:
    for request in requests:
        plan = METHODS[name](asking, request).plan
        assert [step.text for step in plan.steps] == list(request.descriptions or ())
        assert measured(plan, request.needed)["srvr@1"] == 1


@pytest.mark.parametrize("rounds", ["gold-count", "gold-count-r0"])
def test_a_told_number_of_steps_is_kept_to_as_far_as_clauses_go(
    asking: Asking, requests: list[KnownRequest], rounds: str
) -> None:
    two = replace(requests[1], needed=replace(requests[1].needed, steps=requests[1].needed.steps[:2]))
    assert [len(METHODS[rounds](asking, r).plan.steps) for r in (*requests, two)] == [2, 3, 1, 2]


def test_the_chain_has_the_plan_s_steps_each_after_the_last(
    asking: Asking, requests: list[KnownRequest]
) -> None:
    plan, chained = (METHODS[name](asking, requests[1]).plan for name in ("local-r1", "chain"))
    assert chained.steps == plan.steps
    assert chained.edges == frozenset((k, k + 1) for k in range(len(plan.steps) - 1))


def test_alpha_changes_the_order_of_candidates_alone(asking: Asking, requests: list[KnownRequest]) -> None:
    own, fit, same = (METHODS[n](asking, requests[1]).plan for n in ("local-r1", "alpha-0", "alpha-1"))
    assert same == own
    assert (fit.edges, [s.text for s in fit.steps]) == (own.edges, [s.text for s in own.steps])
    assert [sorted(s.ids) for s in fit.steps] == [sorted(s.ids) for s in own.steps]
    assert [s.ids for s in fit.steps] != [s.ids for s in own.steps]


def test_candidates_found_otherwise_keep_steps_and_dependencies(
    asking: Asking, requests: list[KnownRequest]
) -> None:
    own = composed()(asking, requests[1]).plan
    other = with_found(composed(), lambda _, texts: list(own.steps[: len(texts)]))(asking, requests[1]).plan
    dense = METHODS["local-dense"](asking, requests[1]).plan
    assert other == own
    assert (dense.edges, [s.text for s in dense.steps]) == (own.edges, [s.text for s in own.steps])


@pytest.mark.parametrize("name", ["local-r1", "commas", "gold-steps", "gold-dense"])
def test_what_is_hidden_is_not_found(asking: Asking, requests: list[KnownRequest], name: str) -> None:
    seen = {i for step in METHODS[name](asking, requests[0]).plan.steps for i in step.ids}
    hidden = METHODS[name](asking.without({"ann/oven"}), requests[0]).plan
    assert "ann/oven" in seen
    assert not any("ann/oven" in step.ids for step in hidden.steps)


def test_categories_are_those_that_a_file_maps_to(asking: Asking, requests: list[KnownRequest]) -> None:
    mapped = replace(asking, categories=CategorySet({"Baking": "food", "Drinks": "food"}))
    steps = METHODS["gold-search"](mapped, requests[1]).plan.steps
    assert {c for step in steps for found in step.categories for c in found} <= {"food"}
    assert steps[0].categories[0] == frozenset()  # of shopping, which is not mapped


def test_bodies_are_named_where_nothing_has_one(asking: Asking, requests: list[KnownRequest]) -> None:
    with pytest.raises(WrongInput, match="all that is served are servers"):
        METHODS["gold-body"](asking, requests[0])


def test_a_request_without_descriptions_is_named(asking: Asking, requests: list[KnownRequest]) -> None:
    with pytest.raises(WrongInput, match="'a' has no `description`"):
        METHODS["gold-steps"](asking, replace(requests[0], descriptions=None))


def test_commas_cut_and_drop_pieces_of_one_word(requests: list[KnownRequest]) -> None:
    said = "Knead, then bake bread; boil water and finally brew tea. Eat it, please."
    request = replace(requests[0], query=said)
    assert at_commas(request) == ["bake bread", "boil water", "brew tea.", "Eat it"]


def test_methods_that_are_not_known_are_named() -> None:
    with pytest.raises(WrongInput, match=r"'best' is not known: choose one of local-r1"):
        require_methods(["commas", "best"])
    with pytest.raises(WrongInput, match="llm-r1: no endpoint"):
        require_methods(["commas", "llm-r1"])
    require_methods(["llm-r1"], [*METHODS, "llm-r1"])


DRAFT = Draft(
    (DraftStep("Fetch it (the tide table)", ((20, 28),), "Fetch it"), DraftStep("mail Ida", ((50, 58),))),
    (LeftOut("choose the calmest day", (30, 48), "own-work"), LeftOut("The tide is low", (0, 15), "context")),
)


def test_without_references_a_step_says_what_the_task_says() -> None:
    assert [step.text for step in without_references(DRAFT).steps] == ["Fetch it", "mail Ida"]


def test_own_work_becomes_a_step_where_it_is_told() -> None:
    changed = with_own_work(DRAFT)
    assert [step.text for step in changed.steps] == [
        "Fetch it (the tide table)", "choose the calmest day", "mail Ida",
    ]  # fmt: skip
    assert [part.reason for part in changed.left_out] == ["context"]


def test_equation_4_weighs_what_the_step_before_took_against_the_cosine() -> None:
    table, chart, post = (
        {"name": name, "description": text, "category": category, "cosine": cosine}
        for name, text, category, cosine in (
            ("tables", "Exports rows of the database as CSV", "data", 0.6),
            ("charts", "Draws a chart from CSV", "data", 0.5),
            ("post", "Sends letters", "post", 0.55),
        )
    )
    steps = ["export the rows as CSV", "draw a chart"]
    assert most_compatible(steps, [[table], [post, chart]]) == [0, 1]
    assert most_compatible(steps, [[table], [post, chart]], alpha=1) == [0, 0]
    assert most_compatible(steps, [[], [post]]) == [0, 0]


def test_dependencies_of_the_paper_come_of_markers_and_of_types(
    asking: Asking, requests: list[KnownRequest]
) -> None:
    texts = ["take a screenshot", "wash the car", "describe the image", "then go home"]
    given = MadePlan(Planned(tuple(PlannedStep((), (), text) for text in texts)))
    made = depending(lambda *_: given)(asking, requests[0])
    assert made.plan.edges == {(0, 2), (2, 3)}
