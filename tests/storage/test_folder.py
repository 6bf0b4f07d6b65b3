from __future__ import annotations

import errno
from pathlib import Path

import pytest

from storage.folder import exchange


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
