from __future__ import annotations

import pytest

from tasks.retrieve.paging.request import Request, read_request


def facets(request: Request) -> list[str]:
    return [request.text[start:end] for start, end in request.facets]


def test_function_words_go_and_inflections_share_a_stem() -> None:
    assert read_request("How do I bake the loaves?").terms == ("bake", "loav")
    assert read_request("planting planted plants").terms == ("plant",)


def test_names_of_code_are_taken_apart() -> None:
    assert read_request("setOvenHeat oven_heat").terms == ("set", "oven", "heat")


def test_each_clause_is_a_facet_and_a_short_one_joins_the_next() -> None:
    request = read_request("Open the hive slowly, look for eggs of the queen, and treat the varroa mites.")

    assert facets(request) == [
        "Open the hive slowly",
        "look for eggs of the queen",
        "and treat the varroa mites",
    ]
    assert request.asks.sum(axis=1).tolist() == [3, 3, 3]
    assert request.asks.sum(axis=0).tolist() == [1] * 9


def test_a_request_of_function_words_has_one_facet_and_no_terms() -> None:
    request = read_request("what is it?")

    assert (request.terms, facets(request)) == ((), ["what is it?"])
    assert request.asks.shape == (1, 0)


def test_scripts_without_spaces_are_cut_into_pairs() -> None:
    assert read_request("茶葉を注ぐ").terms == ("茶葉", "葉を", "を注", "注ぐ")


def test_an_endless_request_is_read_as_far_as_it_says_something_new() -> None:
    request = read_request("unusual gadget wiring, " * 5000)

    assert request.terms[:3] == ("unusual", "gadget", "wir")
    assert len(request.facets) == 12


@pytest.mark.parametrize("query", ["the queen", ", ;", "  look for eggs, or not", "a\n\nb"])
def test_a_facet_is_a_piece_of_what_is_encoded_and_is_never_empty(query: str) -> None:
    found = facets(read_request(query))

    assert found
    assert all(piece in query for piece in found)
    assert all(found)
