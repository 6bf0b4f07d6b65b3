from __future__ import annotations

from tasks.retrieve.paging_request import read_request


def test_function_words_go_and_inflections_share_a_stem() -> None:
    assert read_request("How do I bake the loaves?").terms == ("bake", "loav")
    assert read_request("planting planted plants").terms == ("plant",)


def test_names_of_code_are_taken_apart() -> None:
    assert read_request("setOvenHeat oven_heat").terms == ("set", "oven", "heat")


def test_each_clause_is_a_facet_and_a_short_one_joins_the_next() -> None:
    request = read_request("Open the hive slowly, look for eggs of the queen, and treat the varroa mites.")

    assert request.facets == (
        "Open the hive slowly",
        "look for eggs of the queen",
        "and treat the varroa mites",
    )
    assert request.asks.sum(axis=1).tolist() == [3, 3, 3]
    assert request.asks.sum(axis=0).tolist() == [1] * 9


def test_a_request_of_function_words_has_one_facet_and_no_terms() -> None:
    request = read_request("what is it?")

    assert (request.terms, request.facets) == ((), ("what is it?",))
    assert request.asks.shape == (1, 0)


def test_scripts_without_spaces_are_cut_into_pairs() -> None:
    assert read_request("茶葉を注ぐ").terms == ("茶葉", "葉を", "を注", "注ぐ")


def test_an_endless_request_is_read_as_far_as_it_says_something_new() -> None:
    request = read_request("unusual gadget wiring, " * 5000)

    assert request.terms[:3] == ("unusual", "gadget", "wir")
    assert len(request.facets) == 12
