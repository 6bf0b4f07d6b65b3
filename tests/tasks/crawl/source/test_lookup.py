from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.crawl.source.lookup import meant, suggestion

NAMES = {
    "ann/garden/beds/dill": "dill",
    "ann/garden/beds/basil": "sweet basil",
    "bob/herbs/dill": "Dill of Bob",
    "bob/dill": None,
    "Cy/Mint": "mint",
}
WORDS = st.sampled_from(["a", "A", "b", "ab", "c"])
IDS = st.lists(WORDS, min_size=1, max_size=3).map("/".join)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("ANN/garden/beds/DILL", ["ann/garden/beds/dill"]),
        ("beds/dill", ["ann/garden/beds/dill"]),
        ("sweet BASIL", ["ann/garden/beds/basil"]),
        ("mint", ["Cy/Mint"]),
        ("dill", ["ann/garden/beds/dill", "bob/dill", "bob/herbs/dill"]),
        ("bob/dill", ["bob/dill"]),
        ("ill", []),
        ("", []),
        ("/", []),
    ],
)
def test_an_id_its_end_or_a_name_is_meant(wanted: str, found: list[str]) -> None:
    assert meant(wanted, NAMES) == found


@given(IDS, st.dictionaries(IDS, st.none() | WORDS, max_size=8))
def test_a_whole_id_is_never_taken_for_another(wanted: str, names: dict[str, str | None]) -> None:
    found = meant(wanted, names)
    if wanted.casefold() in {doc_id.casefold() for doc_id in names}:
        assert [doc_id.casefold() for doc_id in found] == [wanted.casefold()]
    for doc_id in found:
        of_name = (names[doc_id] or "").casefold()
        assert doc_id.casefold().endswith(wanted.casefold()) or of_name == wanted.casefold()


def test_several_are_named_or_the_nearest() -> None:
    several = meant("dill", NAMES)
    assert suggestion("dill", several, NAMES) == (
        "; it may mean ann/garden/beds/dill, bob/dill, bob/herbs/dill: give the whole id"
    )
    assert "ann/garden/beds/basil" in suggestion("beds/bazil", [], NAMES)
    assert suggestion("xyzzy 42", [], NAMES) == ""
