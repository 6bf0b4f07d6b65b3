from __future__ import annotations

import os
import subprocess
import sys
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from storage.errors import ModelMismatch, NotPublished, StorageError, UnknownDocument, WrongInput
from storage.lance.served import write_served
from storage.lance.tables import NODES
from storage.root import Root
from storage.state import ALIASES, aliases_table, documents_table, write_run
from tasks.crawl.collect import collect
from tasks.retrieve.paging.kept_encodings import KeptEncodings
from tasks.retrieve.served_index import ServedIndex
from tests.support.command import MAIN
from tests.support.roots.hand_written import BREAD, SKILLS, skill
from tests.support.roots.nights import HandSource, raw, with_files
from tests.support.roots.skill_root import MINILM, SPEC, Make, SkillRoot
from tests.support.roots.vendor import connect

BEES = "local/market/bees"
MITES = "what helps against mites in winter"
PROVENANCE = {
    "kind", "source", "url", "commit", "content_hash", "licence", "licence_class", "risks", "stale",
    "index_version",
}  # fmt: skip


def page(index: ServedIndex, doc_id: str, query: str = MITES, budget: float | None = None) -> dict[str, Any]:
    return index.page(doc_id, query, budget=budget, method="mmr")


def whole(root: SkillRoot) -> str:
    return str(root.ask().page(BEES, MITES, budget=1.0, method="full")["context"])


def alias(root: SkillRoot, **survivors: str) -> None:
    rows = [(d, s, "renamed", datetime(2025, 3, 1, tzinfo=UTC)) for d, s in survivors.items()]
    aliases_table(root.root).replace(list(survivors), pl.DataFrame(rows, schema=ALIASES, orient="row"))


def test_search_answers_as_the_contract_says(index: ServedIndex, served_bakery: SkillRoot) -> None:
    answer = index.search("look after a hive", k=3)
    assert set(answer) == {"query", "results", "nothing_fits", "least_fit", "index_version", "took_ms"}
    assert [r["rank"] for r in answer["results"]] == [1, 2, 3]
    best = answer["results"][0]
    assert set(best) == {"rank", "doc_id", "name", "description", "score", "fit", "folded", *PROVENANCE}
    assert (best["doc_id"], best["name"]) == (BEES, "bees")
    assert best["source"] == SPEC
    assert best["url"].endswith("/market/bees")
    assert best["index_version"] == served_bakery.served().version
    assert best["stale"] is False


def test_a_page_is_made_of_what_is_served_and_of_the_states_that_are_indexed(
    index: ServedIndex, served_bakery: SkillRoot
) -> None:
    # Page answers as the contract says.
    answer = page(index, BEES)
    assert set(answer) == {
        "doc_id", "query", "context", "nodes", "left_out", "tokens", "document_tokens", "method", "budget",
        "over_budget", "took_ms", *PROVENANCE,
    }  # fmt: skip
    assert all(set(n) == {"node_id", "node_type", "score", "text", "whole", "why"} for n in answer["nodes"])
    best = max(answer["nodes"], key=lambda n: n["score"])
    assert "oxalic acid" in best["text"]
    assert best["node_id"].startswith(f"{BEES}#")
    encoder = served_bakery.encoder
    assert answer["tokens"] == encoder.count([answer["context"]])[0] <= answer["document_tokens"]
    # A page is made of the states that are indexed.
    document = index.document(BEES)
    made = served_bakery.encoder.encode_states([node.text for node in document.nodes])[1]
    assert document.states == made
    assert all(made)


@pytest.mark.parametrize(
    "doc_id", ["local/market/wasps", "market", "' OR 1=1 --", "%", "#", "local/market/bees#1", "ees"]
)
def test_an_id_that_nothing_has_is_unknown(index: ServedIndex, doc_id: str) -> None:
    with pytest.raises(UnknownDocument, match="no served document has the id"):
        page(index, doc_id)


@pytest.mark.parametrize("doc_id", ["LOCAL/Market/BEES", "bees", "market/Bees", "/market/bees/"])
def test_an_id_in_any_letter_case_or_its_end_will_do_where_one_skill_alone_has_it(
    index: ServedIndex, doc_id: str
) -> None:
    answer = page(index, doc_id)
    assert (answer["doc_id"], "alias_of" in answer) == (BEES, False)
    assert index.find(doc_id) == BEES


@pytest.mark.parametrize("text", ["", " \n\t", "\ud800 lone"])
def test_blank_or_broken_questions_are_wrong_input(index: ServedIndex, text: str) -> None:
    with pytest.raises(WrongInput):
        index.search(text)
    with pytest.raises(WrongInput):
        page(index, BEES, text)
    with pytest.raises(WrongInput):
        page(index, text)
    with pytest.raises(WrongInput, match="ask for at least 1"):
        index.search("bees", 0)


