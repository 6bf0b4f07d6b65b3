from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import StorageError
from storage.schemas import Node
from tasks.models.protocols import Vectors
from tasks.retrieve.page import page
from tasks.retrieve.paging.request import Request, read_request
from tasks.retrieve.paging.types import Page, PagedDocument
from tests.support.models.word_models import WordEncoder, WordTokenizer
from tests.support.paging.prepared_documents import DOCUMENT, KITCHEN, nodes_of
from tests.support.paging.prepared_documents import FACETS_READY as READY


def ask(query: str, budget: float | None = None, document: PagedDocument = READY) -> Page:
    return page(document, query, encoder=WordEncoder(), tokenizer=WordTokenizer(), budget=budget)


def test_what_is_taken_of_a_block_stands_in_its_frame_and_every_facet_is_served() -> None:
    # A row stands under its table s header and heading.
    context = ask("how many minutes does leek and potato 7 take", 40).context
    assert "## Soups\n\nsoup | minutes\n-|-\n" in context
    assert "\nleek and potato 7 | 7\n" in context
    # Lines of code stand between fences with gaps marked and behind what announces them.
    context = ask("stir the pot in step_5 gently", 80).context
    assert "Set the timer from code:" in context
    assert "```python\n" in context
    assert "def step_5():\n    stir(pot, 5 * 10, gently=True)" in context
    assert context.count("```") == 2
    assert "\n…\n" in context
    # Every facet of a request is served.
    context = ask("scrub the copper pan with lemon, and never put knives into the machine", 45).context
    assert "copper pan" in context
    assert "knives" in context


def test_nodes_in_part_say_what_is_printed_of_them_and_every_node_is_either_in_or_out() -> None:
    answer = ask("stir the pot in step_5 gently", 80)
    code = next(node for node, _ in answer.nodes if node.block == "code")
    assert answer.printed[code.node_id] in answer.context
    assert set(answer.why) == {node.node_id for node, _ in answer.nodes}
    assert set(answer.why[code.node_id]) == {"facets", "headings", "words", "meaning", "shape"}
    ids = [node.node_id for node, _ in (*answer.nodes, *answer.left_out)]
    assert sorted(ids) == sorted(node.node_id for node in DOCUMENT.nodes)


def test_a_narrow_request_takes_less_than_a_broad_one_also_of_a_document_made_ready_before() -> None:
    # A narrow request takes less than a broad one without a budget.
    narrow = ask("scrub the copper pan with lemon")
    broad = ask(
        "scrub the pan, set the timer in code, list all soups, simmer every batch, keep the knives safe"
    )
    assert narrow.tokens < broad.tokens < narrow.document_tokens
    # A document made ready before gives the same page.
    assert ask("simmer the batch", 0.4) == ask("simmer the batch", 0.4, DOCUMENT)


@pytest.mark.parametrize("budget", [1.0, 10_000])
def test_a_budget_that_holds_all_gives_the_body_as_it_stands(budget: float) -> None:
    answer = ask("anything", budget)
    assert answer.context == KITCHEN
    assert answer.printed == {}


def test_a_query_of_a_hundred_thousand_characters_is_answered() -> None:
    assert ask("where does the copper pan go? " * 3400, 0.3).tokens > 0


@pytest.mark.parametrize("budget", [None, 0.01, 0.5, 1.0, 3, 500])
@pytest.mark.parametrize("body", ["Stir.", "# Soup\n\nStir it well, then serve.", "```\nstir()\n```"])
def test_a_document_of_one_node_is_answered_with_it(body: str, budget: float | None) -> None:
    document = PagedDocument("soup", body, nodes_of(body))
    answer = ask("stir", budget, document)
    assert [node.ordinal for node, _ in answer.nodes] == [0]
    assert document.nodes[0].text in answer.context
    assert answer.left_out == []


VECTORS = WordEncoder().encode([node.text for node in DOCUMENT.nodes])


@pytest.mark.parametrize("damage", [np.nan, np.inf])
def test_vectors_that_are_no_numbers_are_a_damaged_index(damage: float) -> None:
    vectors = VECTORS.copy()
    vectors[3, 7] = damage
    with pytest.raises(StorageError, match="soup: a vector of its nodes is no vector of numbers"):
        ask("copper", 0.5, replace(DOCUMENT, vectors=vectors))


@pytest.mark.parametrize(
    "nodes",
    [
        DOCUMENT.nodes[1:],
        [*DOCUMENT.nodes[:2], *DOCUMENT.nodes[3:]],
        [DOCUMENT.nodes[0], *DOCUMENT.nodes],
        [replace(DOCUMENT.nodes[0], text="Simmer nothing."), *DOCUMENT.nodes[1:]],
        [replace(DOCUMENT.nodes[0], end=10_000), *DOCUMENT.nodes[1:]],
    ],
)
def test_nodes_of_another_text_are_a_damaged_index(nodes: list[Node]) -> None:
    with pytest.raises(StorageError, match=r"soup: node soup#\d+ is not what stands in its text"):
        ask("copper", 0.5, replace(DOCUMENT, nodes=nodes))


def test_words_that_share_a_pass_are_found_where_the_encoder_looks_into_a_text() -> None:
    class Parting(WordEncoder):
        def encode_parts(self, text: str, parts: Sequence[tuple[int, int]]) -> Vectors:
            return self.encode([text, *(text[start:end] for start, end in parts)])

    query = "scrub the copper pan, and set the timer"
    found = page(READY, query, encoder=Parting(), tokenizer=WordTokenizer(), budget=0.5)
    assert found == ask(query, 0.5)


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


def facets(request: Request) -> list[str]:
    return [request.text[start:end] for start, end in request.facets]


def test_terms_are_stems_of_words_of_names_of_code_and_of_pairs_of_unspaced_signs() -> None:
    # Function words go and inflections share a stem.
    assert read_request("How do I bake the loaves?").terms == ("bake", "loav")
    assert read_request("planting planted plants").terms == ("plant",)
    # Names of code are taken apart.
    assert read_request("setOvenHeat oven_heat").terms == ("set", "oven", "heat")
    # Scripts without spaces are cut into pairs.
    assert read_request("茶葉を注ぐ").terms == ("茶葉", "葉を", "を注", "注ぐ")
    # An endless request is read as far as it says something new.
    request = read_request("unusual gadget wiring, " * 5000)
    assert request.terms[:3] == ("unusual", "gadget", "wir")
    assert len(request.facets) == 12


def test_each_clause_is_a_facet_and_function_words_alone_are_one() -> None:
    # Each clause is a facet and a short one joins the next.
    request = read_request("Open the hive slowly, look for eggs of the queen, and treat the varroa mites.")
    assert facets(request) == [
        "Open the hive slowly",
        "look for eggs of the queen",
        "and treat the varroa mites",
    ]
    assert request.asks.sum(axis=1).tolist() == [3, 3, 3]
    assert request.asks.sum(axis=0).tolist() == [1] * 9
    # A request of function words has one facet and no terms.
    request = read_request("what is it?")
    assert (request.terms, facets(request)) == ((), ["what is it?"])
    assert request.asks.shape == (1, 0)


@pytest.mark.parametrize("query", ["the queen", ", ;", "  look for eggs, or not", "a\n\nb"])
def test_a_facet_is_a_piece_of_what_is_encoded_and_is_never_empty(query: str) -> None:
    found = facets(read_request(query))
    assert found
    assert all(piece in query for piece in found)
    assert all(found)
