"""Start of the command: Ctrl-C ends it in one line also while its modules load, which takes a second.

The hook of an agent's host loads none of them.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn


def main() -> None:
    """Load the command, and run it."""
    signal.signal(signal.SIGINT, _end)  # until the command has a handler of its own
    at = next((n for n, word in enumerate(sys.argv) if n and not word.startswith("-")), 0)
    if at and sys.argv[at] == "hook" and not {"-h", "--help"} & set(sys.argv):
        from flows.hook.run import main as hook  # noqa: PLC0415 (a host waits for it at every prompt)

        hook([word for word in sys.argv[at + 1 :] if word not in ("--debug", "--quiet")])
        return
    from flows.cli.main import main as run  # noqa: PLC0415 (what loads may be interrupted)

    run()


def _end(_signal: int, _frame: FrameType | None) -> NoReturn:
    os.write(2, b"skillery: interrupted\n")
    os._exit(130)