def test_a_folded_copy_is_answered_by_its_own_text(root: SkillRoot) -> None:
    root.write("zz-copy", SKILLS["bees"])
    root.write("zz-near", f"{SKILLS['bees']}\nHoney is wrung by hand.\n")
    first, run = root.served(), {"specs": [], "sources": [], "served": root.served().version}
    root.crawl()
    for state, own in (("complete", True), ("refused", False)):  # the tables are as they were
        write_run(root.root, {**run, "run_id": root.run_id, "state": state})
        near = page(root.ask(), "local/market/zz-near", "how honey is wrung")
        assert ("wrung by hand" in near["context"], near["alias_of"]) == (own, BEES)
    root.write("rye", skill("rye", "Bakes a loaf of rye.", "Knead the sour dough."))
    root.publish()
    answer = page(root.ask(), "local/market/ZZ-copy")
    assert (answer["doc_id"], answer["alias_of"]) == ("local/market/ZZ-copy", BEES)
    assert answer["context"] == page(root.ask(), BEES)["context"]
    assert all(node["node_id"].startswith("local/market/zz-copy#") for node in answer["nodes"])
    assert answer["url"].endswith("/market/zz-copy")
    near = page(root.ask(), "local/market/zz-near", "how honey is wrung")
    assert near["alias_of"] == BEES
    assert "wrung by hand" in near["context"]
    assert root.ask().find("local/market/zz-copy") == BEES
    write_served(root.root, first)
    back = page(root.ask(), "local/market/zz-near", "how honey is wrung")
    assert ("wrung by hand" in back["context"], back["alias_of"]) == (False, BEES)


def test_another_owner_s_later_copy_does_not_lead_the_result_of_the_first(root: SkillRoot) -> None:
    theirs = with_files(raw("aaa/hives/bees", SKILLS["bees"].encode(), repo="aaa/hives"), {"run.sh": b"ls"})
    collect(
        HandSource("github:aaa/hives", theirs), root.root, run_id="theirs", now=root.now + timedelta(hours=1)
    )
    root.publish()
    asked = root.ask()
    best = asked.search(MITES, k=1)["results"][0]
    assert (best["doc_id"], best["folded"]) == (BEES, ["aaa/hives/bees"])
    assert best["source"] == SPEC
    root.root.delete("state/seen")  # what was read once is neither read again nor another order
    assert asked.search(MITES, k=1)["results"][0]["folded"] == ["aaa/hives/bees"]
    assert "alias_of" not in page(root.ask(), "aaa/hives/bees")


def test_aliases_are_followed_circles_are_not_and_an_id_that_is_served_is_none(skill_root: Make) -> None:
    # Chains of aliases are followed and circles are not.
    root = skill_root(SKILLS)
    root.publish()
    alias(root, first="Second", second="THIRD", third=BEES, round="about", about="round", Straße="first")
    assert page(root.ask(), "FIRST")["alias_of"] == BEES
    assert page(root.ask(), "STRASSE")["alias_of"] == BEES
    with pytest.raises(UnknownDocument):
        page(root.ask(), "round")
    # An id that is served is no alias.
    alias(root, **{BEES: "local/market/bread"})
    assert "alias_of" not in page(root.ask(), BEES)


def test_without_indexed_nodes_a_page_is_made_on_the_spot(skill_root: Make, index: ServedIndex) -> None:
    root = skill_root(SKILLS)
    root.publish(nodes=False)
    answer = page(root.ask(), BEES)
    whole = page(index, BEES)
    assert answer["context"] == whole["context"]
    assert [n["node_id"] for n in answer["nodes"]] == [n["node_id"] for n in whole["nodes"]]
    scores = [n["score"] for n in whole["nodes"]]
    assert [n["score"] for n in answer["nodes"]] == pytest.approx(scores, abs=1e-4)


def test_a_page_made_on_the_spot_loads_neither_lancedb_nor_arrow(skill_root: Make) -> None:
    root = skill_root(SKILLS)
    root.publish(nodes=False)
    asked = ["page", BEES, "mites in winter", "--root", root.root.uri]
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *MAIN[1:], *asked], capture_output=True, text=True, check=True
    )
    loaded = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert "polars" in loaded
    assert loaded & {"lancedb", "pyarrow"} == set()


def test_a_page_is_of_the_text_served_whatever_the_corpus_holds_by_now(skill_root: Make) -> None:
    root = skill_root(SKILLS)
    root.publish(nodes=False)
    before = whole(root)
    root.write("bees", SKILLS["bees"] + "\nSell the honey.\n")
    root.crawl()
    assert "Sell the honey" in documents_table(root.root).of_document(BEES)["body"].item()
    assert whole(root) == before
    root.root.delete("documents")
    assert whole(root) == before


def test_a_document_of_which_no_node_is_indexed_has_none_on_its_page(root: SkillRoot) -> None:
    nodes = connect(root.root).open_table(NODES)
    nodes.delete(f"doc_id = '{BEES}'")
    write_served(root.root, replace(root.served(), nodes=nodes.version))
    answer = page(root.ask(), BEES)
    assert answer["nodes"] == []


