"""Start of the command: Ctrl-C ends it in one line also while its modules load, which takes a second."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import NoReturn


def main() -> None:
    """Load the command, and run it."""
    signal.signal(signal.SIGINT, _end)  # until the command has a handler of its own
    from flows.cli.main import main as run  # noqa: PLC0415 (what loads may be interrupted)

    run()


def _end(_signal: int, _frame: FrameType | None) -> NoReturn:
    os.write(2, b"skillery: interrupted\n")
    os._exit(130)
