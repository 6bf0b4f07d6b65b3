from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import SourceError, StorageError
from storage.parquet import write_frame
from storage.partitions import partition_of
from storage.root import Root
from storage.schemas import DOCUMENTS
from storage.state import documents_table, folded_table
from tasks.refine import update as placing
from tasks.refine.duplicates.near import NearLimits
from tasks.refine.near_corpus import near_texts, nearest
from tasks.refine.plan import STAGED
from tasks.refine.text.canonical import body_hash
from tasks.refine.update import StagedDocuments
from tests.support.processes import slow_but
from tests.support.roots.nights import HandSource, Killed, Nights, dying_at, skill

# Few partitions make few writes: these three share one.
OLD, TWIN, THIRD = [f"skill-{n}" for n in range(999) if partition_of(f"skill-{n}") == partition_of("a")][:3]
# Of one repository, as their ids say.
RANKS = {"git+https://example.org/o/r": 0, "github:o/r": 1, "awesome:l": 4}
SOURCES = list(RANKS)

_RECIPE = [f"step{n} takes {n} minutes" for n in range(20)]


def recipe(**changed: str) -> str:
    """A text of 80 words, 76 shingles."""
    return ". ".join(changed.get(f"step{n}", step) for n, step in enumerate(_RECIPE)) + "."


# `near` is a near-duplicate of `one` and of `far`, which are none of each other; `three` is too short.
TEXTS = {
    "one": recipe(),
    "near": recipe(step0="begin", step1="here"),
    "far": recipe(step0="begin", step1="here", step18="and", step19="end"),
    "two": "Nothing here is like the recipe at all, not even a little.",
    "three": "Bake it well.",
    "": "",
}


def shingles(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[at : at + 5]) for at in range(len(words) - 4)}


def is_near(one: str, other: str) -> bool:
    both = shingles(one) | shingles(other)
    return one == other or len(shingles(one) & shingles(other)) >= 0.85 * max(len(both), 1)


class Night(NamedTuple):
    """What a source holds (text by doc_id), whether it breaks off after them, at which write refine dies."""

    source: str
    held: dict[str, str]
    breaks_off: bool = False
    dies_at: int | None = None


NIGHTS = st.lists(
    st.builds(
        Night,
        source=st.sampled_from(SOURCES),
        held=st.dictionaries(st.sampled_from(["a", "A", TWIN, "b"]), st.sampled_from(sorted(TEXTS))),
        breaks_off=st.sampled_from([False, False, False, True]),
        dies_at=st.one_of(st.none(), st.integers(0, 14)),
    ),
    min_size=1,
    max_size=4,
)


class World:
    """What the sources held when they were last read, beside the root."""

    def __init__(self, folder: str) -> None:
        self.nights = Nights(Path(folder))
        self.texts: dict[tuple[str, str], str] = {}

    def crawl(self, night: Night) -> None:
        error = [SourceError(night.source, "damaged", "it breaks off")] if night.breaks_off else []
        found = [skill(doc_id, TEXTS[text]) for doc_id, text in night.held.items()]
        self.nights.crawl(HandSource(night.source, *found, *error))
        if not night.breaks_off:
            self.texts = {k: v for k, v in self.texts.items() if k[1] != night.source}
        self.texts |= {(doc_id, night.source): text for doc_id, text in night.held.items()}

    def refine(self, dies_at: int | None = None) -> dict[str, int] | None:
        try:
            with dying_at(dies_at):
                return self.nights.refine()
        except Killed:
            return None

    def expected(self) -> tuple[dict[str, str], dict[str, str], dict[tuple[str, str], str]]:
        """Return survivors with their text, copies with their survivor, and each document's outcome."""
        last = self.nights.seen("last_seen_at")
        by_id = sorted(self.texts, key=lambda k: (k[1], k[0]))
        late_first = sorted(by_id, key=lambda k: last[k], reverse=True)
        ranked = sorted(late_first, key=lambda k: RANKS[k[1]])
        winners: dict[str, tuple[str, str]] = {}
        for doc_id, source in ranked:
            winners.setdefault(doc_id.lower(), (doc_id, source))
        outcomes = {k: "kept" if self.texts[k] else "no_body" for k in winners.values()}
        first = self.nights.seen("first_seen_at")
        kept = [k for k, outcome in outcomes.items() if outcome == "kept"]
        kept.sort(key=lambda k: (first[k], RANKS[k[1]], k[0].lower(), k[0]))
        survivors: dict[tuple[str, str], str] = {}
        copies: dict[str, str] = {}
        for key in kept:
            text = self.texts[key]
            same = (d for (d, _), t in survivors.items() if t == text)
            near = (d for (d, s), t in survivors.items() if s == key[1] and is_near(TEXTS[text], TEXTS[t]))
            like = next(same, None) or next(near, None)
            if like is None:
                survivors[key] = text
            else:
                copies[key[0]] = like
        documents = {doc_id: text for (doc_id, _), text in survivors.items()}
        return documents, copies, {k: outcomes.get(k, "other_source") for k in self.texts}

    def check(self, counts: dict[str, int]) -> None:
        documents, copies, outcomes = self.expected()
        nights = self.nights
        rows = documents_table(nights.root).read()
        bodies = {doc_id: TEXTS[text] for doc_id, text in documents.items()}
        assert dict(rows.select("doc_id", "body").iter_rows()) == bodies
        assert rows.height == len(documents)
        assert nights.folded() == sorted(copies)
        aliases = nights.aliases()
        assert {d: s for d, (s, kind) in aliases.items() if kind == "folded"} == copies
        assert not {d for d, (_, kind) in aliases.items() if kind == "retired"} & {*documents, *copies}
        assert nights.outcomes() == outcomes
        assert sum(counts.values()) == len(self.texts)
        assert counts["documents"] == len(documents)


