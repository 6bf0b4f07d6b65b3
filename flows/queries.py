"""Queries for the command, one or a file of them; nothing here loads Prefect, torch or a training library."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from flows.settings import Settings
from storage.errors import WrongInput
from storage.root import Root
from tasks.parse.classify import read_fragments, write_typed
from tasks.parse.local import RuleClassifier
from tasks.retrieve.served_index import ServedIndex


def open_index(root: Root, settings: Settings) -> ServedIndex:
    """Return what the root serves, opened at the first question."""
    return ServedIndex(
        root, encoder=settings.encoder, classifier=RuleClassifier, threads=settings.query_threads
    )


def answer_batch(
    batch: Path | None,
    out: Path | None,
    answer: Callable[[dict[str, Any]], dict[str, Any]],
    *,
    required: tuple[str, ...] = ("query_id", "query"),
) -> None:
    """Answer a file of queries, a line each, in order.

    Raises:
        WrongInput: Only one of the two files is given, or a line is not as it should be.
    """
    if batch is None or out is None:
        msg = "--batch Q.jsonl and --out R.jsonl go together"
        raise WrongInput(msg)
    lines = list(_lines(batch, required))
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = out.with_name(f"{out.name}.tmp")
    with beside.open("w", encoding="utf-8") as stream:
        for line in _progress(lines, "answering"):
            record = {"query_id": line["query_id"], **answer(line)}
            stream.write(json.dumps(record, ensure_ascii=False) + "\n")
    beside.replace(out)


def _lines(path: Path, required: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    try:
        texts = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path} cannot be read ({error})"
        raise WrongInput(msg) from error
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
        except ValueError as error:
            msg = f"{path}:{number} is not JSON ({error})"
            raise WrongInput(msg) from error
        missing = [k for k in required if not isinstance(line, dict) or not isinstance(line.get(k), str)]
        if missing:
            msg = f"{path}:{number} lacks {', '.join(missing)}"
            raise WrongInput(msg)
        yield line


def _progress(items: list[Any], what: str) -> Iterator[Any]:
    console = Console(stderr=True)
    yield from track(
        items, description=what, console=console, transient=True, disable=not sys.stderr.isatty()
    )


def classify_file(fragments: Path, out: Path, classifier: str) -> None:
    """Type a file of fragments.

    Raises:
        WrongInput: The file or the classifier cannot be used.
    """
    if classifier != "local":
        msg = f"classifier {classifier!r} is not known: known is local"
        raise WrongInput(msg)
    rows = list(read_fragments(fragments))
    typed = RuleClassifier().classify(rows)
    write_typed(out, [(row.fragment_id, t) for row, t in zip(rows, typed, strict=True)])
