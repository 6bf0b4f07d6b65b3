from __future__ import annotations

import errno
from pathlib import Path

import pytest

from storage.folder import Folder, exchange


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
