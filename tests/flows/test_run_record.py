from __future__ import annotations

import errno
from pathlib import Path

import pytest

from flows.run_record import recorded
from storage.errors import StorageError
from storage.root import Root
from storage.state import read_run

_LANCE = "lance error: LanceError(IO): No space left on device (os error 28), /build/crates/w.rs:258:9"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError(_LANCE), "{0}: No space left on device: make room on that disk, and run again"),
        (
            StorageError("{0}/a.bin cannot be written (No space left on device)"),
            "{0}/a.bin cannot be written (No space left on device): make room on that disk, and run again",
        ),
        (OSError(errno.EIO, "Input/output error"), "[Errno 5] Input/output error"),
        (ZeroDivisionError(), "ZeroDivisionError"),
    ],
)
def test_a_run_that_meets_a_full_disk_says_which_and_what_to_do(
    error: Exception, said: str, tmp_path: Path
) -> None:
    root = Root(tmp_path)
    error.args = tuple(str(a).format(tmp_path) if isinstance(a, str) else a for a in error.args)
    with pytest.raises(type(error)), recorded(root, "20260101T000000-abcdef", [], flow="nightly"):
        raise error
    record = read_run(root, "20260101T000000-abcdef")
    assert record is not None
    assert (record["state"], record["message"]) == ("failed", said.format(tmp_path))
