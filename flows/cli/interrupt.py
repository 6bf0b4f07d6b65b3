"""The interrupt of a command by Ctrl-C: it ends within seconds, with one line and exit code 130."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130
_PATIENCE = 6.0  # seconds in which a command may write its record; what it does not end is safe to kill
_LINE = "skillery: interrupted; a later run picks up where this one was\n"


def handle_interrupts() -> None:
    """Let the first Ctrl-C end the command in order, and the second one, or six seconds, end it at once."""
    signal.signal(signal.SIGINT, _interrupt)


def leave() -> NoReturn:
    """End the process now, without waiting for its threads; every write is whole or not there."""
    sys.stdout.flush()
    # Not through sys.stderr, which another thread may hold.
    os.write(2, _LINE.encode())
    os._exit(INTERRUPTED)


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGINT, lambda _signal, _frame: leave())
    # What threads and Prefect say of an interrupted flow would bury the one line that helps.
    logging.disable(logging.CRITICAL)
    threading.excepthook = lambda _: None
    watchdog = threading.Timer(_PATIENCE, leave)
    watchdog.daemon = True
    watchdog.start()
    raise KeyboardInterrupt
