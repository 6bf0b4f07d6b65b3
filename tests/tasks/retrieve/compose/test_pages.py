"""Pages of a plan: each step that a skill serves brings the part of the skill that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.errors import WrongInput
from tasks.refine.licences.policy import SERVE_POLICY, LicencePolicy
from tasks.retrieve.compose.compose import compose
from tasks.retrieve.compose.options import ComposeOptions
from tasks.retrieve.index.licence_classes import classify_licences
from tasks.retrieve.page import DEFAULT_METHOD
from tasks.retrieve.served_index import ServedIndex
from tests.support.roots.kitchen_servers import serve_kitchen
from tests.support.roots.skill_root import Export, SkillRoot

TASK = "Bake a loaf of wheat bread with yeast, and then book a flight to Lisbon for Friday."


@pytest.fixture(scope="module")
def index(served_bakery: SkillRoot) -> ServedIndex:
    return served_bakery.ask()


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
    plan = compose(index, TASK, ComposeOptions(pages=budget))

    assert served(plan)
    for step in served(plan):
        paged = index.page(step["doc_id"], step["text"], budget=budget, method=DEFAULT_METHOD)
        assert step["page"] == {
            "context": paged["context"], "tokens": paged["tokens"],
            "document_tokens": paged["document_tokens"], "nodes": [n["node_id"] for n in paged["nodes"]],
        }  # fmt: skip
    assert plan["tokens"]["pages"] == sum(step["page"]["tokens"] for step in served(plan)) > 0


def test_a_skill_of_two_steps_counts_each_page(index: ServedIndex) -> None:
    task = "Look after the bees in summer, and then feed the honey bees sugar syrup in October."
    plan = compose(index, task, ComposeOptions(pages=0.5))

    assert [step["doc_id"] for step in plan["steps"]] == ["local/market/bees"] * 2
    pages = [step["page"]["tokens"] for step in plan["steps"]]
    assert plan["tokens"]["pages"] == sum(pages) > max(pages)


def test_a_gap_has_no_page_and_without_pages_no_step_has_one(index: ServedIndex) -> None:
    paged, plain = compose(index, TASK, ComposeOptions(pages=0.5)), compose(index, TASK)

    assert [step["text"] for step in paged["steps"] if "page" not in step] == [
        step["text"] for step in plain["steps"] if step["gap"]
    ]
    assert not [step for step in plain["steps"] if "page" in step]
    assert plain["tokens"]["pages"] == 0


def test_a_text_that_its_licence_keeps_back_is_named_and_the_plan_stands(withheld: ServedIndex) -> None:
    plan = compose(withheld, TASK, ComposeOptions(pages=0.5))

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


@pytest.mark.parametrize("budget", [0, -1, float("nan"), float("inf")])
def test_a_budget_that_is_no_positive_number_is_refused(budget: float) -> None:
    with pytest.raises(WrongInput, match=r"^pages is .*, no positive number"):
        ComposeOptions(pages=budget)
