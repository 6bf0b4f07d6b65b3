from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_paging_units import CODE, PROSE, TABLE, nodes_of
from word_models import WordEncoder, WordTokenizer

from tasks.retrieve.page import Page, PagedDocument, page
from tasks.retrieve.paging_facets import ready_for

KITCHEN = f"""\
# Kitchen

{PROSE}

## Timer

Set the timer from code:

{CODE}

## Soups

{TABLE}

## Cleaning

- Scrub the **copper** pan with lemon and salt.
- Never put knives into the machine.
"""
DOCUMENT = PagedDocument("soup", KITCHEN, nodes_of(KITCHEN))
READY = replace(DOCUMENT, ready=ready_for(DOCUMENT, encoder=WordEncoder(), tokenizer=WordTokenizer()))


def ask(query: str, budget: float | None = None, document: PagedDocument = READY) -> Page:
    return page(document, query, encoder=WordEncoder(), tokenizer=WordTokenizer(), budget=budget)


def test_a_row_stands_under_its_table_s_header_and_heading() -> None:
    context = ask("how many minutes does leek and potato 7 take", 40).context

    assert "## Soups\n\n| soup | minutes |\n|-|-|" in context
    assert "| leek and potato 7 | 7 |" in context


def test_lines_of_code_stand_between_fences_with_gaps_marked_and_behind_what_announces_them() -> None:
    context = ask("stir the pot in step_5 gently", 80).context

    assert "Set the timer from code:" in context
    assert "```python\n" in context
    assert "def step_5():\n    stir(pot, 5 * 10, gently=True)" in context
    assert context.count("```") == 2
    assert "\n…\n" in context


def test_every_facet_of_a_request_is_served() -> None:
    context = ask("scrub the copper pan with lemon, and never put knives into the machine", 45).context

    assert "copper pan" in context
    assert "knives" in context


def test_marks_that_carry_nothing_cost_nothing() -> None:
    answer = ask("scrub the copper pan", 30)

    assert "Scrub the copper pan with lemon and salt." in answer.context
    assert "**" not in answer.context


def test_nodes_in_part_say_what_is_printed_of_them_and_every_node_is_either_in_or_out() -> None:
    answer = ask("stir the pot in step_5 gently", 80)

    code = next(node for node, _ in answer.nodes if node.block == "code")
    assert answer.printed[code.node_id] in answer.context
    assert set(answer.why) == {node.node_id for node, _ in answer.nodes}
    assert set(answer.why[code.node_id]) == {"facets", "headings", "words", "meaning", "shape"}
    ids = [node.node_id for node, _ in (*answer.nodes, *answer.left_out)]
    assert sorted(ids) == sorted(node.node_id for node in DOCUMENT.nodes)


def test_a_narrow_request_takes_less_than_a_broad_one_without_a_budget() -> None:
    narrow = ask("scrub the copper pan with lemon")
    broad = ask(
        "scrub the pan, set the timer in code, list all soups, simmer every batch, keep the knives safe"
    )

    assert narrow.tokens < broad.tokens < narrow.document_tokens


def test_a_document_made_ready_before_gives_the_same_page() -> None:
    assert ask("simmer the batch", 0.4) == ask("simmer the batch", 0.4, DOCUMENT)


@pytest.mark.parametrize("budget", [1.0, 10_000])
def test_a_budget_that_holds_all_gives_the_body_as_it_stands(budget: float) -> None:
    answer = ask("anything", budget)

    assert answer.context == KITCHEN
    assert answer.printed == {}


def test_a_query_of_a_hundred_thousand_characters_is_answered() -> None:
    assert ask("where does the copper pan go? " * 3400, 0.3).tokens > 0


@given(
    budget=st.one_of(st.floats(0.01, 1.0), st.floats(1.1, 400.0)),
    query=st.sampled_from(
        ["copper", "code for step_3", "soups, knives, timers and batches of leek", "quantum"]
    ),
)
def test_every_answer_is_within_its_budget_or_one_node_alone(budget: float, query: str) -> None:
    answer = ask(query, budget)

    ceiling = int(budget * answer.document_tokens) if budget <= 1 else int(budget)
    assert answer.tokens == WordTokenizer().count([answer.context])[0]
    assert answer.over_budget == (answer.tokens > ceiling)
    assert not answer.over_budget or len(answer.nodes) == 1
