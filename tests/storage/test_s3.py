from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from storage import s3
from storage.errors import Missing, SkilleryError, StorageError, Unreachable, WrongInput
from storage.lance.versions import table_names
from storage.locks import writer_lock
from storage.partitions import PARTITIONS, PartitionedTable, partition_of
from storage.root import Root
from storage.s3 import Bucket

_SCHEMA = pl.Schema({"doc_id": pl.String, "n": pl.Int64})


@pytest.fixture
def root(bucket: str) -> Root:
    return Root(bucket)


def another_machine(uri: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Root:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return Root(uri)


def test_what_is_written_is_read_back_and_replaced(root: Root) -> None:
    root.write("state/a.bin", b"one")
    root.write("state/a.bin", b"two")
    root.write("state/deep/b.json", b"{}")
    root.write("stateless.bin", b"")
    assert root.read("state/a.bin") == root.open("state/a.bin").read() == b"two"
    assert root.files("state") == ["state/a.bin", "state/deep/b.json"]
    assert root.files("", ".bin") == ["state/a.bin", "stateless.bin"]
    assert root.sizes(time.time() - 60) == root.sizes() == {"state": 5, "stateless.bin": 0}
    assert root.sizes(time.time() + 60) == {}
    found = [root.exists(name) for name in ("state", "state/a.bin", "stat")]
    assert found == [True, True, False]
    assert Root(root.at("state")).read("a.bin") == b"two"
    assert Root(root.uri).uri == root.uri


def test_a_missing_object_is_named_and_json_of_it_is_none(root: Root) -> None:
    with pytest.raises(Missing, match=r"state/absent\.json is missing"):
        root.read("state/absent.json")
    assert root.read_json("state/absent.json") is None
    root.write_json("state/there.json", {"name": "Brötchen"})
    assert root.read_json("state/there.json") == {"name": "Brötchen"}
    root.write("state/there.json", b"[]")
    with pytest.raises(StorageError, match=r"state/there\.json holds list"):
        root.read_json("state/there.json")


def test_deleting_takes_an_object_or_all_below_a_name_and_no_neighbour(root: Root) -> None:
    for name in ("a/b/c.bin", "a/b/d.bin", "a/bc.bin", "e.bin"):
        root.write(name, b"")
    root.delete("a/b")
    root.delete("e.bin")
    root.delete("never")
    assert root.files("") == ["a/bc.bin"]
    assert root.unfinished() == []


@pytest.mark.parametrize("spec", ["s3://", "s3:///prefix", "s3://X/prefix", "s3://a_b/prefix"])
def test_an_address_without_a_bucket_is_refused(spec: str) -> None:
    with pytest.raises(WrongInput, match="names no bucket"):
        Root(spec)


@pytest.mark.usefixtures("bucket")
def test_a_bucket_that_is_not_there_is_named() -> None:
    absent = Root("s3://no-such-bucket/x")
    for ask in (lambda: absent.read_json("a.json"), lambda: absent.write("a", b""), lambda: absent.files("")):
        with pytest.raises(WrongInput, match="no-such-bucket"):
            ask()


def test_a_server_that_is_gone_is_no_damage_and_nothing_is_taken_for_missing(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(Unreachable, "AFTER", 0)
    gone = Root(root.uri)
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
    root: Root, monkeypatch: pytest.MonkeyPatch, outage: Callable[[float], None]
) -> None:
    for name in ("there", "old"):
        root.write(name, b"one")
    outage(600)
    address = os.environ["AWS_ENDPOINT_URL"]
    with monkeypatch.context() as hasty:
        hasty.setattr(Unreachable, "AFTER", 0.5)
        hasty.setenv("AWS_ENDPOINT_URL", address.replace("//", "//me:open-sesame@"))
        for error in said_to_all(Root(root.uri)):
            assert isinstance(error, Unreachable)
            assert re.search(r"cannot be reached \(503 (SlowDown|Service Unavailable)\)", str(error))
            assert not re.search(f"sesame|{os.environ['AWS_SECRET_ACCESS_KEY']}", str(error))
    outage(1.5)  # longer than a few tries take
    begun = time.monotonic()
    assert said_to_all(Root(root.uri)) == [None] * len(ASKING)
    assert 1.5 <= time.monotonic() - begun < 50


def test_a_server_goes_on_with_what_it_knows(root: Root, outage: Callable[[float], None]) -> None:
    server = Root(root.uri, remembering=True)
    root.write("state/served.json", b"one")
    assert server.read("state/served.json") == b"one"
    assert server.read_json("state/absent.json") is None
    root.write("state/served.json", b"two")
    assert server.read("state/served.json") == b"two"
    outage(60)
    begun = time.monotonic()
    assert {server.read("state/served.json") for _ in range(50)} == {b"two"}
    assert server.read_json("state/absent.json") is None
    with pytest.raises(Unreachable, match="503 SlowDown"):
        server.read("state/unknown.json")
    assert time.monotonic() - begun < 30  # each asked anew, they take minutes


def test_a_server_behind_a_proxy_reads_anew_and_what_it_knows_is_bounded(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as behind:
        behind.setenv("AWS_PROXY_URL", os.environ["AWS_ENDPOINT_URL"])
        behind.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nothing answers there
        server = Root(root.uri, remembering=True)
    for data in (b"one", b"two"):
        root.write("state/served.json", data)
        assert server.read("state/served.json") == data
    monkeypatch.setattr(s3, "_KNOWN_BYTES", 10_000)
    for number in range(40):
        assert server.read_json(f"state/{number}.json") is None
    assert len(vars(server.place)["_known"]) <= 20


def test_copies_follow_the_bucket_and_go_when_their_object_does(
    root: Root, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (root.folder / "models/one").mkdir(parents=True)
    (root.folder / "models/one/model.onnx").write_bytes(b"weights")
    root.send("models/one")
    there = another_machine(root.uri, monkeypatch, tmp_path / "other")
    copy = there.fetch("models/one") / "model.onnx"
    assert copy.read_bytes() == b"weights"
    copy.write_bytes(b"what this machine has is taken as it is")
    assert (there.fetch("models/one") / "model.onnx").read_bytes().startswith(b"what")
    root.write("models/one/model.onnx", b"other weights")
    root.write("models/two/model.onnx", b"2")
    held = (there.fetch("models/one") / "model.onnx").read_bytes()
    root.delete("models/one")
    there.fetch("models/two")
    assert held == b"other weights"
    assert [p.name for p in (there.folder / "models").rglob("*.onnx")] == ["model.onnx"]
    assert not copy.exists()


def test_a_copy_is_fit_for_a_memory_map(root: Root) -> None:
    rows = np.arange(12, dtype=np.float32)
    (root.folder / "x").mkdir(parents=True)
    np.save(root.folder / "x/rows.npy", rows)
    root.send("x")
    found = np.load(root.fetch("x") / "rows.npy", mmap_mode="r")
    assert isinstance(found, np.memmap)
    assert found.tolist() == rows.tolist()


def test_of_two_that_put_an_object_where_there_is_none_one_does(root: Root) -> None:
    place = root.place
    assert isinstance(place, Bucket)
    done: list[str | None] = []
    threads = [
        threading.Thread(target=lambda n=n: done.append(place.write_if("lock", b"%d" % n, None)))
        for n in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (first,) = [tag for tag in done if tag]
    assert place.write_if("lock", b"later", first) is not None
    assert place.write_if("lock", b"too late", first) is None
    assert root.read("lock") == b"later"


def test_a_table_is_read_and_rewritten_side_by_side(root: Root) -> None:
    table = PartitionedTable(root, "documents", _SCHEMA)
    ids = [f"local/m/{n}" for n in range(200)]
    table.replace(ids, pl.DataFrame({"doc_id": ids, "n": range(200)}, schema=_SCHEMA))
    table.replace(ids[:3], pl.DataFrame({"doc_id": ids[:2], "n": [-1, -2]}, schema=_SCHEMA))
    expected = {doc_id: n for n, doc_id in enumerate(ids) if n != 2} | {ids[0]: -1, ids[1]: -2}
    assert dict(table.read().iter_rows()) == expected
    assert table.of(ids[7]).filter(doc_id=ids[7])["n"].to_list() == [7]
    assert len(root.files("documents")) == len({partition_of(i) for i in ids}) <= PARTITIONS


def test_a_partition_is_asked_for_once_and_one_that_is_absent_with_its_entry(
    root: Root, s3_log: Path
) -> None:
    table = PartitionedTable(root, "documents", _SCHEMA, listed=True)
    table.replace(["local/m/1"], pl.DataFrame({"doc_id": ["local/m/1"], "n": [1]}, schema=_SCHEMA))
    there = partition_of("local/m/1")
    before = len(s3_log.read_text().splitlines())
    assert table.read([there, (there + 1) % PARTITIONS])["n"].to_list() == [1]
    asked = re.findall(r"([A-Z]+) /\S+/(\S+) HTTP", "\n".join(s3_log.read_text().splitlines()[before:]))
    absent = f"part-{(there + 1) % PARTITIONS:02d}.parquet"
    names = [f"part-{there:02d}.parquet", absent, f"{absent}.json"]
    assert sorted(asked) == sorted(("GET", name) for name in names)


def test_damage_in_a_bucket_is_named(root: Root) -> None:
    table = PartitionedTable(root, "documents", _SCHEMA)
    root.write(table.file(3), b"PAR1 and nothing else")
    with pytest.raises(SkilleryError, match=r"part-03\.parquet cannot be read as Parquet"):
        table.read()
