"""Methods that ask a language model, over HTTP, about requests whose answers are known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from storage.answers import Answers
from storage.root import Root
from tasks.evaluate.compose.llm_methods import SHOWN, TURNS, llm_methods, shown_rows
from tasks.evaluate.compose.measures import Needed, NeededStep, measured
from tasks.evaluate.compose.methods import METHODS, NEED_ENDPOINT, Asking, PlanMethod, nearest
from tasks.evaluate.compose.requests import KnownRequest
from tasks.models.llm.ask import Llm
from tests.support.llm.llm_asking import llm_of
from tests.support.llm.llm_server import Asked, LlmServer, Say
from tests.support.llm.scripted import hints_of, plans, record_of
from tests.support.processes import slow_but


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
def test_each_method_plans_and_finds_at_most_ten(
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


def test_react_comes_to_one_action_as_in_the_paper(
    methods: dict[str, PlanMethod], asking: Asking, requests: list[KnownRequest]
) -> None:
    whole, one = (methods[name](asking, requests[0]).plan for name in ("react", "react-one"))
    assert (one.steps, one.edges) == (whole.steps[:1], frozenset())
    assert measured(one, requests[0].needed)["da"] == 0


def test_the_paper_finds_candidates_by_its_own_retriever(
    methods: dict[str, PlanMethod], asking: Asking, requests: list[KnownRequest]
) -> None:
    steps = methods["paper"](asking, requests[1]).plan.steps
    assert steps == tuple(nearest(body=False)(asking, [step.text for step in steps]))


def test_direct_chooses_among_names_that_hold_the_right_ones(
    methods: dict[str, PlanMethod], server: LlmServer, asking: Asking, requests: list[KnownRequest]
) -> None:
    rows = shown_rows(asking, requests[0])
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


def test_names_shown_are_a_hundred(asking: Asking, requests: list[KnownRequest]) -> None:
    assert SHOWN == 100
    assert len(shown_rows(asking, requests[0])) == 8  # all, of an index that has no more


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
