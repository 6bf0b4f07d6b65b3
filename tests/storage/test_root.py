from __future__ import annotations

import errno
import os
import resource
import threading
from pathlib import Path

import pytest

from storage.errors import StorageError, WrongInput
from storage.folder import Folder, exchange
from storage.root import Root


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path / "data")


def test_what_is_written_is_read_back_and_replaced(root: Root) -> None:
    root.write("state/a.bin", b"one")
    root.write("state/a.bin", b"two")
    assert root.read("state/a.bin") == b"two"
    assert root.files("state") == ["state/a.bin"]


def test_a_reader_sees_the_old_bytes_or_the_new_ones_never_a_part(root: Root) -> None:
    versions = {bytes([letter]) * 300_000 for letter in b"xyz"}
    root.write("a.bin", b"x" * 300_000)
    stop = threading.Event()

    def rewrite() -> None:
        while not stop.is_set():
            for version in versions:
                root.write("a.bin", version)

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        assert all(root.read("a.bin") in versions for _ in range(200))
    finally:
        stop.set()
        writer.join()


def test_what_a_killed_write_left_behind_is_no_data(root: Root, tmp_path: Path) -> None:
    root.write("documents/part-00.parquet", b"whole")
    (tmp_path / "data/documents/part-01.parquet.1234abcd.tmp").write_bytes(b"half")
    assert root.files("documents") == ["documents/part-00.parquet"]


def test_a_write_that_fails_leaves_what_was_there_and_nothing_beside_it(root: Root, tmp_path: Path) -> None:
    root.write("a.bin", b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))  # as on a full disk, a byte fits and no more
    try:
        with pytest.raises(StorageError, match=r"a\.bin cannot be written \(File too large"):
            root.write("a.bin", b"new")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert root.read("a.bin") == b"old"
    assert [f.name for f in (tmp_path / "data").iterdir()] == ["a.bin"]


@pytest.mark.parametrize("before", [None, 0o755])
@pytest.mark.parametrize("folder", ["raw", "trajectories"])
def test_what_was_fetched_or_recorded_is_readable_by_its_owner_alone(
    root: Root, folder: str, before: int | None
) -> None:
    if before is not None:  # a root of an earlier version
        (root.folder / folder).mkdir(mode=before, parents=True)
    root.write(f"{folder}/date=2026-03-01/part-0.parquet", b"")
    root.write("documents/part-00.parquet", b"")
    assert (root.folder / folder).stat().st_mode & 0o777 == 0o700
    assert (root.folder / "documents").stat().st_mode & 0o777 != 0o700


def test_a_missing_file_is_named(root: Root) -> None:
    with pytest.raises(StorageError, match=r"state/absent\.bin is missing"):
        root.read("state/absent.bin")


def test_a_folder_where_a_file_should_be_is_named(root: Root) -> None:
    root.write("state/served.json/x", b"")
    with pytest.raises(StorageError, match=r"state/served\.json cannot be read"):
        root.read("state/served.json")


def test_deleting_takes_a_file_or_a_folder_and_minds_not_if_there_is_none(root: Root) -> None:
    root.write("a/b/c.bin", b"")
    root.write("a/d.bin", b"")
    root.delete("a/b")
    assert root.files("a") == ["a/d.bin"]
    root.delete("a/d.bin")
    root.delete("a/never")
    assert not root.exists("a/d.bin")


def test_json_round_trips_and_is_none_where_there_is_none(root: Root) -> None:
    assert root.read_json("state/x.json") is None
    root.write_json("state/x.json", {"name": "Brötchen", "n": [1, None]})
    assert root.read_json("state/x.json") == {"name": "Brötchen", "n": [1, None]}


@pytest.mark.parametrize("damaged", [b"", b'{"a": 1', b"\xff\xfe\x00", b"[1, 2]", b"null"])
def test_damaged_json_is_named(root: Root, damaged: bytes) -> None:
    root.write("state/x.json", damaged)
    with pytest.raises(StorageError, match=r"state/x\.json"):
        root.read_json("state/x.json")


def test_a_root_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WrongInput, match="is a file"):
        Root(tmp_path / "file")


@pytest.mark.parametrize("spec", ["ftp://host/x", "s3:/bucket", Path("s3://bucket/prefix")])
def test_an_address_is_refused_by_name(spec: str | Path) -> None:
    with pytest.raises(WrongInput, match=r"(ftp|s3):/.* is no folder"):
        Root(spec)


def test_files_below_the_top_of_a_machine_are_named_from_there(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"x")
    assert Root("/").files(str(tmp_path)[1:]) == [f"{tmp_path}/a.bin"[1:]]


def test_what_was_written_since_is_counted_by_folder(root: Root) -> None:
    for relative in ("raw/a", "raw/deep/b", "state/c", "d"):
        root.write(relative, b"four")
    os.utime(root.folder / "raw/a", (0, 1_000))
    os.utime(root.folder / "state/c", (0, 1_000))
    assert root.sizes() == {"raw": 8, "state": 4, ".": 4}
    assert root.sizes(1_001) == {"raw": 4, ".": 4}


def test_two_folders_are_exchanged(tmp_path: Path) -> None:
    for name in ("ä one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "said.txt").write_text(name, "utf-8")
    exchange(tmp_path / "ä one", tmp_path / "other")
    assert (tmp_path / "other/said.txt").read_text("utf-8") == "ä one"
    assert (tmp_path / "ä one/said.txt").read_text("utf-8") == "other"


def test_nothing_changes_where_one_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with pytest.raises(OSError, match="No such file") as raised:
        exchange(tmp_path / "one", tmp_path / "nowhere")
    assert raised.value.errno == errno.ENOENT
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("items", [3, 40])
def test_what_is_made_of_items_comes_in_their_order_however_they_are_done(
    tmp_path: Path, items: int, spread: bool
) -> None:
    folder = Folder(tmp_path)
    assert folder.each(lambda n: n * n, range(items), spread=spread) == [n * n for n in range(items)]
    with pytest.raises(ZeroDivisionError):
        folder.each(lambda n: 1 // (items - 1 - n), range(items), spread=spread)
