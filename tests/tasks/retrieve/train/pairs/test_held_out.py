from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import WrongInput
from tasks.retrieve.train.pairs.held_out import AskedTexts, near_gold, read_benches

RECIPE = " ".join(f"step {n} folds the dough" for n in range(40))
WORDS = st.lists(st.sampled_from(["knead", "fold", "bake", "cool", "slice", "eat"]), min_size=1, max_size=30)


def write(path: Path, *records: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")


def test_benches_are_read_folder_by_folder_with_relevant_skills_copies_and_requests(tmp_path: Path) -> None:
    write(tmp_path / "a" / "queries.jsonl", {"query_id": "1", "text": "Bake a loaf"})
    write(
        tmp_path / "a" / "qrels.jsonl",
        {"query_id": "1", "doc_id": "rye", "relevance": 3},
        {"query_id": "1", "doc_id": "tea", "relevance": 0},
        {"query_id": "1", "doc_id": "oats", "relevance": None},
        {"query_id": "1", "doc_id": "bran", "relevance": 1},
    )
    write(tmp_path / "a" / "copies.jsonl", {"copy_id": "rye-2", "doc_id": "rye"})
    write(tmp_path / "a" / "documents.jsonl", {"doc_id": "pool", "content": "# Pool"})
    write(
        tmp_path / "b" / "c" / "q.jsonl",
        {"query_id": "2", "doc_id": "oat", "query": "Stir", "paraphrase": "Mix"},
    )
    write(tmp_path / "b" / "c" / "gold.jsonl", {"id": "n1", "doc_id": "bun", "text": "a fragment"})
    write(tmp_path / "b" / "train.jsonl", {"id": "n2", "doc_id": "free", "text": "a fragment"})

    a, b = read_benches(tmp_path)

    assert (a.name, a.gold, a.requests) == ("a", {"rye", "rye-2", "oats", "bran"}, ["Bake a loaf"])
    assert (b.name, b.gold, b.requests) == ("b/c", {"oat", "bun"}, ["Stir", "Mix"])


def test_a_folder_without_lines_is_no_bench(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match="no bench"):
        read_benches(tmp_path)


def test_copies_versions_and_excerpts_of_gold_are_near_and_nothing_else() -> None:
    words = RECIPE.split()
    bodies = [
        RECIPE,
        f"A new heading. {RECIPE} And one more step at the end.",
        " ".join(words[:60]),
        f"{RECIPE} " + " ".join(f"then {n} comes something longer" for n in range(300)),
        "Pour hot water over the leaves and wait for three minutes.",
        "",
    ]

    found = list(near_gold(bodies, ["Another text with words of its own and no more.", RECIPE]))

    assert found == [[1], [1], [1], [1], [], []]


def test_a_text_that_shares_two_thirds_of_its_words_in_one_run_is_a_version() -> None:
    gold = [f"word{n}" for n in range(100)]
    bodies = [" ".join([*gold[:kept], *(f"other{n}" for n in range(100 - kept))]) for kept in (70, 60)]

    assert list(near_gold(bodies, [" ".join(gold)])) == [[0], []]


def test_a_short_text_is_near_if_all_of_it_is_shared() -> None:
    gold = "Bakes dark rye bread in a hot oven"

    assert list(near_gold([f"{gold} today", f"{gold} tonight", gold], [f"{gold} today"])) == [[0], [], [0]]


def test_nothing_is_near_no_gold() -> None:
    assert list(near_gold([RECIPE], [])) == [[]]


@pytest.mark.parametrize(
    ("query", "near"),
    [
        ("Bake a dark loaf", True),
        ("bake a DARK loaf!", True),
        ("Please bake a dark loaf of rye for the guests tonight", True),
        ("Bake a pale loaf", False),
        ("Bake a dark loaf of rye and then go home", False),
    ],
)
def test_a_request_is_near_by_eight_words_or_as_a_whole(query: str, near: bool) -> None:
    asked = AskedTexts(["Could you bake a dark loaf of rye for the guests on Sunday?"])

    assert asked.near(query) is near


@given(WORDS, st.data())
def test_every_part_of_a_request_is_near_to_it(words: list[str], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first + 1, len(words)))

    assert AskedTexts([" ".join(words)]).near(" ".join(words[first:last]))
