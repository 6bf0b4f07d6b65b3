from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from storage.errors import StorageError
from storage.parquet import write_frame
from storage.schemas import DOCUMENTS, RawDocument
from storage.state import aliases_table, compared_table, documents_table, signatures_table
from tasks.refine import update
from tasks.refine.duplicates.near import NearLimits
from tasks.refine.filters import FilterLimits
from tasks.refine.plan import plan_refine
from tasks.refine.update import update_corpus
from tests.support.roots.nights import HandSource, Nights, raw, skill, with_files

CORPUS = ("documents", "state/folded", "state/aliases", "state/refined")


def shelf(*items: RawDocument | Exception) -> HandSource:
    return HandSource("dir:shelf", *items)


def git(*items: RawDocument) -> HandSource:
    return HandSource("git+https://example.org/o/r", *items)


def reasons(nights: Nights) -> list[tuple[str, str, str | None]]:
    return sorted(nights.dropped().select("doc_id", "reason", "lost_to").iter_rows())


def test_where_nothing_is_to_be_put_in_place_nothing_is_compared_unless_a_table_or_a_limit_is_another(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []
    real = update.near_texts
    monkeypatch.setattr(update, "near_texts", lambda *given: compared.append(1) or real(*given))
    first = nights.run(shelf(skill("a"), skill("b"), skill("c", "Knead it.")))
    assert (nights.refine(), nights.refine(), len(compared)) == (first, first, 1)
    plan_refine(nights.root, FilterLimits())
    given = {"run_id": nights.run_id, "now": nights.now}
    assert update_corpus(nights.root, near=NearLimits(threshold=0.5), **given) == first
    assert len(compared) == 2
    assert (nights.refine(), len(compared)) == (first, 3)
    note, table = nights.folder / "state/settled.json", documents_table(nights.root)
    kept = nights.root.read_json("state/settled.json") or {}
    for number, said in enumerate((
        '{"by": "tr', "[]", '"\ud800"', json.dumps({**kept, "counts": 3}),
        json.dumps({**kept, "counts": {"documents": "many"}}), json.dumps({"by": kept["by"]}),
    )):  # fmt: skip
        note.write_bytes(said.encode("utf-8", "surrogatepass"))
        assert (nights.refine(), len(compared)) == (first, 4 + number)
    file, seal = table.file(_partition(nights, "c")), nights.folder / "state/manifests/documents"
    entry = next(one for one in seal.parent.rglob("*.json") if one.name.startswith(Path(file).name))
    told = entry.read_bytes()
    entry.write_bytes(b"{")  # what cannot be told apart is never unchanged
    assert (nights.refine(), nights.refine(), len(compared)) == (first, first, 11)
    entry.write_bytes(told)
    assert (nights.refine(), nights.refine(), len(compared)) == (first, first, 12)
    write_frame(nights.root, file, table.read([_partition(nights, "c")]).clear(), DOCUMENTS)
    assert (nights.refine()["documents"], len(compared)) == (first["documents"] - 1, 13)
    assert nights.run(shelf(skill("a"), skill("c", "Knead it."))) != first


def texts(nights: Nights) -> dict[str, str]:
    return dict(documents_table(nights.root).read().select("doc_id", "body").iter_rows())


def test_every_document_is_kept_folded_or_dropped_with_a_reason(nights: Nights) -> None:
    clock = b'{"name": "clock", "description": "Tells the time of day anywhere."}'
    servers = [raw(f"mcp/{name}", clock, kind="mcp-server") for name in "ab"]  # of which none is a copy
    found = [skill("a"), skill("b"), skill("c", "Knead the dough."), raw("d", b""), skill("e", "")]
    counts = nights.run(shelf(*found, *servers))
    assert counts == {"documents": 4, "empty": 1, "no_body": 1, "duplicate": 1}
    assert (nights.documents(), nights.folded()) == (["a", "c", "mcp/a", "mcp/b"], ["b"])
    assert reasons(nights) == [("b", "duplicate", "a"), ("d", "empty", None), ("e", "no_body", None)]
    assert set(nights.dropped()["run_id"]) == {nights.run_id}
    assert nights.aliases() == {"b": ("a", "folded")}


def test_the_plan_says_what_is_to_do(nights: Nights) -> None:
    nights.run(shelf(skill("a"), skill("b", "Knead the dough."), skill("c", "Bake it well.")))
    nights.crawl(shelf(skill("a"), skill("b", "Knead it twice."), skill("d", "Cool it down.")))
    plan = nights.plan()
    assert (plan.todo, plan.gone, plan.unchanged) == (2, 1, 1)
    assert plan.batches == [[f for f in nights.raw_parts() if nights.run_id in f]]
    nights.refine()
    rows = documents_table(nights.root).read().sort("doc_id").select("doc_id", "first_seen_at", "fetched_at")
    times = {
        doc_id: (first == nights.now, fetched == nights.now) for doc_id, first, fetched in rows.iter_rows()
    }
    # When a document was first seen outlives its changes.
    assert times == {"a": (False, False), "b": (False, True), "d": (True, True)}


def test_an_unchanged_night_rewrites_no_file_and_drops_nothing_again(nights: Nights) -> None:
    first = [git(skill("a"), skill("x", "Bake it well.")), shelf(skill("A"), skill("b"), raw("c", b""))]
    counts = nights.run(*first)
    before = nights.times(*CORPUS)
    assert nights.run(*first) == counts
    assert nights.times(*CORPUS) == before
    assert nights.dropped().is_empty()
    assert nights.root.files("state/staged") == []


def test_only_partitions_of_what_changed_are_rewritten(nights: Nights) -> None:
    many = [skill(f"s{n}", f"Bake {n} rolls.") for n in range(20)]
    nights.run(shelf(*many))
    before = nights.times("documents")
    nights.run(shelf(*many[1:], skill("s0", "Bake no rolls.")))
    changed = {f for f, at in nights.times("documents").items() if before.get(f) != at}
    assert changed == {documents_table(nights.root).file(_partition(nights, "s0"))}


def _partition(nights: Nights, doc_id: str) -> int:
    table = documents_table(nights.root)
    return next(p for p in range(64) if doc_id in set(table.read([p])["doc_id"]))


# Copies


BREAD = " ".join(f"step{n} takes {n} minutes" for n in range(20))
BUNS = BREAD.replace("step0", "begin")
PIES = " ".join(f"fold {n} times and wait for {n} hours" for n in range(15))
# A text, and a copy or a near copy of it.
COPIES = pytest.mark.parametrize(("text", "copy"), [(BUNS, BUNS), (BREAD, BUNS)], ids=["equal", "near"])


@COPIES
def test_a_copy_returns_when_its_survivor_retires_and_stands_for_it(
    nights: Nights, text: str, copy: str
) -> None:
    nights.run(shelf(skill("a", text), skill("b", copy), skill("c", copy)))
    assert nights.run(shelf(skill("b", copy), skill("c", copy))) == {"documents": 1, "duplicate": 1}
    assert (nights.documents(), nights.folded()) == (["b"], ["c"])
    assert nights.aliases() == {"a": ("b", "retired"), "c": ("b", "folded")}
    assert ("a", "retired", None) in reasons(nights)


@COPIES
def test_a_copy_returns_when_its_survivor_changes(nights: Nights, text: str, copy: str) -> None:
    nights.run(shelf(skill("a", text), skill("b", copy)))
    assert nights.run(shelf(skill("a", PIES), skill("b", copy))) == {"documents": 2}
    assert (nights.documents(), nights.folded(), nights.aliases()) == (["a", "b"], [], {})
    nights.run(shelf(skill("a", text), skill("b", copy)))
    assert (nights.documents(), nights.folded()) == (["a"], ["b"])


def test_another_owner_s_copy_with_other_files_or_words_is_a_document(nights: Nights) -> None:
    theirs = HandSource("dir:theirs", with_files(skill("x"), {"run.sh": b"rm -r ."}), skill("y", BUNS))
    nights.run(shelf(with_files(skill("a"), {"run.sh": b"ls"}), skill("b", BREAD)), theirs)
    assert (nights.documents(), nights.folded(), nights.aliases()) == (["a", "b", "x", "y"], [], {})
    nights.run(shelf(), theirs)
    assert (nights.documents(), nights.aliases()) == (["x", "y"], {})


# Near-duplicates


def test_a_near_duplicate_lies_beside_its_survivor_and_is_recorded(nights: Nights) -> None:
    counts = nights.run(shelf(skill("a", BREAD), skill("b", BUNS), skill("c", BUNS), skill("d", PIES)))
    assert counts == {"documents": 2, "near_duplicate": 2}
    assert (nights.documents(), nights.folded()) == (["a", "d"], ["b", "c"])
    assert nights.aliases() == {"b": ("a", "folded"), "c": ("a", "folded")}
    row = nights.dropped().sort("doc_id").row(0, named=True)
    assert (row["doc_id"], row["reason"], row["lost_to"], row["rule"]) == (
        "b", "near_duplicate", "a", "refine.near"
    )  # fmt: skip
    assert row["similarity"] == pytest.approx(75 / 77)
    assert row["detail"] == "word 5-shingle Jaccard 0.974 to its survivor"
    nights.plan()
    strict = NearLimits(threshold=0.98)
    counts = update_corpus(nights.root, run_id=nights.run_id, now=nights.now, near=strict)
    assert (counts, nights.aliases()) == ({"documents": 3, "duplicate": 1}, {"c": ("b", "folded")})


def test_one_more_document_leaves_other_clusters_as_they_are(nights: Nights) -> None:
    pies = [skill("p", PIES), skill("q", PIES + " Cool.")]
    nights.run(shelf(*pies, skill("a", BREAD)))
    assert nights.folded() == ["q"]
    before = nights.times("state/aliases")
    nights.run(shelf(*pies, skill("a", BREAD), skill("z", BUNS, stars=9)))
    assert (nights.documents(), nights.folded()) == (["a", "p"], ["q", "z"])
    after = nights.times("state/aliases")
    assert {file: at for file, at in after.items() if file in before} == before
    assert reasons(nights) == [("z", "near_duplicate", "a")]


def test_what_is_known_of_a_text_goes_with_it(nights: Nights) -> None:
    nights.run(shelf(skill("a", BREAD), skill("b", BUNS), skill("c", PIES)))
    assert (signatures_table(nights.root).read().height, compared_table(nights.root).read().height) == (3, 1)
    nights.run(shelf(skill("a", BREAD), skill("c", PIES)))
    assert (signatures_table(nights.root).read().height, compared_table(nights.root).read().height) == (2, 0)


# Retired ids


def test_a_renamed_document_is_found_under_its_old_id_until_that_comes_back(nights: Nights) -> None:
    nights.run(shelf(skill("old")))
    nights.run(shelf(skill("new")))
    assert nights.aliases() == {"old": ("new", "retired")}
    since = aliases_table(nights.root).read()["since"].item()
    nights.run(shelf(skill("new"), skill("other", "Knead the dough.")))
    assert aliases_table(nights.root).read()["since"].item() == since
    nights.run(shelf(skill("new"), skill("old", "")))
    assert nights.aliases() == {}


# One document in several sources

URL = "https://github.com/O/R/tree/main/bread"


@pytest.mark.parametrize("other", ["o/r/bread", "O/r/Bread"])
def test_a_document_of_two_sources_is_one_and_the_loser_is_named_once(nights: Nights, other: str) -> None:
    sources = [
        git(skill("o/r/bread")),
        HandSource("github:O/R", skill(other, "An older text.", url=URL), skill("q", "Soak the grain.")),
    ]
    counts = {"documents": 2, "other_source": 1}
    assert nights.run(*sources) == counts
    assert texts(nights) == {"o/r/bread": "Let it rise.", "q": "Soak the grain."}
    lost = nights.dropped().filter(pl.col("reason") == "other_source")
    assert lost.select("doc_id", "source", "lost_to").rows() == [(other, "github:O/R", "o/r/bread")]
    for _ in range(2):
        assert nights.run(*sources) == counts
        assert nights.dropped().is_empty()


def test_the_better_source_takes_over_and_gives_back(nights: Nights) -> None:
    other = "O/r/Bread"
    listed = HandSource("github:O/R", skill(other, "An older text.", url=URL))
    assert nights.run(listed) == {"documents": 1}
    assert nights.run(listed, git(skill("o/r/bread"))) == {"documents": 1, "other_source": 1}
    assert texts(nights) == {"o/r/bread": "Let it rise."}
    assert reasons(nights) == [(other, "other_source", "o/r/bread")]
    assert nights.run(listed, git()) == {"documents": 1}
    assert texts(nights) == {other: "An older text."}


# Rules


def test_another_rule_refines_everything_again_from_raw_parts(nights: Nights) -> None:
    nights.run(
        shelf(skill("a"), skill("b", "The old bell \x07\x07\x07 rings."), skill("c", "Knead the dough."))
    )
    assert nights.documents() == ["a", "b", "c"]
    strict = FilterLimits(max_control_share=0.01)
    nights.night += 1
    assert nights.plan(strict).todo == 3
    assert nights.refine(strict) == {"documents": 2, "not_text": 1}
    assert reasons(nights) == [("b", "not_text", None)]
    assert nights.plan(strict).todo == 0
    assert nights.refine() == {"documents": 3}


# Damage


def test_a_raw_part_that_lacks_a_document_is_named(nights: Nights) -> None:
    nights.crawl(shelf(skill("a"), skill("b")))
    (part,) = nights.raw_parts()
    pq = nights.folder / part
    nights.crawl(HandSource("dir:other", skill("a")))
    other = next(f for f in nights.raw_parts() if f != part)
    pq.write_bytes((nights.folder / other).read_bytes())
    with pytest.raises(StorageError, match=f"{part} lacks 1 documents it should hold, b among them"):
        nights.refine()


def test_a_damaged_raw_part_is_named_and_the_corpus_stays(nights: Nights) -> None:
    nights.run(shelf(skill("a")))
    nights.crawl(shelf(skill("a"), skill("b", "Knead the dough.")))
    new = nights.raw_parts()[-1]
    (nights.folder / new).write_bytes(b"PAR1")
    with pytest.raises(StorageError, match=new):
        nights.refine()
    assert nights.documents() == ["a"]
