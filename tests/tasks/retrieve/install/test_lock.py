from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import StorageError
from tasks.retrieve.install.lock import LOCK_FILE, InstallLock, Pending, is_folder_name, read_lock, write_lock
from tests.support.installs import NEW, OLD, installed

ENTRIES = st.builds(
    lambda commit, licence, unknown, risks: replace(
        installed(OLD), commit=commit, licence=licence, not_written=unknown, risks=risks
    ),
    st.none() | st.text(),
    st.none() | st.text(),
    st.none() | st.lists(st.text()),
    st.lists(st.text()),
)
NAMES = st.text(min_size=1).filter(is_folder_name)
PENDING = st.none() | st.builds(Pending, NAMES, st.none() | ENTRIES)


@given(st.builds(InstallLock, st.dictionaries(NAMES, ENTRIES, max_size=3), PENDING))
def test_what_is_written_is_read(lock: InstallLock) -> None:
    with tempfile.TemporaryDirectory() as made:
        write_lock(Path(made), lock)
        assert read_lock(Path(made)) == lock
        assert (Path(made) / LOCK_FILE).exists() == bool(lock.skills or lock.pending)


def test_equal_locks_have_equal_bytes(tmp_path: Path) -> None:
    bread, bees = installed(OLD), installed(NEW, "local/market/bees")
    written = []
    for skills in ({"bread": bread, "bees": bees}, {"bees": bees, "bread": bread}):
        write_lock(tmp_path, InstallLock(skills))
        written.append((tmp_path / LOCK_FILE).read_bytes())
    assert written[0] == written[1]
    assert list(json.loads(written[0])["skills"]) == ["bees", "bread"]
    assert "pending" not in json.loads(written[0])


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../bread", "a/b", ".git", "con", "skillery.LOCK", "x" * 201]
)
def test_names_that_some_file_system_refuses_name_no_folder(name: str) -> None:
    assert not is_folder_name(name)


@pytest.mark.parametrize("name", ["bread", "Sourdough Bread", "brot-backen", "技能", "v1.2"])
def test_other_names_do(name: str) -> None:
    assert is_folder_name(name)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot be read"),
        ('{"skills": {"bread": {"doc_id": 3}}}', "cannot be read"),
        ('{"version": 2}', "a newer Skillery wrote"),
    ],
)
def test_a_lock_that_cannot_be_used_is_said_with_what_to_do(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / LOCK_FILE).write_text(text, "utf-8")
    with pytest.raises(StorageError, match=said):
        read_lock(tmp_path)


@pytest.mark.parametrize(
    "lock",
    [
        InstallLock({"../bread": installed(OLD)}),
        InstallLock({"bread": replace(installed(OLD), files={"../../.bashrc": "0"})}),
        InstallLock(pending=Pending("/etc", None)),
        InstallLock(pending=Pending("bread", replace(installed(OLD), files={"/etc/passwd": "0"}))),
    ],
)
def test_a_lock_that_leads_out_of_its_folder_is_refused(tmp_path: Path, lock: InstallLock) -> None:
    write_lock(tmp_path, lock)
    with pytest.raises(StorageError, match="which Skillery does not write"):
        read_lock(tmp_path)
