"""Start of the command: Ctrl-C ends it in one line also while its modules load, which takes a second.

The hook of an agent's host loads none of them. The models of a question load beside them.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
from itertools import pairwise
from types import FrameType
from typing import NoReturn


def main() -> None:
    """Load the command, and run it."""
    signal.signal(signal.SIGINT, _end)  # until the command has a handler of its own
    at = next((n for n, word in enumerate(sys.argv) if n and not word.startswith("-")), 0)
    asks_help = bool({"-h", "--help"} & set(sys.argv))
    if at and sys.argv[at] == "hook" and not asks_help:
        from flows.hook.run import main as hook  # noqa: PLC0415 (a host waits for it at every prompt)

        hook([word for word in sys.argv[at + 1 :] if word not in ("--debug", "--quiet")])
        return
    if at and sys.argv[at] in ("search", "page") and not asks_help:
        # To look for plugins opens a file for each distribution, to look for garbage takes 4 % of a question.
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
        gc.set_threshold(50_000)
        threading.Thread(target=_load_ahead, args=(sys.argv[at], sys.argv[at + 1 :]), daemon=True).start()
    from flows.cli.main import main as run  # noqa: PLC0415 (what loads may be interrupted)

    run()


def _load_ahead(command: str, words: list[str]) -> None:
    """Load the models that a question needs; who asks for one waits for it, and meets what fails again."""
    with contextlib.suppress(Exception):
        import json  # noqa: PLC0415 (what the hook does without)
        from pathlib import Path  # noqa: PLC0415

        root = Path(_option(words, "root", "data")).expanduser()
        served = json.loads((root / "state/served.json").read_bytes())
        from tasks.models.encoder import OnnxEncoder  # noqa: PLC0415 (beside the command's modules)

        OnnxEncoder(root / served["model"]["path"]).load_ahead()
        if command == "search":
            from tasks.retrieve.routing import reranker  # noqa: PLC0415

            threads = int(os.environ.get("SKILLERY_QUERY_THREADS") or 0) or None
            if _option(words, "rerank", reranker.DEFAULT_RERANK) in reranker.REACHES:
                load = threading.Thread(target=reranker.packaged_pair_scorer, args=(threads,), daemon=True)
                load.start()
        from storage.lance.served import require_served  # noqa: PLC0415
        from storage.root import Root  # noqa: PLC0415
        from tasks.retrieve.routing.learned_leg import packaged_retriever  # noqa: PLC0415
        from tasks.retrieve.routing.store import routing_rows  # noqa: PLC0415

        routing_rows(Root(root), require_served(Root(root)))
        if command == "search":
            packaged_retriever(1)


def _option(words: list[str], name: str, default: str) -> str:
    """Return what is said of an option, at its last place, else in the environment."""
    told = [after for word, after in pairwise(words) if word == f"--{name}"]
    told += [word.partition("=")[2] for word in words if word.startswith(f"--{name}=")]
    return told[-1] if told else os.environ.get(f"SKILLERY_{name.upper()}") or default


def _end(_signal: int, _frame: FrameType | None) -> NoReturn:
    os.write(2, b"skillery: interrupted\n")
    os._exit(130)
