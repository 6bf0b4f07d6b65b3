from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.blobs import BlobStore, blob_file
from storage.errors import Missing, StorageError
from storage.root import Root


@pytest.fixture(params=["folder", "bucket"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Root:
    return Root(tmp_path / "root" if request.param == "folder" else request.getfixturevalue("bucket"))


def test_bytes_are_read_back_under_their_digest_and_lie_there_once(root: Root) -> None:
    store = BlobStore(root)
    text, binary = b"echo hello\n", bytes(range(256))
    digests = store.put([text, binary, text])
    assert digests == [hashlib.sha256(content).hexdigest() for content in (text, binary, text)]
    assert [store.read(digest) for digest in digests] == [text, binary, text]
    assert store.digests() == sorted(set(digests))
    assert root.files("blobs") == [f"blobs/{d[:2]}/{d}" for d in sorted(set(digests))]


def test_a_blob_that_is_there_is_not_written_again(root: Root) -> None:
    store = BlobStore(root)
    (digest,) = store.put([b"as it was"])
    root.write(blob_file(digest), b"not what it was")
    assert store.put([b"as it was"]) == [digest]
    assert root.read(blob_file(digest)) == b"not what it was"


def test_what_is_not_the_bytes_of_its_digest_is_not_read(root: Root) -> None:
    store = BlobStore(root)
    whole, torn, gone = store.put([b"whole", b"torn", b"gone"])
    root.write(blob_file(torn), b"to")
    store.delete([gone])
    with pytest.raises(StorageError, match="is damaged: run `skillery doctor"):
        store.read(torn)
    with pytest.raises(Missing):
        store.read(gone)
    wrong = store.unreadable([whole, torn, gone])
    assert wrong.keys() == {torn, gone}
    assert "is damaged" in wrong[torn]
    assert wrong[gone] == f"{root.at(blob_file(gone))} is missing"


def test_only_what_is_used_stays(root: Root) -> None:
    store = BlobStore(root)
    used, unused = store.put([b"used", b"unused"])
    assert store.keep_only({used, hashlib.sha256(b"elsewhere").hexdigest()}) == 1
    assert store.digests() == [used]
    assert store.keep_only({used}) == 0
    with pytest.raises(Missing):
        store.read(unused)


@given(st.text(max_size=80))
def test_no_path_outside_the_store_can_be_asked_for(digest: str) -> None:
    with pytest.raises(StorageError):
        BlobStore(Root("/nowhere")).read(digest)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=20), max_size=8))
def test_there_are_as_many_files_as_different_contents(contents: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = BlobStore(Root(folder))
        store.put(contents)
        store.put(reversed(contents))
        assert len(store.digests()) == len(set(contents))
