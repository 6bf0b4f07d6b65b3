"""One skill's graph for the command; it needs no orchestrator."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from flows.queries import open_index
from flows.settings import Settings
from storage.errors import WrongInput
from storage.root import Root
from tasks.retrieve.graph import graph_of
from tasks.retrieve.graph_picture import FORMATS, draw


def draw_graph(root: Root, settings: Settings, doc_id: str, out: Path) -> dict[str, Any]:
    """Draw the graph of a served skill to a file and return what it shows.

    Args:
        root: What it serves.
        settings: Those of queries.
        doc_id: The skill's id, or an alias of it.
        out: The picture; its suffix names its form.

    Raises:
        WrongInput: `out` has another suffix than `.svg`, `.png` or `.pdf`, or cannot be written.
        UnknownDocument: Neither a served document nor an alias of one has this id.
        Withheld: Its licence keeps its text back.
        NotPublished: Nothing is served.
        TerminalError: matplotlib is not installed.
    """
    form = out.suffix.lower().removeprefix(".")
    if form not in FORMATS:
        msg = f"--out {out}: name a file that ends in {', '.join('.' + f for f in FORMATS)}"
        raise WrongInput(msg)
    graph = graph_of(open_index(root, settings).document(doc_id))
    _put(out, draw(graph, form))
    return {"out": str(out), **graph.as_dict()}


def _put(out: Path, picture: bytes) -> None:
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        beside.write_bytes(picture)
        beside.replace(out)
    except OSError as error:
        msg = f"--out {out} cannot be written ({error.strerror}): name a file in a folder you may write to"
        raise WrongInput(msg) from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
