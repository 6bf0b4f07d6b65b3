"""A root in a folder and in a bucket: files, what is content-addressed in it, and what each can alone."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import resource
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import s3
from storage.blobs import BlobStore, blob_file
from storage.errors import Missing, StorageError, Unreachable, WrongInput
from storage.folder import Folder, exchange
from storage.lance.versions import table_names
from storage.locks import writer_lock
from storage.partitions import PARTITIONS, PartitionedTable, partition_of
from storage.root import Root
from storage.s3 import Bucket


@pytest.fixture(params=["folder", "bucket"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Root:
    return Root(tmp_path / "data" if request.param == "folder" else request.getfixturevalue("bucket"))


@pytest.fixture
def folder(tmp_path: Path) -> Root:
    return Root(tmp_path / "data")


@pytest.fixture
def shared(bucket: str) -> Root:
    return Root(bucket)


def test_what_is_written_is_read_back_and_replaced(root: Root) -> None:
    root.write("state/a.bin", b"one")
    root.write("state/a.bin", b"two")
    root.write("state/deep/b.json", b"{}")
    root.write("stateless.bin", b"")
    assert root.read("state/a.bin") == root.open("state/a.bin").read() == b"two"
    assert root.files("state") == ["state/a.bin", "state/deep/b.json"]
    assert root.files("", ".bin") == ["state/a.bin", "stateless.bin"]
    assert [root.exists(name) for name in ("state", "state/a.bin", "stat")] == [True, True, False]
    assert Root(root.at("state")).read("a.bin") == b"two"
    assert Root(root.uri).uri == root.uri


def test_what_was_written_since_is_counted_by_folder(root: Root) -> None:
    for relative in ("raw/a", "raw/deep/b", "state/c", "d"):
        root.write(relative, b"four")
    assert root.sizes() == root.sizes(time.time() - 60)
    assert sum(root.sizes().values()) == 16
    assert root.sizes() | {"raw": 8, "state": 4} == root.sizes()
    assert root.sizes(time.time() + 60) == {}


def test_what_is_missing_is_named_and_json_of_it_is_none(root: Root) -> None:
    with pytest.raises(Missing, match=r"state/absent\.json is missing"):
        root.read("state/absent.json")
    assert root.read_json("state/absent.json") is None
    root.write_json("state/there.json", {"name": "Brötchen", "n": [1, None]})
    assert root.read_json("state/there.json") == {"name": "Brötchen", "n": [1, None]}


@pytest.mark.parametrize("damaged", [b"", b'{"a": 1', b"\xff\xfe\x00", b"[1, 2]", b"null"])
def test_damaged_json_is_named(root: Root, damaged: bytes) -> None:
    root.write("state/x.json", damaged)
    with pytest.raises(StorageError, match=r"state/x\.json"):
        root.read_json("state/x.json")


def test_deleting_takes_one_or_all_below_a_name_and_no_neighbour(root: Root) -> None:
    for name in ("a/b/c.bin", "a/b/d.bin", "a/bc.bin", "e.bin"):
        root.write(name, b"")
    root.delete("a/b")
    root.delete("e.bin")
    root.delete("never")
    assert root.files("") == ["a/bc.bin"]
    assert root.unfinished() == []


def test_bytes_are_read_back_under_their_digest_and_lie_there_once(root: Root) -> None:
    store = BlobStore(root)
    text, binary = b"echo hello\n", bytes(range(256))
    digests = store.put([text, binary, text])
    assert digests == [hashlib.sha256(content).hexdigest() for content in (text, binary, text)]
    assert [store.read(digest) for digest in digests] == [text, binary, text]
    assert root.files("blobs") == [f"blobs/{d[:2]}/{d}" for d in sorted(set(digests))]
    root.write(blob_file(digests[0]), b"not what it was")
    assert store.put([text]) == digests[:1]
    assert root.read(blob_file(digests[0])) == b"not what it was"
    assert store.keep_only({digests[1], hashlib.sha256(b"elsewhere").hexdigest()}) == 1
    assert store.digests() == [digests[1]]
    assert store.keep_only({digests[1]}) == 0


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


@given(st.text(max_size=80))
def test_no_path_outside_the_store_can_be_asked_for(digest: str) -> None:
    with pytest.raises(StorageError):
        BlobStore(Root("/nowhere")).read(digest)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("ftp://host/x", "is no folder"),
        ("s3:/bucket", "is no folder"),
        (Path("s3://bucket/prefix"), "is no folder"),
        *((f"s3://{rest}", "names no bucket") for rest in ("", "/prefix", "X/prefix", "a_b/prefix")),
    ],
)
def test_an_address_is_refused_by_name(spec: str | Path, said: str) -> None:
    with pytest.raises(WrongInput, match=said):
        Root(spec)


def test_a_reader_sees_the_old_bytes_or_the_new_ones_never_a_part(folder: Root) -> None:
    versions = {bytes([letter]) * 300_000 for letter in b"xyz"}
    folder.write("a.bin", b"x" * 300_000)
    stop = threading.Event()

    def rewrite() -> None:
        while not stop.is_set():
            for version in versions:
                folder.write("a.bin", version)

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        assert all(folder.read("a.bin") in versions for _ in range(200))
    finally:
        stop.set()
        writer.join()


def test_what_a_killed_or_failed_write_left_is_no_data(folder: Root) -> None:
    folder.write("a/a.bin", b"old")
    (folder.folder / "a/b.bin.1234abcd.tmp").write_bytes(b"half")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))  # as on a full disk, a byte fits and no more
    try:
        with pytest.raises(StorageError, match=r"a\.bin cannot be written \(File too large"):
            folder.write("a/a.bin", b"new")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert folder.read("a/a.bin") == b"old"
    assert folder.files("a") == ["a/a.bin"]
    assert len(list((folder.folder / "a").iterdir())) == 2


@pytest.mark.parametrize("before", [None, 0o755])
@pytest.mark.parametrize("name", ["raw", "trajectories"])
def test_what_was_fetched_is_readable_by_its_owner_alone(folder: Root, name: str, before: int | None) -> None:
    if before is not None:  # a root of an earlier version
        (folder.folder / name).mkdir(mode=before, parents=True)
    folder.write(f"{name}/date=2026-03-01/part-0.parquet", b"")
    folder.write("documents/part-00.parquet", b"")
    assert (folder.folder / name).stat().st_mode & 0o777 == 0o700
    assert (folder.folder / "documents").stat().st_mode & 0o777 != 0o700


def test_a_folder_where_a_file_should_be_is_named_and_a_file_for_a_root(folder: Root) -> None:
    folder.write("state/served.json/x", b"")
    with pytest.raises(StorageError, match=r"state/served\.json cannot be read"):
        folder.read("state/served.json")
    with pytest.raises(WrongInput, match="is a file"):
        Root(folder.folder / "state/served.json/x")


def test_files_below_the_top_of_a_machine_are_named_from_there(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"x")
    assert Root("/").files(str(tmp_path)[1:]) == [f"{tmp_path}/a.bin"[1:]]


def test_two_folders_are_exchanged_and_neither_where_one_is_not_there(tmp_path: Path) -> None:
    for name in ("ä one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "said.txt").write_text(name, "utf-8")
    exchange(tmp_path / "ä one", tmp_path / "other")
    assert (tmp_path / "other/said.txt").read_text("utf-8") == "ä one"
    assert (tmp_path / "ä one/said.txt").read_text("utf-8") == "other"
    with pytest.raises(OSError, match="No such file") as raised:
        exchange(tmp_path / "other", tmp_path / "nowhere")
    assert raised.value.errno == errno.ENOENT
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "ä one"]


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("items", [3, 40])
def test_what_is_made_of_items_comes_in_their_order_always(tmp_path: Path, items: int, spread: bool) -> None:
    place = Folder(tmp_path)
    assert place.each(lambda n: n * n, range(items), spread=spread) == [n * n for n in range(items)]
    with pytest.raises(ZeroDivisionError):
        place.each(lambda n: 1 // (items - 1 - n), range(items), spread=spread)


@pytest.mark.usefixtures("bucket")
def test_a_bucket_that_is_not_there_is_named() -> None:
    absent = Root("s3://no-such-bucket/x")
    for ask in (lambda: absent.read_json("a.json"), lambda: absent.write("a", b""), lambda: absent.files("")):
        with pytest.raises(WrongInput, match="no-such-bucket"):
            ask()


def test_a_server_that_is_gone_is_neither_damage_nor_loss(
    shared: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(Unreachable, "AFTER", 0)
    gone = Root(shared.uri)
    with pytest.raises(Unreachable, match=r"served\.json cannot be reached") as caught:
        gone.read_json("state/served.json")
    assert not isinstance(caught.value, StorageError)
    with pytest.raises(Unreachable):
        gone.exists("documents")


def held(root: Root) -> None:
    with writer_lock(root):
        pass


ASKING: list[Callable[[Root], object]] = [
    lambda root: root.read("there"),
    lambda root: root.write("new", b"two"),
    lambda root: root.files(""),
    lambda root: root.delete("old"),
    lambda root: root.exists("there"),
    lambda root: root.fetch("there"),
    held,
    table_names,
]


def said_to_all(root: Root) -> list[Exception | None]:
    """Ask all at once; return what each raised."""
    with ThreadPoolExecutor(len(ASKING)) as pool:
        return [asked.exception() for asked in [pool.submit(ask, root) for ask in ASKING]]  # type: ignore[misc]


def test_a_service_that_is_too_busy_is_asked_again_and_what_it_answered_is_said_without_a_password(
    shared: Root, monkeypatch: pytest.MonkeyPatch, outage: Callable[[float], None]
) -> None:
    for name in ("there", "old"):
        shared.write(name, b"one")
    outage(600)
    address = os.environ["AWS_ENDPOINT_URL"]
    with monkeypatch.context() as hasty:
        hasty.setattr(Unreachable, "AFTER", 0.5)
        hasty.setenv("AWS_ENDPOINT_URL", address.replace("//", "//me:open-sesame@"))
        for error in said_to_all(Root(shared.uri)):
            assert isinstance(error, Unreachable)
            assert re.search(r"cannot be reached \(503 (SlowDown|Service Unavailable)\)", str(error))
            assert not re.search(f"sesame|{os.environ['AWS_SECRET_ACCESS_KEY']}", str(error))
    outage(1.5)  # longer than a few tries take
    begun = time.monotonic()
    assert said_to_all(Root(shared.uri)) == [None] * len(ASKING)
    assert 1.5 <= time.monotonic() - begun < 50


def test_a_server_goes_on_with_what_it_knows(shared: Root, outage: Callable[[float], None]) -> None:
    server = Root(shared.uri, remembering=True)
    shared.write("state/served.json", b"one")
    assert server.read("state/served.json") == b"one"
    assert server.read_json("state/absent.json") is None
    shared.write("state/served.json", b"two")
    assert server.read("state/served.json") == b"two"
    outage(60)
    begun = time.monotonic()
    assert {server.read("state/served.json") for _ in range(50)} == {b"two"}
    assert server.read_json("state/absent.json") is None
    with pytest.raises(Unreachable, match="503 SlowDown"):
        server.read("state/unknown.json")
    assert time.monotonic() - begun < 30  # each asked anew, they take minutes


def test_a_server_behind_a_proxy_reads_anew_within_bounds(
    shared: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as behind:
        behind.setenv("AWS_PROXY_URL", os.environ["AWS_ENDPOINT_URL"])
        behind.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nothing answers there
        server = Root(shared.uri, remembering=True)
    for data in (b"one", b"two"):
        shared.write("state/served.json", data)
        assert server.read("state/served.json") == data
    monkeypatch.setattr(s3, "_KNOWN_BYTES", 10_000)
    for number in range(40):
        assert server.read_json(f"state/{number}.json") is None
    assert len(vars(server.place)["_known"]) <= 20


def test_copies_follow_the_bucket_and_go_when_their_object_does(
    shared: Root, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = np.arange(12, dtype=np.float32)
    (shared.folder / "models/one").mkdir(parents=True)
    np.save(shared.folder / "models/one/rows.npy", rows)
    shared.send("models/one")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    there = Root(shared.uri)
    copy = there.fetch("models/one") / "rows.npy"
    found = np.load(copy, mmap_mode="r")
    assert isinstance(found, np.memmap)
    assert found.tolist() == rows.tolist()
    copy.write_bytes(b"what this machine has is taken as it is")
    assert (there.fetch("models/one") / "rows.npy").read_bytes().startswith(b"what")
    shared.write("models/one/rows.npy", b"other rows")
    shared.write("models/two/rows.npy", b"2")
    assert (there.fetch("models/one") / "rows.npy").read_bytes() == b"other rows"
    shared.delete("models/one")
    there.fetch("models/two")
    assert [p.parent.name for p in (there.folder / "models").rglob("*.npy")] == ["two"]


def test_of_two_that_put_an_object_where_there_is_none_one_does(bucket: str) -> None:
    place = Bucket(bucket)
    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(lambda n: place.write_if("lock", b"%d" % n, None), range(6)))
    (first,) = [tag for tag in done if tag]
    assert place.write_if("lock", b"later", first) is not None
    assert place.write_if("lock", b"too late", first) is None
    assert place.read("lock") == b"later"


def test_a_partition_is_asked_for_once_an_absent_one_with_its_entry(shared: Root, s3_log: Path) -> None:
    schema = pl.Schema({"doc_id": pl.String, "n": pl.Int64})
    table = PartitionedTable(shared, "documents", schema, listed=True)
    table.replace(["local/m/1"], pl.DataFrame({"doc_id": ["local/m/1"], "n": [1]}, schema=schema))
    there = partition_of("local/m/1")
    before = len(s3_log.read_text().splitlines())
    assert table.read([there, (there + 1) % PARTITIONS])["n"].to_list() == [1]
    asked = re.findall(r"([A-Z]+) /\S+/(\S+) HTTP", "\n".join(s3_log.read_text().splitlines()[before:]))
    absent = f"part-{(there + 1) % PARTITIONS:02d}.parquet"
    names = [f"part-{there:02d}.parquet", absent, f"{absent}.json"]
    assert sorted(asked) == sorted(("GET", name) for name in names)
