"""Bundled files live as long as a document names them, and go with the last one that does."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from storage.blobs import BlobStore
from storage.errors import UnknownDocument
from storage.state import documents_table
from tasks.crawl.backfill import rebuilt_days
from tasks.retrieve.versions.forget import ForgetReport, forget
from tasks.retrieve.versions.retention import drop_blobs
from tests.support.roots.forgetting import holding, refined_past
from tests.support.roots.hand_written import BEES, BIKE, BREAD
from tests.support.roots.skill_root import SkillRoot

NOW = datetime(2026, 1, 2, 3, tzinfo=UTC)
SHARED, ALONE, OLD = b"echo shared qzxvkrusten\n", b"echo alone wqjxzlaibe\n", b"echo old zvqxjteige\n"
KEY = b"ghp_" + b"a8Kd02LmQz7Xw4Bn6Vt9Yc1Ue3Ri5Os8PjHf"
Make = Callable[[dict[str, str]], SkillRoot]


@pytest.fixture
def root(skill_root: Make) -> SkillRoot:
    """Bread and bees share a file; bread has one alone, one with a key, and had another one before."""
    made = skill_root({"bread": BREAD, "bees": BEES, "bike": BIKE})
    for name in ("bread", "bees"):
        made.write_file(name, "scripts/shared.sh", SHARED)
    made.write_file("bread", "scripts/alone.sh", OLD)
    made.publish()
    made.write_file("bread", "scripts/alone.sh", ALONE)
    made.write_file("bread", "keys.env", b"TOKEN=" + KEY + b"\n")
    made.publish()
    return made


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def forgotten(root: SkillRoot, target: str) -> ForgetReport:
    return forget(root.root, target, run_id="gone", now=NOW)


def test_no_blob_of_the_forgotten_skill_alone_is_left_and_none_of_another_is_lost(root: SkillRoot) -> None:
    assert forgotten(root, "local/market/bread").removed["blobs"] == 3
    assert BlobStore(root.root).digests() == [sha(SHARED)]
    words = tuple(content.split()[2].decode() for content in (ALONE, OLD))
    assert holding(root.root, (*words, KEY.decode(), "redacted:github-token")) == set()
    assert BlobStore(root.root).read(sha(SHARED)) == SHARED
    forgotten(root, "local/market/bees")
    assert BlobStore(root.root).digests() == []
    assert holding(root.root, ("qzxvkrusten",)) == set()


def test_blobs_of_past_days_go_too(root: SkillRoot) -> None:
    past = refined_past(root)
    assert [day.uri for day in rebuilt_days(root.root)] == [past.uri]
    assert sha(ALONE) in BlobStore(past).digests()
    forgotten(root, "local/market/bread")
    assert BlobStore(past).digests() == [sha(SHARED)]


def test_a_key_is_in_raw_alone(root: SkillRoot) -> None:
    places = {file.partition("/")[0] for file in holding(root.root, (KEY.decode(),))}
    assert places == {"raw"}


def test_a_file_that_changed_goes_with_retention_and_stays_in_raw(root: SkillRoot) -> None:
    assert sha(OLD) in BlobStore(root.root).digests()
    assert drop_blobs(root.root) == 1
    assert sha(OLD) not in BlobStore(root.root).digests()
    assert sha(ALONE) in BlobStore(root.root).digests()
    assert drop_blobs(root.root) == 0
    assert {f.partition("/")[0] for f in holding(root.root, ("zvqxjteige",))} == {"raw"}


def test_a_file_that_changes_alone_has_nothing_parsed_or_encoded_again(root: SkillRoot) -> None:
    encoded = len(root.encoder.encoded)
    root.write_file("bees", "scripts/shared.sh", b"echo another\n")
    root.crawl()
    assert root.parse() == {"documents": 0, "nodes": 0, "edges": 0, "vectors": 0}
    built = root.index()
    assert (built.vectors_new, len(root.encoder.encoded)) == (0, encoded)
    assert sha(b"echo another\n") in BlobStore(root.root).digests()


@pytest.mark.parametrize("asked", ["bread", "market/Bread"])
def test_the_end_of_an_id_forgets_that_document_alone_and_says_which(root: SkillRoot, asked: str) -> None:
    bread, others = "local/market/bread", ["local/market/bees", "local/market/bike"]
    report = forgotten(root, asked)
    assert (report.target, report.scope, report.doc_ids) == (bread, "document", (bread,))
    assert documents_table(root.root).read()["doc_id"].sort().to_list() == others
    assert forgotten(root, asked).removed == {}


def test_nothing_is_forgotten_for_what_may_mean_several(root: SkillRoot) -> None:
    root.write("old/bread", BREAD.replace("name: bread", "name: old bread"))
    root.crawl()
    with pytest.raises(
        UnknownDocument, match=r"it may mean local/market/bread, local/market/old/bread: give"
    ):
        forgotten(root, "bread")
    assert len(BlobStore(root.root).digests()) == 4