def test_a_warm_index_sees_the_next_publication(skill_root: Make) -> None:
    root = skill_root(SKILLS)
    root.publish(nodes=False)
    index = root.ask()
    before = page(index, "local/market/bread", "the second loaf")
    root.write("bread", BREAD + "\nFreeze the second loaf in slices.\n")
    root.write("jam", skill("jam", "Boils plum jam", "Boil the plums with sugar."))
    root.remove("bike")
    root.publish()
    after = page(index, "local/market/bread", "the second loaf")
    assert "Freeze" in after["context"]
    assert "Freeze" not in before["context"]
    assert before["index_version"] < after["index_version"]
    assert index.search("plum jam")["results"][0]["name"] == "jam"
    with pytest.raises(UnknownDocument):
        page(index, "local/market/bike")


def test_another_encoder_than_the_indexs_is_refused(served_bakery: SkillRoot) -> None:
    index = ServedIndex(served_bakery.root, encoder="someone/else")
    with pytest.raises(ModelMismatch, match=f"{MINILM}.*someone/else"):
        index.search("bees")


@pytest.mark.parametrize(
    ("model", "more", "error", "said"),
    [
        ({"revision": "f" * 64}, {}, ModelMismatch, "ffffffffffff"),  # other weights than the index's
        ({"path": "models/none"}, {}, ModelMismatch, "models/none"),  # an export that is gone
        ({}, {"skills": 999}, StorageError, "skills at version 999"),  # a version that is not there
    ],
)
def test_what_is_served_and_is_not_there_is_named(
    skill_root: Make, model: dict[str, str], more: dict[str, Any], error: type[Exception], said: str
) -> None:
    root = skill_root(SKILLS)
    root.publish(nodes=False)
    served = root.served()
    write_served(root.root, replace(served, model={**served.model, **model}, **more))
    with pytest.raises(error, match=said):
        root.ask().search("bees")
    root.root.write("state/served.json", b'{"version": ')
    with pytest.raises(StorageError, match=r"served\.json"):
        root.ask().search("bees")


def test_a_warm_index_goes_over_to_another_encoder_with_the_publication(skill_root: Make) -> None:
    root = skill_root(SKILLS)
    root.publish(nodes=False)
    index = root.ask()
    index.search("bees")
    root.use_model(MINILM, "a-newer-revision")
    root.publish(nodes=False)
    assert index.search("bees")["results"][0]["name"] == "bees"


def test_a_root_that_serves_nothing_says_how_to_publish(skill_root: Make) -> None:
    index = skill_root(SKILLS).ask()
    for ask in (lambda: index.search("bees"), lambda: page(index, BEES), lambda: index.find(BEES)):
        with pytest.raises(NotPublished, match="skillery run"):
            ask()


def test_a_page_is_answered_without_another_look_at_the_corpus(root: SkillRoot) -> None:
    for folder in ("documents", "nodes", "edges", "raw"):
        Root(root.root.uri).delete(folder)
    assert "oxalic" in page(root.ask(), BEES)["context"]


def test_what_a_page_made_is_there_for_the_next_process_until_it_is_damaged(
    skill_root: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = skill_root(SKILLS)
    root.publish(nodes=False)

    def asked(seconds: float | None) -> dict[str, Any]:
        name = root.encoder.card["name"]
        index = ServedIndex(root.root, encoder=name, page_seconds=seconds)
        return index.page(BEES, MITES, budget=0.5, method="facets")

    assert asked(1e-9)["by_words"]  # there is no time to encode it
    first = asked(None)
    with monkeypatch.context() as patched:
        patched.delattr("tasks.parse.document.parse_document")
        again = asked(1e-9)
    assert "by_words" not in again
    assert again["nodes"] == first["nodes"]
    files = [*(root.root.folder / "state/pages").iterdir()]
    assert sorted(file.suffix for file in files) == [".npz", ".z"]
    for file, left in product(files, (100, 0)):
        file.write_bytes(file.read_bytes()[:left])
        assert asked(None)["nodes"] == first["nodes"]
        assert len(file.read_bytes()) > 100


def test_encodings_used_longest_ago_make_room(served_bakery: SkillRoot, tmp_path: Path) -> None:
    folder, encoder = tmp_path / "pages", copy(served_bakery.encoder)
    kept = KeptEncodings(folder, encoder, most=10_000)
    texts = [[f"Text {n} of a document.", "Another one."] for n in range(6)]
    kept.encoded(texts[0])
    (first,) = folder.iterdir()
    os.link(first, tmp_path / "first")
    for some in texts[1:]:
        kept.encoded(some)
        kept.encoded(texts[0])
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 10_000
    assert first.samefile(tmp_path / "first")  # what is asked for again and again was made once
    before = {path.name for path in folder.iterdir()}
    kept.encoded(texts[-1])
    assert {path.name for path in folder.iterdir()} == before
    encoder.card = {**encoder.card, "revision": "another"}
    kept.encoded(texts[0])
    assert {path.name for path in folder.iterdir()} - before
