from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from storage.errors import Locked, WrongInput
from storage.locks import writer_lock
from storage.root import Root

_HOLD = """
import sys
from storage.locks import writer_lock
from storage.root import Root
with writer_lock(Root(sys.argv[1])):
    sys.stdout.write("held\\n")
    sys.stdout.flush()
    sys.stdin.read()
"""


@contextmanager
def other_process(root: Path) -> Iterator[subprocess.Popen[str]]:
    """Let another process hold the lock, or fail to."""
    command = [sys.executable, "-c", _HOLD, str(root)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_second_process_is_turned_away_until_the_first_is_killed(tmp_path: Path) -> None:
    with other_process(tmp_path) as holder:
        assert first_line(holder) == "held"
        with pytest.raises(Locked, match="another run writes to"), writer_lock(Root(tmp_path)):
            pass
        holder.kill()
        holder.wait()
        with writer_lock(Root(tmp_path)):
            pass


def test_it_is_entered_again_within_a_process_and_kept_until_the_outermost_leaves(tmp_path: Path) -> None:
    with writer_lock(Root(tmp_path)):
        with writer_lock(Root(str(tmp_path))):
            pass
        with other_process(tmp_path) as second:
            assert first_line(second) == ""
            assert second.stderr is not None
            assert "Locked" in second.stderr.read()
    with other_process(tmp_path) as third:
        assert first_line(third) == "held"


def test_an_error_inside_lets_go(tmp_path: Path) -> None:
    with pytest.raises(KeyError), writer_lock(Root(tmp_path)):
        raise KeyError
    with other_process(tmp_path) as other:
        assert first_line(other) == "held"


def test_roots_are_locked_each_for_itself(tmp_path: Path) -> None:
    with other_process(tmp_path / "a") as holder:
        assert first_line(holder) == "held"
        with writer_lock(Root(tmp_path / "b")):
            pass


def test_only_a_folder_can_be_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(WrongInput, match="s3://bucket/x"), writer_lock(Root("s3://bucket/x")):
        pass
