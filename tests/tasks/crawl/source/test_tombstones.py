"""What a tombstone covers, and which document a person means."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.root import Root
from storage.schemas import Document, Listing, RawDocument
from storage.state import seen_table
from storage.tombstones import Forgotten, Tombstone, add_tombstones
from tasks.crawl.backfill import replay_seen
from tasks.crawl.source.lookup import meant, nearest, suggestion
from tasks.crawl.source.tombstones import drop_forgotten, listed_ids
from tests.support.clock import takes_less
from tests.support.roots.nights import HandSource, Nights, skill

NOW = datetime(2026, 5, 6, tzinfo=UTC)
NAMES = {
    "ann/garden/beds/dill": "dill",
    "ann/garden/beds/basil": "sweet basil",
    "bob/herbs/dill": "Dill of Bob",
    "bob/dill": None,
    "Cy/Mint": "mint",
}
WORDS = st.sampled_from(["a", "A", "b", "ab", "c"])
IDS = st.lists(WORDS, min_size=1, max_size=3).map("/".join)


@pytest.fixture
def forgotten(tmp_path: Path) -> Forgotten:
    stones = [
        Tombstone("Owner/Repo", "repository", "owner/repo"),
        Tombstone("o/r/skills/a", "document", "o/r/skills/a", raw_hash="raw", body_hash="body"),
        Tombstone("o/root", "document", "o/root"),
        Tombstone("mcp/io.example/server", "document", "mcp/io.example/server"),
    ]
    return add_tombstones(Root(tmp_path), stones, NOW)


def raw(doc_id: str, raw_hash: str = "other", repo: str | None = None) -> RawDocument:
    return RawDocument(doc_id=doc_id, source="git+x", content=b"text", size=4, raw_hash=raw_hash, repo=repo)


def document(doc_id: str, body_hash: str) -> Document:
    return Document(
        doc_id=doc_id, source="git+x", name="n", description="d", body="body", body_hash=body_hash,
        content_hash="c", raw_hash="other", fetched_at=NOW, first_seen_at=NOW,
    )  # fmt: skip


def listing(path: str | None, source_id: str = "row-1", host: str = "github.com") -> Listing:
    return Listing("skillsmp", source_id, url=path and f"https://{host}/{path}")


@pytest.mark.parametrize(
    "item",
    [
        raw("owner/repo/x"), raw("O/r/SKILLS/a"), raw("new/id", "raw"), raw("given-id", repo="owner/Repo"),
        document("new/id", "body"), listing("owner/repo"), listing("Owner/repo/tree/main/x/y"),
        listing("o/r/tree/main/skills/a"), listing("o/r/blob/main/skills/a/SKILL.md"),
        listing(None, "io.example/server"), listing(None, "o/r/skills/a"),
    ],
)  # fmt: skip
def test_what_was_forgotten_is_kept_out_with_its_reason(forgotten: Forgotten, item: object) -> None:
    assert isinstance(item, RawDocument | Document | Listing)
    dropped = drop_forgotten(forgotten, item)
    assert dropped is not None
    assert (dropped.reason, dropped.rule, dropped.source) == ("forgotten", "crawl.forgotten", item.source)
    assert dropped.doc_id == (item.source_id if isinstance(item, Listing) else item.doc_id)


@pytest.mark.parametrize(
    "item",
    [
        raw("owner/repo2/x"), raw("o/r/skills/a/deeper"), raw("o/r", repo="o/r"),
        raw("x", repo="owner/repo2"), document("new/id", "raw"), listing("o/r/tree/main/skills/b"),
        listing("o/r/tree/main/more/skills/a"), listing("o/root/tree/main/skills/b"),
        listing("owner/repo", host="example.org"), listing(None),
    ],
)  # fmt: skip
def test_everything_else_passes(forgotten: Forgotten, item: object) -> None:
    assert isinstance(item, RawDocument | Document | Listing)
    assert drop_forgotten(forgotten, item) is None
    assert drop_forgotten(Forgotten.none(), item) is None


def test_a_row_of_a_list_may_stand_for_each_reading_of_its_address() -> None:
    assert listed_ids("1", "https://github.com/o/r/tree/feature/mint/a") == [
        "1", "mcp/1", "o/r/mint/a", "o/r/a",
    ]  # fmt: skip
    assert listed_ids("1", "https://github.com/o/r") == ["1", "mcp/1", "o/r"]
    assert listed_ids("1", "https://github.com/o/r/tree/main") == ["1", "mcp/1", "o/r"]


def test_a_past_day_is_replayed_without_what_is_forgotten(tmp_path: Path) -> None:
    nights = Nights(tmp_path / "root")
    nights.crawl(HandSource("dir:d", skill("a", "1"), skill("b", "two"), skill("c", "two"), skill("d", "x")))
    hashed = skill("b", "two").raw_hash
    stones = [Tombstone("A", "document", "a"), Tombstone("z", "document", "z", raw_hash=hashed)]
    add_tombstones(nights.root, stones, NOW)
    assert replay_seen(nights.root, "2026-03-31", Root(tmp_path / "past")) == 1
    assert seen_table(Root(tmp_path / "past")).read()["doc_id"].to_list() == ["d"]


def test_an_id_its_end_or_a_name_is_meant() -> None:
    found = {
        "ANN/garden/beds/DILL": ["ann/garden/beds/dill"], "beds/dill": ["ann/garden/beds/dill"],
        "sweet BASIL": ["ann/garden/beds/basil"], "mint": ["Cy/Mint"], "bob/dill": ["bob/dill"],
        "dill": ["ann/garden/beds/dill", "bob/dill", "bob/herbs/dill"], "ill": [], "": [], "/": [],
    }  # fmt: skip
    assert {wanted: meant(wanted, NAMES) for wanted in found} == found


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


def test_the_nearest_of_many_ids_are_found_without_comparing_each() -> None:
    some = random.Random(1)  # noqa: S311 (test data)
    words = ["chart", "deploy", "mail", "merge", "notes", "pdf", "report", "skills", "tidy", "tools"]
    ids = [f"{'-'.join(some.choices(words, k=2))}/skills/{some.choice(words)}-{n}" for n in range(20_000)]
    for wanted in some.sample(ids, 3):
        at = some.randrange(len(wanted) - 2)
        for typo in (wanted[:at] + wanted[at + 1 :], f"{wanted[:at]}q{wanted[at:]}", wanted.upper()[:-1]):
            assert wanted in suggestion(typo, [], ids) or wanted.startswith(typo.lower())
    assert suggestion("notes-pdf/skills/no-such-skill", [], ids)
    # Comparing each takes two.
    assert takes_less(0.5, lambda: suggestion("notes-pdf/skills/no-such-skill", [], ids))
    assert nearest("\udcff" * 5_000, ids) == []
