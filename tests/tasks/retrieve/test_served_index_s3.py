"""A root in a bucket does what one in a folder does: the stages, what they leave, and who reads it."""

from __future__ import annotations

import shutil
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import EncodingTooLong, Unreachable
from storage.root import Root
from tasks.models.cached_encoder import export_here
from tasks.models.encoder import OnnxEncoder
from tasks.retrieve import open_version
from tasks.retrieve.open_version import OpenVersion
from tasks.retrieve.paging.facets import ready_for
from tasks.retrieve.paging.terms import WordVectors
from tasks.retrieve.paging.types import PagedDocument
from tasks.retrieve.served_index import ServedIndex
from tasks.retrieve.versions.doctor import examine
from tasks.retrieve.versions.forget import forget
from tasks.retrieve.versions.publish import roll_back
from tests.support.models.word_models import WordEncoder, WordTokenizer
from tests.support.paging.prepared_documents import nodes_of
from tests.support.roots.built import built_at, lowest_cosine
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import MINILM, Export, SkillRoot
from tests.support.s3_server import BUCKET, machine_at

_QUERY = "how long does the dough rise?"


@pytest.fixture(scope="module")
def filled(
    s3: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory, minilm_export: Export
) -> Iterator[SkillRoot]:
    """A root that serves the hand-written skills; filling it takes hundreds of requests: tests share it."""
    folder = tmp_path_factory.mktemp("s3")
    with pytest.MonkeyPatch.context() as environment:
        for name, value in {**s3, "XDG_CACHE_HOME": machine_at(folder / "copies")}.items():
            environment.setenv(name, value)
        root = SkillRoot(folder / "market", f"s3://{BUCKET}/on-s3", minilm_export.folder)
        for name, text in SKILLS.items():
            root.write(name, text)
        root.publish()
        yield root


def ask(root: Root) -> ServedIndex:
    return ServedIndex(root, encoder=MINILM)


def bread(root: Root) -> str:
    """Return the whole page of one skill."""
    page = ask(root).page("local/market/bread", _QUERY, budget=1.0, method="full")
    return str(page["context"])


