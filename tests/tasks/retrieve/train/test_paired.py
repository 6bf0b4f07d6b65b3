from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from storage.errors import WrongInput
from tasks.retrieve.routing.skill import Skill, digest_of
from tasks.retrieve.train.paired import PAIRS, asked_of, read_pairs
from tasks.retrieve.train.queries import without_queries

TEA = Skill("house/tea", "tea", "Warms the pot first. Use to brew black tea for guests.", "Pour it slowly.")
RUST = Skill(
    "house/rust", "rust", "Cares for tools.", "# Care\n\n- get the rust off a scythe\n\nOil it after."
)


def pair(skill: Skill, query: str, piece: str, *, split: str = "train") -> tuple:  # type: ignore[type-arg]
    cut_field = "body" if piece in skill.body else "description"
    text = skill.body if cut_field == "body" else skill.description
    start = text.index(piece)
    cut = cut_field, start, start + len(piece)
    return query, skill.doc_id, digest_of(skill), "house", *cut, split


def frame(*pairs: tuple) -> pl.DataFrame:  # type: ignore[type-arg]
    return pl.DataFrame(list(pairs), schema=PAIRS, orient="row")


BREW, OFF = "Use to brew black tea for guests.", "get the rust off a scythe"
ASKED = (
    pair(TEA, "brew black tea for guests", BREW),
    pair(TEA, "brew black tea for guests", BREW),
    pair(RUST, "get rust off a scythe", OFF, split="validation"),
)


def test_a_request_is_one_query_however_many_texts_it_has_and_its_skill_is_read_without_it() -> None:
    train, validation, shared = asked_of(frame(*ASKED), [RUST, TEA])

    assert [(q.query_id, q.text, q.row) for q in train] == [("house/tea", "brew black tea for guests", 1)]
    assert [(q.query_id, q.row) for q in validation] == [("house/rust", 0)]
    assert shared == 0
    assert train[0].without_passages(TEA).description.strip() == "Warms the pot first."
    assert validation[0].without_passages(RUST).body == "# Care\n\n- \n\nOil it after."


def test_words_of_request_and_passage_that_stand_elsewhere_too_are_cut() -> None:
    tea = TEA._replace(
        body="Guests come. How to brew black tea for guests, they ask. Warms the pot first of all, it does."
    )
    passage = "Warms the pot first"
    asked = asked_of(frame(pair(tea, "brew black tea for guests", passage), ASKED[-1]), [tea, RUST])

    assert asked.train[0].without_passages(tea).body == "Guests come. How to , they ask.  of all, it does."


def test_a_skill_of_several_requests_has_one_text_without_all_of_them() -> None:
    more = pair(TEA, "warm the pot", "Warms the pot first.")
    queries = asked_of(frame(*ASKED, more), [TEA, RUST]).train

    read = without_queries([TEA, RUST], queries)

    assert (len(queries), read[0].description.split(), read[1]) == (2, [], RUST)


def test_a_request_of_two_skills_is_none_and_counted() -> None:
    pairs = frame(*ASKED, pair(TEA, "Care for it", BREW), pair(RUST, "care for it!", OFF))

    train, _, shared = asked_of(pairs, [TEA, RUST])

    assert ([query.text for query in train], shared) == (["brew black tea for guests"], 2)


def test_pairs_of_another_corpus_are_refused() -> None:
    with pytest.raises(WrongInput, match="name the skill 'house/tea', which no --corpus holds"):
        asked_of(frame(*ASKED), [RUST])


def test_pairs_of_another_text_are_refused() -> None:
    with pytest.raises(WrongInput, match="name the skill 'house/rust', which has another text now"):
        asked_of(frame(*ASKED), [TEA, RUST._replace(body=f"Read this first. {RUST.body}")])


@pytest.mark.parametrize(("kept", "lacks"), [(ASKED[:1], "validate on"), (ASKED[-1:], "train with")])
def test_pairs_of_one_side_are_refused(kept: Sequence[tuple], lacks: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(WrongInput, match=f"no request to {lacks}: make them of skills of more repositories"):
        asked_of(frame(*kept), [TEA, RUST])


@pytest.mark.parametrize("content", [None, b"no parquet", b""])
def test_what_is_no_file_of_pairs_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "pairs.parquet"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(WrongInput, match=r"pairs\.parquet cannot be read as pairs .*the columns query,"):
        read_pairs(path)


def test_a_table_of_other_columns_is_no_file_of_pairs(tmp_path: Path) -> None:
    pl.DataFrame({"query": ["brew tea"]}).write_parquet(tmp_path / "pairs.parquet")

    with pytest.raises(WrongInput, match="doc_id"):
        read_pairs(tmp_path / "pairs.parquet")
