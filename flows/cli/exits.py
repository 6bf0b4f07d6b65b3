"""Exits of the command: one line on stderr and a code, after a mistake, a failure or Ctrl-C.

Codes: 0 done, 1 a run failed, 2 wrong use, 130 interrupted.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from types import FrameType
from typing import NoReturn

import typer

from storage.errors import SkilleryError, UnknownDocument, Withheld, WrongInput
from tasks.models.visible import visible

_INTERRUPTED = 130
_PATIENCE = 6.0  # seconds in which a command may write its record; what it does not end is safe to kill
_LINE = "skillery: interrupted; a later run picks up where this one was\n"


def run_to_exit(app: typer.Typer) -> NoReturn:
    """Run the command and end the process."""
    _handle_interrupts()
    try:
        code = app(standalone_mode=False)
    except (WrongInput, UnknownDocument, Withheld) as error:
        _fail(str(error), 2)
    except SkilleryError as error:
        _fail(str(error), 1)
    except KeyboardInterrupt:
        _leave()
    except Exception as error:
        # Typer's own complaints about arguments; their class is not exported, its subclass is.
        if not isinstance(error, typer.BadParameter.__mro__[1]):
            raise
        _fail(getattr(error, "format_message", error.__str__)(), 2)
    if code == _INTERRUPTED:  # what Typer makes of Ctrl-C
        _leave()
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> NoReturn:
    sys.stderr.write(f"skillery: {visible(' '.join(message.split()))}\n")
    sys.exit(code)


def _handle_interrupts() -> None:
    """Let the first Ctrl-C end the command in order, and the second one, or six seconds, end it at once."""
    signal.signal(signal.SIGINT, _interrupt)


def _leave() -> NoReturn:
    """End the process now, without waiting for its threads; every write is whole or not there."""
    sys.stdout.flush()
    # Not through sys.stderr, which another thread may hold.
    os.write(2, _LINE.encode())
    os._exit(_INTERRUPTED)


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGINT, lambda _signal, _frame: _leave())
    # What threads and Prefect say of an interrupted flow would bury the one line that helps.
    logging.disable(logging.CRITICAL)
    threading.excepthook = lambda _: None
    watchdog = threading.Timer(_PATIENCE, _leave)
    watchdog.daemon = True
    watchdog.start()
    raise KeyboardInterrupt