def corpus(nights: Nights) -> list[dict[str, Any]]:
    tables = documents_table(nights.root), folded_table(nights.root)
    return [row for t in tables for row in t.read().sort("doc_id").to_dicts()]


@given(NIGHTS)
@settings(max_examples=6)
def test_after_any_nights_the_corpus_is_what_the_sources_hold(nights: list[Night]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(folder)
        for night in nights:
            world.crawl(night)
            counts = world.refine(night.dies_at)
            if counts is not None:
                world.check(counts)
        last = world.refine()
        assert last is not None
        world.check(last)
        before = world.nights.times("documents", "state/folded", "state/aliases", "state/refined", "dropped")
        assert world.refine() == last
        assert world.nights.times(
            "documents", "state/folded", "state/aliases", "state/refined", "dropped"
        ) == (before)


TWO_NIGHTS = (
    Night(SOURCES[2], {"0": "near", "a": "one", "b": "one", TWIN: "two", THIRD: "three", OLD: "two"}),
    Night(SOURCES[2], {"0": "three", "b": "near", TWIN: "", THIRD: "three", "new": "two", "A": "one"}),
)


@pytest.fixture(scope="module")
def second_night(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int | None], tuple[Nights, bool]]:
    """Refine a second night that dies at a write, then again; also tell whether it lived after all."""
    folder = tmp_path_factory.mktemp("nights")
    world = World(str(folder / "crawled"))
    world.crawl(TWO_NIGHTS[0])
    world.refine()
    world.crawl(TWO_NIGHTS[1])

    def refined(dies_at: int | None) -> tuple[Nights, bool]:
        again = World(str(shutil.copytree(folder / "crawled", folder / uuid4().hex)))
        again.nights.night = world.nights.night
        through = again.refine(dies_at) is not None
        again.refine()
        return again.nights, through

    return refined


@pytest.mark.parametrize("step", slow_but({12}, [1, 12]))
def test_a_run_killed_at_any_write_is_made_good_by_the_next(
    second_night: Callable[[int | None], tuple[Nights, bool]], step: int
) -> None:
    whole, _ = second_night(None)
    number, through, order = 0, False, ["doc_id", "reason"]
    while not through:
        mended, through = second_night(number)
        assert corpus(mended) == corpus(whole)
        assert (mended.aliases(), mended.outcomes()) == (whole.aliases(), whole.outcomes())
        assert mended.dropped().sort(order).equals(whole.dropped().sort(order))
        number += step
    assert number > 12


@pytest.mark.parametrize("dies_at", slow_but({4}, range(3, 7)))
@pytest.mark.parametrize(
    ("held", "then"), [({"a": "two"}, {"a": "one"}), ({"a": "one", TWIN: "two"}, {"a": "one"})]
)
def test_a_source_may_take_back_what_a_killed_run_had_placed(
    tmp_path: Path, held: dict[str, str], then: dict[str, str], dies_at: int
) -> None:
    world = World(str(tmp_path))
    for night in (Night(SOURCES[2], {"a": "one"}), Night(SOURCES[2], held, dies_at=dies_at)):
        world.crawl(night)
        world.refine(night.dies_at)
    world.crawl(Night(SOURCES[2], then))
    counts = world.refine()
    assert counts is not None
    world.check(counts)


