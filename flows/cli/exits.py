"""Exits of the command: one line on stderr and a code, after a mistake, a failure or Ctrl-C.

Codes: 0 done, 1 a run failed, 2 wrong use, 130 interrupted.
"""

from __future__ import annotations

import errno
import functools
import gc
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import NoReturn

import typer
from typer.main import get_command

from flows.cli.deleted import refuse_deleted_command
from flows.commands.console import say_aside
from flows.commands.open_formats.json_log import is_json, json_line, set_up_log
from storage.errors import SkilleryError, StorageError, UnknownDocument, Withheld, WrongInput

DEBUG_OPTION, QUIET_OPTION = "--debug", "--quiet"
_DEBUG = "SKILLERY_DEBUG"
_ANYWHERE = {DEBUG_OPTION: _DEBUG, QUIET_OPTION: "SKILLERY_QUIET"}
_REMEDIES = {
    errno.ENOSPC: "make room on that disk, and run again",
    errno.EACCES: "give the user that runs Skillery the right to it, or name another --root",
    errno.EPERM: "give the user that runs Skillery the right to it, or name another --root",
    errno.EROFS: "mount it for writing, or name another --root",
}
_INTERRUPTED = 130
_PATIENCE = 6.0  # seconds in which a command may write its record; what it does not end is safe to kill
_SEEN = 0.2  # seconds in which a main thread that does not wait sees a signal
_ASKED = threading.Event()  # by Ctrl-C, to end
_command = functools.cache(get_command)  # of some sixty commands: Typer would make them again for each call
_LINE, _RESUMED = (
    "skillery: interrupted\n",
    "skillery: interrupted; a later run picks up where this one was\n",
)
# Of these a later one goes on with what the one before has done.
_RUNS = {"run", "backfill", "rebuild", "refresh", "induce", "compact", "forget", "rollback"}


def run_to_exit(app: typer.Typer) -> NoReturn:
    """Run the command and end the process; `--debug` and `--quiet` may stand at any place.

    They are what SKILLERY_DEBUG and SKILLERY_QUIET set: stacks of errors, and no progress on stderr.
    """
    _handle_interrupts()
    for option in _ANYWHERE.keys() & set(sys.argv):
        sys.argv.remove(option)
        os.environ[_ANYWHERE[option]] = "1"
    set_up_log(quiet=_is_on(_ANYWHERE[QUIET_OPTION]))
    code = _INTERRUPTED  # which is what Typer makes of Ctrl-C, too
    try:
        refuse_deleted_command(sys.argv[1:])
        code = _command(app)(standalone_mode=False)
    except KeyboardInterrupt:
        pass
    except Exception as error:
        # Libraries wrap an interrupt in errors of their own, and worker processes are ended by it.
        if not _ASKED.is_set():
            _tell(error)
    # A run may take what a library made of an interrupt for a failure; one that ended well is done.
    if code == _INTERRUPTED or (code and _ASKED.is_set()):
        _leave()  # not sooner: the error holds what is half made, such as worker processes
    # The answer is out: what comes now would be told, after all, that its run was interrupted.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()  # to look for garbage once more, before all memory goes, takes a seventh of a query's time
    sys.exit(code if isinstance(code, int) else 0)


def _tell(error: Exception) -> NoReturn:
    """End the process with one line about an error; raise it again where its stack is wanted."""
    if isinstance(error, (WrongInput, UnknownDocument, Withheld)):
        _fail(str(error), 2)
    if isinstance(error, SkilleryError):
        _fail(_with_remedy(error), 1)
    # Typer's own complaints about arguments; their class is not exported, its subclass is.
    if isinstance(error, typer.BadParameter.__mro__[1]):
        _fail(getattr(error, "format_message", error.__str__)(), 2)
    if debugging():
        raise error
    _fail(_unforeseen(error), 1)


def debugging() -> bool:
    """Tell whether stacks are to be shown."""
    return _is_on(_DEBUG)


def _is_on(variable: str) -> bool:
    return os.environ.get(variable, "").lower() not in {"", "0", "false", "no", "off"}


def _with_remedy(error: SkilleryError) -> str:
    """Return what an error says, and what to do where the machine kept a file from being read or written."""
    cause = error.__cause__
    remedy = _REMEDIES.get(cause.errno or 0) if isinstance(cause, OSError) else None
    return f"{error}: {remedy}" if remedy and isinstance(error, StorageError) else str(error)


def _unforeseen(error: Exception) -> str:
    """Return one line for an error that no part of Skillery names: the file, or the kind, and the remedy."""
    if isinstance(error, OSError) and error.strerror and (error.filename or error.errno in _REMEDIES):
        remedy = _REMEDIES.get(error.errno or 0, f"{DEBUG_OPTION} shows where")
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}: {remedy}"
    said = str(error).strip().splitlines() or ["no message"]
    return f"{type(error).__name__}: {said[0][:300]} ({DEBUG_OPTION} shows where)"


def _fail(message: str, code: int) -> NoReturn:
    say_aside(f"skillery: {' '.join(message.split())}", "error")
    sys.exit(code)


def _handle_interrupts() -> None:
    """Let the first Ctrl-C end the command in order, and the second one, or six seconds, end it at once."""
    signal.signal(signal.SIGINT, _interrupt)
    _mind_missed_interrupts()
    # What a command that ends at once leaves of its worker processes is cleaned up, without a word.
    sys.warnoptions.append("ignore:resource_tracker:UserWarning")


@functools.cache
def _mind_missed_interrupts() -> None:
    """Repeat a Ctrl-C that came just before the main thread began to wait: the wait would hide it."""
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)

    def repeat() -> None:
        while signals := os.read(told, 1):  # of all that have a handler, such as a flow's SIGTERM
            time.sleep(_SEEN)
            if signals[0] == signal.SIGINT and signal.getsignal(signal.SIGINT) is _interrupt:  # not yet run
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=repeat, daemon=True).start()


def end_on_interrupt(line: str) -> None:
    """Let Ctrl-C say a line and end the process at once, for a command that no later run goes on with."""
    signal.signal(signal.SIGINT, lambda _signal, _frame: _end(f"{line}\n"))


def _leave() -> NoReturn:
    """End the process now, without waiting for its threads; every write is whole or not there."""
    sys.stdout.flush()
    _end(_RESUMED if _RUNS.intersection(sys.argv[1:2]) else _LINE)


def _end(line: str) -> NoReturn:
    # Those that are just starting would see only later that nobody waits for them.
    for process in multiprocessing.active_children():
        process.kill()
        process.join(1)
    # Agents and environments have sessions of their own, and read no end of their input while they hang.
    if environments := sys.modules.get("tasks.induce.replay.environment"):
        environments.kill_all()
    # Not through sys.stderr, which another thread may hold.
    os.write(2, f"{json_line('warning', line.strip())}\n".encode() if is_json() else line.encode())
    os._exit(_INTERRUPTED)


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGINT, lambda _signal, _frame: _leave())
    _ASKED.set()
    # What threads and Prefect say of an interrupted flow would bury the one line that helps.
    logging.disable(logging.CRITICAL)
    threading.excepthook = lambda _: None
    watchdog = threading.Timer(_PATIENCE, _leave)
    watchdog.daemon = True
    watchdog.start()
    raise KeyboardInterrupt
