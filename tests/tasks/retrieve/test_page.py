from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.errors import WrongInput
from tasks.retrieve.page import METHODS, page
from tasks.retrieve.paging.types import Page, PagedDocument, encode_chunks
from tests.support.models.word_models import WordEncoder, WordTokenizer

BODY = """\
# Beehive

Wear the veil before you open the hive.

## Inspection

Lift the frames one by one.
Look for the queen and for eggs.

## Winter

### Feeding
Feed sugar syrup until October.
Never feed honey from another hive.

### Mites
Treat mites with oxalic acid in December."""

MITES = "treat mites with oxalic acid"

Cut = Callable[[str], PagedDocument]


def ask(document: PagedDocument, query: str, method: str = "mmr", budget: float | None = None) -> Page:
    return page(
        document, query, encoder=WordEncoder(), tokenizer=WordTokenizer(), method=method, budget=budget
    )


def test_the_best_node_leads_in_document_order_under_its_headings(by_line: Cut) -> None:
    # The best node leads and stands under its headings.
    answer = ask(by_line(BODY), MITES)
    best, _ = max(answer.nodes, key=lambda scored: scored[1])
    assert best.text == "Treat mites with oxalic acid in December."
    assert answer.context.startswith("# Beehive\n\n")
    assert "## Winter\n\n### Feeding\n\nFeed sugar" in answer.context
    assert answer.context.endswith("…\n\n### Mites\n\nTreat mites with oxalic acid in December.")
    # Nodes come in document order and stand in the context.
    answer = ask(by_line(BODY), "feed the hive syrup")
    ordinals = [node.ordinal for node, _ in answer.nodes]
    assert ordinals == sorted(ordinals)
    assert all(node.text in answer.context for node, _ in answer.nodes)


def test_up_to_100_nodes_at_most_20_are_picked_and_beyond_60(by_line: Cut) -> None:
    lines = [f"turn screw number{n} left{n} until{n} it{n} is{n} tight{n}" for n in range(101)]
    small, large = by_line("\n".join(lines[:100])), by_line("\n".join(lines))
    assert len(ask(small, "turn screw").nodes) == 20
    assert len(ask(large, "turn screw").nodes) == 60
    assert len(ask(small, "turn screw", budget=1.0).nodes) == 100


def test_a_query_that_everything_opposes_gets_the_least_opposed_node(by_line: Cut) -> None:
    document = by_line("first line\nsecond line")
    query = WordEncoder().encode(["anything"])
    opposed = replace(document, vectors=np.vstack([-query, -query / 2]))
    assert [node.text for node, _ in ask(opposed, "anything").nodes] == ["second line"]


@pytest.mark.parametrize("method", ["full", "nodes"])
def test_the_whole_document_is_the_body_as_it_stands_with_all_its_nodes(by_line: Cut, method: str) -> None:
    answer = ask(by_line(BODY), MITES, method)
    assert answer.context == BODY
    assert len(answer.nodes) == 6
    assert answer.tokens == answer.document_tokens


def test_stored_vectors_and_counts_spare_encoding_and_counting(by_line: Cut) -> None:
    document = by_line(BODY)
    encoder, tokenizer = WordEncoder(), WordTokenizer()
    vectors = encoder.encode([node.text for node in document.nodes])
    encoder.encoded.clear()
    ready = replace(document, vectors=vectors, n_tokens=tokenizer.count([BODY])[0])
    tokenizer.counted.clear()
    answer = page(ready, MITES, encoder=encoder, tokenizer=tokenizer, method="mmr")
    assert encoder.encoded == [MITES]
    assert tokenizer.counted == [answer.context]
    assert answer == ask(document, MITES)


def test_chunks_are_cut_on_the_spot_or_taken_as_given_and_nodes_that_one_cuts_are_not_named(
    by_line: Cut,
) -> None:
    # Chunks are cut on the spot or taken as given.
    body = "\n".join(f"word{n} " * 100 for n in range(12))
    document = by_line(body)
    ready = replace(document, chunks=encode_chunks(body, encoder=WordEncoder(), tokenizer=WordTokenizer()))
    answer = ask(document, "word7", "chunks", budget=300)
    assert answer.tokens == 256
    assert answer == ask(ready, "word7", "chunks", budget=300)
    # Nodes that a chunk cuts are not named.
    lines = [f"line{n} " + "pad " * 99 for n in range(4)]
    document = by_line("\n".join(line.strip() for line in lines))
    answer = ask(document, "line0", "chunks", budget=256)
    assert [node.ordinal for node, _ in answer.nodes] == [0, 1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from(["facets", "greedy-graph", "mmr", "nodes", "chunks"]),
    budget=st.one_of(st.floats(0.01, 1.0), st.floats(1.1, 90.0)),
    query=st.sampled_from([MITES, "feed", "open the hive", "nothing of the kind"]),
)
def test_a_budget_is_a_ceiling_unless_not_even_the_best_node_fits(
    by_line: Cut, method: str, budget: float, query: str
) -> None:
    answer = ask(by_line(BODY), query, method, budget)
    ceiling = int(budget * answer.document_tokens) if budget <= 1 else int(budget)
    assert answer.over_budget == (answer.tokens > ceiling)
    if answer.over_budget and method != "chunks":
        assert [node.text for node, _ in answer.nodes] == [answer.context]


