"""Methods on a real index: what each finds for requests whose answers are known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from storage.answers import Answers
from storage.errors import WrongInput
from storage.root import Root
from tasks.evaluate.compose.llm_methods import SHOWN, TURNS, llm_methods, shown_rows
from tasks.evaluate.compose.measures import Needed, NeededStep, Planned, PlannedStep, measured
from tasks.evaluate.compose.methods import (
    METHODS,
    NEED_BODIES,
    NEED_ENDPOINT,
    Asking,
    MadePlan,
    PlanMethod,
    at_commas,
    composed,
    depending,
    nearest,
    require_methods,
    with_found,
    with_own_work,
    without_references,
)
from tasks.evaluate.compose.requests import CategorySet, KnownRequest
from tasks.models.llm.ask import Llm
from tasks.retrieve.compose.compatibility import most_compatible
from tasks.retrieve.compose.drafts import Draft, DraftStep, LeftOut
from tests.support.llm.llm_asking import llm_of
from tests.support.llm.llm_server import Asked, LlmServer, Say
from tests.support.llm.scripted import hints_of, plans, record_of
from tests.support.processes import slow_but


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


def test_the_chain_changes_dependencies_alone_and_alpha_the_order_of_candidates(
    asking: Asking, requests: list[KnownRequest]
) -> None:
    names = ("local-r1", "chain", "alpha-0", "alpha-1")
    own, chained, fit, same = (METHODS[name](asking, requests[1]).plan for name in names)
    assert chained.steps == own.steps
    assert chained.edges == frozenset((k, k + 1) for k in range(len(own.steps) - 1))
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


def test_what_a_method_needs_and_is_not_there_is_named(asking: Asking, requests: list[KnownRequest]) -> None:
    with pytest.raises(WrongInput, match="all that is served are servers"):
        METHODS["gold-body"](asking, requests[0])
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


def test_an_ablation_says_what_the_task_says_or_makes_own_work_a_step() -> None:
    assert [step.text for step in without_references(DRAFT).steps] == ["Fetch it", "mail Ida"]
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


@pytest.fixture
def server() -> Iterator[LlmServer]:
    with LlmServer(say=plans) as running:
        yield running


@pytest.fixture
def llm(server: LlmServer, tmp_path: Path) -> Iterator[Llm]:
    with Answers(Root(tmp_path / "root")) as answers:
        yield llm_of(server.url, answers)


@pytest.fixture
def methods(llm: Llm) -> dict[str, PlanMethod]:
    return llm_methods(llm, 0.6)


def test_there_are_exactly_the_methods_that_need_an_endpoint(methods: dict[str, PlanMethod]) -> None:
    assert sorted(methods) == sorted(NEED_ENDPOINT)
    assert not set(methods) & set(METHODS)


# The others differ in rounds or hints alone.
TELLING = {"llm-r1", "hybrid", "paper-r0", "paper-rerank", "paper-compose", "llm-direct", "react"}


@pytest.mark.parametrize("name", slow_but(TELLING, NEED_ENDPOINT))
def test_each_method_of_a_model_plans_and_finds_at_most_ten(
    methods: dict[str, PlanMethod], llm: Llm, asking: Asking, requests: list[KnownRequest], name: str
) -> None:
    made = methods[name](asking, requests[1])
    assert made.plan.steps
    assert all(0 < len(step.ids) == len(step.categories) <= 10 for step in made.plan.steps)
    assert all(0 <= place < len(made.plan.steps) for edge in made.plan.edges for place in edge)
    assert not llm.fallbacks


@pytest.mark.parametrize(
    ("name", "hints"),
    [("llm-r0", []), ("llm-r1", [8]), ("llm-hints-5", [5]), ("paper", [8]), ("paper-r0", []),
     ("paper-hints-5", [5])],
)  # fmt: skip
def test_hints_are_as_many_as_the_method_says_and_are_served(
    methods: dict[str, PlanMethod], server: LlmServer, asking: Asking, requests: list[KnownRequest],
    name: str, hints: list[int],
) -> None:  # fmt: skip
    methods[name](asking, requests[1])
    shown = [len(hints_of(asked)) for asked in server.asked]
    assert shown == [0, *hints]  # eight servers are all there are


def test_the_number_of_steps_is_told_in_words_and_the_answer_may_miss_it(
    methods: dict[str, PlanMethod], server: LlmServer, asking: Asking, requests: list[KnownRequest]
) -> None:
    server.say = lambda _: json.dumps(["order flour and milk"])
    made = methods["llm-gold-count"](asking, requests[1])
    assert "exactly 3 atomic sub-tasks" in server.asked[0].prompt
    assert len(made.plan.steps) == 1


def test_a_plan_in_the_papers_words_has_no_most_steps(
    methods: dict[str, PlanMethod], server: LlmServer, llm: Llm, asking: Asking, requests: list[KnownRequest]
) -> None:
    server.say = lambda _: json.dumps([f"order flour number {n}" for n in range(11)])
    assert len(methods["paper-r0"](asking, requests[1]).plan.steps) == 11
    assert server.asked[0].body["max_tokens"] == 256
    assert not llm.fallbacks


@pytest.mark.parametrize(("found_by", "reranker"), [("llm-r1", "llm-rerank"), ("paper", "paper-rerank")])
def test_reranking_changes_the_order_of_candidates_alone(
    methods: dict[str, PlanMethod], server: LlmServer, asking: Asking, requests: list[KnownRequest],
    found_by: str, reranker: str,
) -> None:  # fmt: skip
    plain = methods[found_by](asking, requests[0]).plan
    server.say = lambda asked: '{"best": 3}' if "candidates" in record_of(asked) else plans(asked)
    reranked = methods[reranker](asking, requests[0]).plan
    for before, after in zip(plain.steps, reranked.steps, strict=True):
        assert after.ids == (before.ids[2], *before.ids[:2], *before.ids[3:])


def test_the_paper_finds_candidates_by_its_own_retriever(
    methods: dict[str, PlanMethod], asking: Asking, requests: list[KnownRequest]
) -> None:
    steps = methods["paper"](asking, requests[1]).plan.steps
    assert steps == tuple(nearest(body=False)(asking, [step.text for step in steps]))


def test_direct_chooses_among_names_that_hold_the_right_ones(
    methods: dict[str, PlanMethod], server: LlmServer, asking: Asking, requests: list[KnownRequest]
) -> None:
    rows = shown_rows(asking, requests[0])
    assert (SHOWN, len(rows)) == (100, 8)  # all, of an index that has no more
    numbers = [n for n, row in enumerate(rows, start=1) if row["doc_id"] in ("ann/oven", "ann/kettle")]
    server.say = lambda _: json.dumps({"services": [*numbers, numbers[0]]})
    plan = methods["llm-direct"](asking, requests[0]).plan
    (asked,) = server.asked
    assert [service["name"] for service in record_of(asked)["services"]] == [row["name"] for row in rows]
    assert "Bakes" not in asked.prompt  # names alone
    assert measured(plan, requests[0].needed)["srvr@1"] == 1
    assert plan.edges == {(0, 1)}


def test_direct_shows_a_row_of_each_category_where_servers_are_not_known(
    asking: Asking, requests: list[KnownRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.evaluate.compose.llm_methods.SHOWN", 2)
    steps = tuple(NeededStep(None, frozenset({name})) for name in ("Baking", "Messages"))
    request = replace(requests[0], main=(), needed=Needed(steps, None))
    shown = shown_rows(asking, request)
    assert sorted(row["category"] for row in shown) == ["Baking", "Messages"]
    assert shown == shown_rows(asking, request)
    assert len(shown_rows(asking.without({"ann/oven", "bob/dough"}), request)) == 2


def test_react_searches_in_turns_and_uses_what_it_saw(
    methods: dict[str, PlanMethod], server: LlmServer, asking: Asking, requests: list[KnownRequest]
) -> None:
    plan = methods["react"](asking, requests[0]).plan
    last = record_of(server.asked[-1])
    assert [len(record_of(asked)["turns"]) for asked in server.asked] == [0, 1, 2]
    assert [found["number"] for turn in last["turns"] for found in turn["found"]] == list(range(1, 11))
    assert [step.text for step in plan.steps] == [turn["search"] for turn in last["turns"]]
    assert measured(plan, requests[0].needed)["srvr@1"] == 1
    assert plan.edges == {(0, 1)}
    one = methods["react-one"](asking, requests[0]).plan
    assert (one.steps, one.edges) == (plan.steps[:1], frozenset())


def never_done(_: Asked) -> str:
    return json.dumps({"thought": "hm", "action": "search", "search": "bread", "use": []})


def unseen(_: Asked) -> str:
    return json.dumps({"thought": "hm", "action": "finish", "search": "", "use": [1]})


@pytest.mark.parametrize(
    ("name", "say", "turns"),
    [
        ("react", never_done, TURNS), ("react", unseen, 1), ("llm-direct", unseen, 1),
        ("llm-direct", lambda _: '{"services": [0]}', 1),
        ("llm-direct", lambda _: '{"services": ["evil"]}', 1),
    ],
)  # fmt: skip
def test_a_baseline_without_a_usable_answer_has_no_plan_and_is_counted(
    methods: dict[str, PlanMethod], server: LlmServer, llm: Llm, asking: Asking, requests: list[KnownRequest],
    name: str, say: Say, turns: int,
) -> None:  # fmt: skip
    server.say = say
    plan = methods[name](asking, requests[0]).plan
    assert plan.steps == ()
    assert measured(plan, requests[0].needed)["da"] == 0
    assert server.requests == turns + 2  # the last question is asked three times
    assert sum(llm.fallbacks.values()) == 1