def test_it_holds_the_same_as_a_folder_and_another_machine_answers_from_it(
    filled: SkillRoot, served_bakery: SkillRoot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = built_at(served_bakery.root), built_at(filled.root)
    assert lowest_cosine(here, there) > 0.9999
    # Another machine has nothing but the bucket.
    monkeypatch.setenv("XDG_CACHE_HOME", machine_at(tmp_path / "other"))
    other = Root(filled.root.uri)
    found = ask(other).search(_QUERY, 3)["results"]
    assert [row["doc_id"] for row in found] == [
        row["doc_id"] for row in served_bakery.ask().search(_QUERY, 3)["results"]
    ]
    assert bread(other) == bread(served_bakery.root)
    assert export_here(other.uri, "/elsewhere/models/x") == str(other.folder / "models/x")


def test_while_the_bucket_fails_a_server_answers_as_before_and_what_it_does_not_know_is_no_damage(
    filled: SkillRoot, outage: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("_PATIENCE", 1.0), ("_GLANCE", 0.4)):
        monkeypatch.setattr(f"storage.s3.{name}", seconds)
    server = ask(Root(filled.root.uri, remembering=True))

    def answered() -> list[object]:
        page = server.page("local/market/bread", _QUERY, budget=1.0, method="facets")
        return [server.search(_QUERY, 3)["results"], page["context"]]

    before = answered()
    outage(60)
    begun = time.monotonic()
    for _ in range(2):
        assert answered() == before
    assert time.monotonic() - begun < 8
    with pytest.raises(Unreachable, match="503 SlowDown"):
        server.page("local/market/bees", "who lives there?", budget=1.0, method="facets")


def test_a_damaged_routing_index_is_found_and_made_again_by_readers(filled: SkillRoot) -> None:
    (arrays,) = [f for f in filled.root.files("routing") if f.endswith("vectors.npy")]
    filled.root.write(arrays, b"not an array")
    (finding,) = examine(filled.root)
    assert finding.mended
    assert ask(filled.root).search(_QUERY, 1)["results"]
    shutil.rmtree(filled.root.folder)
    assert ask(filled.root).search(_QUERY, 1)["results"]


@pytest.mark.slow
def test_a_night_without_a_change_publishes_nothing_and_one_with_a_change_can_be_undone(
    filled: SkillRoot,
) -> None:
    first = filled.served()
    assert not filled.publish().changed
    filled.write("bread", SKILLS["bread"].replace("ten minutes", "twelve minutes"))
    assert filled.publish().changed
    assert "twelve minutes" in bread(filled.root)
    assert examine(filled.root) == []
    _, now = roll_back(filled.root, None)
    assert now.version == first.version
    assert "ten minutes" in bread(filled.root)
    report = forget(filled.root, "local/market/bread", run_id="later", now=filled.now)
    assert report.served == "v-later"
    held = [f for f in filled.root.files("") if b"Knead the dough" in filled.root.read(f)]
    assert held == []


BEES = "local/market/bees"


def long_text() -> str:
    """Return the bees with so many sections beside theirs that encoding them takes several batches."""
    rows = (
        f"\n## Apiary {n}\n\n" + "\n".join(f"- Row {i} of {n} is painted." for i in range(9))
        for n in range(60)
    )
    return SKILLS["bees"] + "".join(rows)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> SkillRoot:
    made = SkillRoot.below(tmp_path_factory.mktemp("long"), minilm_export, {"bees": long_text()})
    made.publish(nodes=False)
    return made


@pytest.fixture(scope="module")
def unlimited(root: SkillRoot) -> ServedIndex:
    return index(root, None)


def index(root: SkillRoot, seconds: float | None) -> ServedIndex:
    return ServedIndex(root.root, encoder=MINILM, page_seconds=seconds)


@pytest.mark.parametrize("method", ["facets", "chunks"])
def test_a_page_over_a_document_without_vectors_goes_by_words_alone_after_its_time(
    root: SkillRoot, method: str
) -> None:
    answers = index(root, 1e-9)
    for _ in range(2):  # the second request finds what the first one kept
        found = answers.page(BEES, "when to feed sugar syrup in October", budget=120, method=method)
        assert found["by_words"] is True
        assert "sugar syrup" in found["context"]


def test_within_its_time_a_page_says_nothing_of_words_and_a_query_is_encoded_whatever_the_time(
    root: SkillRoot,
) -> None:
    # A page within its time says nothing of words.
    found = index(root, 600).page(BEES, "when to feed sugar syrup", budget=120, method="facets")
    assert "by_words" not in found
    # A query is encoded whatever the time.
    assert index(root, 1e-9).search("keep bees", 1)["results"][0]["doc_id"] == BEES


@pytest.mark.parametrize("threads", [1, 2])
def test_encoding_stops_after_its_seconds_and_says_how_far_it_came(root: SkillRoot, threads: int) -> None:
    encoder = OnnxEncoder(root.root.folder / root.model, threads=threads, seconds=1e-9)
    with pytest.raises(EncodingTooLong, match=r"\d+ of 400 windows were encoded in 1e-09 seconds"):
        encoder.encode([f"row {n} is painted" for n in range(400)])


@given(st.lists(st.text(), max_size=6))
def test_word_vectors_are_unit_vectors_and_equal_for_equal_texts(texts: list[str]) -> None:
    vectors = WordVectors().encode([*texts, *texts])
    assert vectors.shape == (2 * len(texts), 1024)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert (vectors[: len(texts)] == vectors[len(texts) :]).all()


def test_word_vectors_are_nearer_where_words_are_shared() -> None:
    asked, near, far = WordVectors().encode(
        ["feed sugar syrup", "Sugar syrup is fed late.", "paint the rows"]
    )
    assert asked @ near > 0.4
    assert asked @ far < 0.1


@pytest.mark.parametrize(
    ("query", "unmatched"),
    [
        ("zzzz qqqq", True),
        ("Sirup füttern", True),
        ("when to feed SUGAR", False),
        ("is it?", False),
        ("窯", True),
    ],
)
def test_a_page_says_when_no_word_of_the_request_stands_in_the_skill(
    unlimited: ServedIndex, query: str, unmatched: bool
) -> None:
    found = unlimited.page(BEES, query, budget=60, method="chunks")
    assert found.get("unmatched", False) is unmatched


BODY = "# Hive\n\nLift the lid.\n\nCount the frames.\n"


@pytest.fixture
def version(tmp_path: Path) -> OpenVersion:
    unused: Any = SimpleNamespace()
    return OpenVersion(Root(tmp_path), unused, unused)


def ready(doc_id: str) -> PagedDocument:
    document = PagedDocument(doc_id, BODY, nodes_of(BODY))
    return replace(document, ready=ready_for(document, encoder=WordEncoder(), tokenizer=WordTokenizer()))


def kept(version: OpenVersion) -> list[str]:
    recent: OrderedDict[str, PagedDocument] = version.recent
    return list(recent)


def test_the_document_not_asked_for_the_longest_gives_way(
    version: OpenVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_version, "_RECENT", 2)
    for doc_id in ("bees", "bread"):
        version.keep(ready(doc_id))
    assert version.kept("bees") is not None
    version.keep(ready("soap"))
    assert kept(version) == ["bees", "soap"]


def test_documents_give_way_to_states_of_many_bytes_but_the_last_one_stays(
    version: OpenVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = ready("bees").ready
    assert each is not None
    size = each.states.rows.nbytes
    monkeypatch.setattr(open_version, "_RECENT_BYTES", 2 * size)
    for doc_id in ("bees", "bread", "soap"):
        version.keep(ready(doc_id))
    assert kept(version) == ["bread", "soap"]
    monkeypatch.setattr(open_version, "_RECENT_BYTES", size - 1)
    version.keep(ready("wax"))
    assert kept(version) == ["wax"]