def test_a_budget_is_a_share_up_to_one_and_what_does_not_fit_is_passed_over(by_line: Cut) -> None:
    # Up to one is a share and above a number.
    document = by_line(BODY)
    assert WordTokenizer().count([BODY]) == [61]
    assert ask(document, MITES, "nodes", 0.5).context == ask(document, MITES, "nodes", 30).context
    assert ask(document, MITES, "nodes", 1.0).context == BODY
    assert ask(document, MITES, "nodes", 1.5).over_budget
    # What does not fit is passed over for what does.
    document = by_line("mites mites mites\n" + "mites " * 40 + "here\nmites and ticks")
    assert [node.ordinal for node, _ in ask(document, "mites", budget=8).nodes] == [0, 2]


def test_the_best_node_goes_without_headings_and_is_returned_whole_where_it_does_not_fit(
    by_line: Cut,
) -> None:
    # The best node is returned whole and alone when it does not fit.
    answer = ask(by_line(BODY), MITES, budget=3)
    assert answer.context == "Treat mites with oxalic acid in December."
    assert answer.over_budget
    assert [node.ordinal for node, _ in answer.nodes] == [5]
    # The best node goes without headings before it goes over budget.
    answer = ask(by_line(BODY), MITES, budget=8)
    assert answer.context == "Treat mites with oxalic acid in December."
    assert not answer.over_budget
    # The whole document over its budget is returned and says so.
    answer = ask(by_line(BODY), MITES, "full", 0.5)
    assert answer.context == BODY
    assert answer.over_budget


@pytest.mark.parametrize("method", ["facets", "mmr"])
def test_a_tokenizer_whose_parts_do_not_sum_up_still_keeps_the_ceiling(by_line: Cut, method: str) -> None:
    class Joining(WordTokenizer):
        """Where texts meet, tokens are added that neither has alone."""

        def count(self, texts: Sequence[str]) -> list[int]:
            return [n + 3 * text.count("\n\n") for n, text in zip(super().count(texts), texts, strict=True)]

    for budget in range(10, 60, 5):
        answer = page(
            by_line(BODY), MITES, encoder=WordEncoder(), tokenizer=Joining(), method=method, budget=budget
        )
        assert answer.tokens <= budget


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("budget", [None, 0.5])
def test_a_document_without_nodes_is_printed_whole(by_line: Cut, method: str, budget: float | None) -> None:
    answer = ask(by_line("# Only\n\n## Headings"), "headings", method, budget)
    assert (answer.nodes, answer.context) == ([], "# Only\n\n## Headings")
    empty = ask(by_line(""), "anything", method, 10)
    assert (empty.context, empty.tokens, empty.over_budget) == ("", 0, False)


@pytest.mark.parametrize("query", ["", " \n"])
def test_a_blank_query_is_refused(by_line: Cut, query: str) -> None:
    with pytest.raises(WrongInput, match="query is empty"):
        ask(by_line(BODY), query)


@pytest.mark.parametrize("budget", [0, -1, math.nan, math.inf])
def test_a_budget_that_is_no_positive_number_is_refused(by_line: Cut, budget: float) -> None:
    with pytest.raises(WrongInput, match=str(budget)):
        ask(by_line(BODY), MITES, budget=budget)


def test_an_unknown_method_and_vectors_of_other_nodes_are_refused(by_line: Cut) -> None:
    # An unknown method is refused with the known ones.
    with pytest.raises(WrongInput, match=r"'best'.*facets, full, nodes, skillpager"):
        ask(by_line(BODY), MITES, "best")
    # Vectors of other nodes are refused by shape.
    with pytest.raises(ValueError, match=r"guide: 6 nodes but vectors of shape \(2, 512\)"):
        ask(replace(by_line(BODY), vectors=WordEncoder().encode(["a", "b"])), MITES)


def test_filling_a_budget_counts_no_text_a_step(by_line: Cut) -> None:
    lines = [f"turn screw number{n} left{n} until{n} it{n} is{n} tight{n}" for n in range(300)]
    document = replace(by_line("# Screws\n" + "\n".join(lines)), n_tokens=2402)
    tokenizer = WordTokenizer()
    answer = page(
        document, "turn screw", encoder=WordEncoder(), tokenizer=tokenizer, method="mmr", budget=0.5
    )
    assert len(answer.nodes) > 100
    assert tokenizer.counted == ["# Screws", "…", answer.context]