@pytest.mark.parametrize("dies_at", slow_but({8}, range(12)))
@pytest.mark.parametrize("text", slow_but({"one"}, ["one", "near", "two"]))
def test_an_id_that_returned_for_a_killed_run_alone_leads_where_it_led(
    tmp_path: Path, text: str, dies_at: int
) -> None:
    world = World(str(tmp_path))
    for held in ({"a": "one"}, {"b": "one"}):
        world.crawl(Night(SOURCES[2], held))
        world.refine()
    world.crawl(Night(SOURCES[2], {"b": "one", "a": text}))
    world.refine(dies_at)
    returned = "a" in documents_table(world.nights.root).read()["doc_id"]
    world.crawl(Night(SOURCES[2], {"b": "one"}))
    world.refine()
    # Where a document of another text was put in its place, and is gone, nothing need stand for it.
    leads = {"a": ("b", "retired")}
    assert world.nights.aliases() in ([leads, {}] if returned and text == "two" else [leads])


def test_what_a_run_that_died_had_sorted_is_not_taken_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "_MAX_BYTES", 1000)
    root, ids = Root(tmp_path), [f"skill-{n}" for n in range(30)]
    for number, doc_id in enumerate(ids):
        row = pl.DataFrame({**{name: [None] for name in DOCUMENTS}, "doc_id": [doc_id]}, schema=DOCUMENTS)
        write_frame(root, f"{STAGED}/{number:02d}.parquet", row, DOCUMENTS)
    StagedDocuments(root)
    again = StagedDocuments(root)
    assert sorted(pl.concat([again.of(partition) for partition in range(64)])["doc_id"]) == sorted(ids)


WORDS = [f"w{n}" for n in range(100)]
# Twin and cousin are near to the base, cousin more so to the twin; the others are near to none.
NEAR_TEXTS = {
    "base": " ".join(WORDS),
    "twin": " ".join([*WORDS[:99], "new"]),
    "cousin": " ".join(["old", *WORDS[1:99], "new"]),
    "half": " ".join([*WORDS[:50], *(f"v{n}" for n in range(50))]),
    "short": "Too short a text.",
}
HASHES = {name: body_hash(text) for name, text in NEAR_TEXTS.items()}
NAME = {found: name for name, found in HASHES.items()}
LIMITS = NearLimits()


def stored(root: Root, *names: str) -> pl.DataFrame:
    """Write texts to a file, return them as `near_texts` takes them."""
    columns = {name: [None] * len(names) for name in DOCUMENTS}
    hashes = [HASHES[name] for name in names]
    rows = {**columns, "doc_id": names, "body": [NEAR_TEXTS[name] for name in names], "body_hash": hashes}
    file = "documents/one.parquet"
    write_frame(root, file, pl.DataFrame(rows, schema=DOCUMENTS), DOCUMENTS)
    return owned("ann", hashes).with_columns(file=pl.lit(file))


def owned(owner: str, hashes: list[str]) -> pl.DataFrame:
    schema = {"owner": pl.String, "body_hash": pl.String}
    return pl.DataFrame({"owner": [owner] * len(hashes), "body_hash": hashes}, schema=schema)


def test_what_is_known_of_texts_spares_reading_them_again(tmp_path: Path) -> None:
    root = Root(tmp_path)
    texts = stored(root, *NEAR_TEXTS)
    first = near_texts(root, texts, LIMITS)
    root.delete("documents")
    assert near_texts(root, texts, LIMITS).equals(first)
    with pytest.raises(StorageError, match=r"one\.parquet is missing"):
        near_texts(root, texts, NearLimits(threshold=0.5))


def test_the_nearest_of_a_text_that_is_gone_is_the_one_most_like_it(tmp_path: Path) -> None:
    root = Root(tmp_path)
    near_texts(root, stored(root, *NEAR_TEXTS), LIMITS)
    gone = owned("ann", [HASHES["base"], HASHES["half"]])

    def like(*held: str, threshold: float = 0.85, owner: str = "ann") -> list[tuple[str, str]]:
        found = nearest(root, gone, owned(owner, [HASHES[name] for name in held]), threshold)
        return [(NAME[one], NAME[other]) for _, one, other in found.iter_rows()]

    assert like("cousin", "twin", "short") == [("base", "twin")]
    assert like("cousin", "short") == [("base", "cousin")]
    assert like("cousin", "short", threshold=0.97) == []
    assert like("short") == []
    assert like("twin", owner="bob") == []
