"""Plans of tasks over a served index: steps, order, what serves each, and what nothing serves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.errors import WrongInput
from tasks.refine.licences.policy import SERVE_POLICY, LicencePolicy
from tasks.retrieve.compose.compose import ComposeOptions, compose
from tasks.retrieve.index.licence_classes import classify_licences
from tasks.retrieve.page import DEFAULT_METHOD
from tasks.retrieve.routing.search import Filters
from tasks.retrieve.served_index import ServedIndex
from tests.support.roots.kitchen_servers import serve_kitchen
from tests.support.roots.skill_root import Export, SkillRoot

TASK = "Bake a loaf of wheat bread with yeast, and then brew a pot of green tea."


def ids(plan: dict[str, Any]) -> list[str | None]:
    return [step["doc_id"] for step in plan["steps"]]


def test_each_step_names_what_serves_it_and_what_nothing_serves_is_a_gap(index: ServedIndex) -> None:
    # Each step names what serves it and where the task says it.
    plan = compose(index, TASK)
    assert [step["step"] for step in plan["steps"]] == [1, 2]
    assert plan["steps"][0]["candidates"][0]["doc_id"] == "local/market/bread"
    for step in plan["steps"]:
        assert " … ".join(TASK[a:b] for a, b in step["spans"]) == step["text"]
        assert set(step["after"]) < {s["step"] for s in plan["steps"]}
        assert {"licence", "source", "content_hash", "risks", "stale"} <= step["candidates"][0].keys()
    assert plan["decomposer"] == "local"
    assert [n for group in plan["groups"] for n in group] == [1, 2]
    assert plan["tokens"]["chosen"] <= plan["tokens"]["all"]
    # What nothing serves is a gap instead of the least bad.
    plan = compose(index, "Check the DNS records of example.org, and then bake a loaf of wheat bread.")
    bare = [step for step in plan["steps"] if "DNS" in step["text"]]
    baked = [step for step in plan["steps"] if "bread" in step["text"]]
    assert [(step["gap"], step["doc_id"]) for step in bare] == [(True, None)]
    assert [(step["gap"], step["doc_id"]) for step in baked] == [(False, "local/market/bread")]
    assert all(step["candidates"] for step in plan["steps"])


def test_candidates_tell_relevance_and_from_the_second_step_on_compatibility(index: ServedIndex) -> None:
    first, second = compose(index, TASK, ComposeOptions(alpha=0.9))["steps"]
    plain = compose(index, TASK)["steps"]
    assert {c["compatibility"] for step in plain for c in step["candidates"]} == {None}
    assert {c["compatibility"] for c in first["candidates"]} == {None}
    assert all(0 <= c["compatibility"] <= 1 for c in second["candidates"])
    for step in (first, second):
        scores = [c["score"] for c in step["candidates"]]
        assert scores == sorted(scores, reverse=True)
        assert step["candidates"][0]["relevance"] == 1


def test_fewer_candidates_are_the_first_of_more(index: ServedIndex) -> None:
    for alpha in (1.0, 0.3):
        few, many = (compose(index, TASK, ComposeOptions(k=k, alpha=alpha))["steps"] for k in (1, 4))
        assert [s["candidates"] for s in few] == [s["candidates"][:1] for s in many]
        assert [s["confidence"] for s in few] == [s["confidence"] for s in many]


def test_the_trace_tells_each_round_and_filters_hold_for_every_step(index: ServedIndex) -> None:
    # The trace tells each round.
    plan = compose(index, TASK, ComposeOptions(explain=True, hints=3))
    assert plan["trace"][0]["jaccard"] is None
    assert all(len(one["hints"]) <= 3 for one in plan["trace"])
    assert len(plan["trace"]) == plan["rounds"] + 1
    # Filters hold for every step.
    with pytest.raises(WrongInput, match="nothing served has it"):
        compose(index, TASK, ComposeOptions(filters=Filters(kinds=("mcp-server",))))


@pytest.mark.parametrize(
    "options",
    [
        {"k": 0}, {"max_steps": 0}, {"max_steps": 41}, {"rounds": -1}, {"hints": 0}, {"alpha": 1.1},
        {"alpha": -0.1}, {"alpha": math.nan}, {"pages": 0}, {"pages": -1}, {"pages": math.nan},
        {"pages": math.inf},
    ],
)  # fmt: skip
def test_options_out_of_range_are_named(options: dict[str, float]) -> None:
    with pytest.raises(WrongInput, match=f"^{next(iter(options))} is"):
        ComposeOptions(**options)  # type: ignore[arg-type]


WITH_GAP = "Bake a loaf of wheat bread with yeast, and then book a flight to Lisbon for Friday."


@pytest.fixture
def withheld(served_bakery: SkillRoot) -> Iterator[ServedIndex]:
    """Texts without a licence, under a policy that asks for one."""
    skills = served_bakery.served().skills
    classify_licences(served_bakery.root, skills, LicencePolicy())
    yield served_bakery.ask()
    classify_licences(served_bakery.root, skills, SERVE_POLICY)


def served(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for step in plan["steps"] if not step["gap"]]


@pytest.mark.parametrize("budget", [0.3, 1, 60])
def test_a_step_has_the_page_of_its_skill_for_its_own_text(index: ServedIndex, budget: float) -> None:
    plan = compose(index, WITH_GAP, ComposeOptions(pages=budget))
    assert served(plan)
    for step in served(plan):
        paged = index.page(step["doc_id"], step["text"], budget=budget, method=DEFAULT_METHOD)
        assert step["page"] == {
            "context": paged["context"], "tokens": paged["tokens"],
            "document_tokens": paged["document_tokens"], "nodes": [n["node_id"] for n in paged["nodes"]],
        }  # fmt: skip
    assert plan["tokens"]["pages"] == sum(step["page"]["tokens"] for step in served(plan)) > 0


def test_a_gap_has_no_page_without_pages_no_step_has_one_and_a_skill_of_two_steps_counts_each(
    index: ServedIndex,
) -> None:
    # A gap has no page and without pages no step has one.
    paged, plain = compose(index, WITH_GAP, ComposeOptions(pages=0.5)), compose(index, WITH_GAP)
    assert [step["text"] for step in paged["steps"] if "page" not in step] == [
        step["text"] for step in plain["steps"] if step["gap"]
    ]
    assert not [step for step in plain["steps"] if "page" in step]
    assert plain["tokens"]["pages"] == 0
    # A skill of two steps counts each page.
    task = "Look after the bees in summer, and then feed the honey bees sugar syrup in October."
    plan = compose(index, task, ComposeOptions(pages=0.5))
    assert [step["doc_id"] for step in plan["steps"]] == ["local/market/bees"] * 2
    pages = [step["page"]["tokens"] for step in plan["steps"]]
    assert plan["tokens"]["pages"] == sum(pages) > max(pages)


def test_a_text_that_its_licence_keeps_back_is_named_and_the_plan_stands(withheld: ServedIndex) -> None:
    plan = compose(withheld, WITH_GAP, ComposeOptions(pages=0.5))
    assert served(plan)
    for step in served(plan):
        assert step["page"] is None
        assert f"{step['doc_id']} is withheld: its licence, unknown" in step["page_error"]
    assert plan["tokens"]["pages"] == 0


def test_a_server_is_described_and_has_no_page(tmp_path: Path, minilm_export: Export) -> None:
    plan = compose(
        serve_kitchen(tmp_path, minilm_export).ask(), "Brew a pot of green tea.", ComposeOptions(pages=0.5)
    )
    assert [step["doc_id"] for step in served(plan)] == ["ann/kettle"]
    assert not [step for step in plan["steps"] if "page" in step]
