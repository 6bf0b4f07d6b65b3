"""Benches for the command: methods measured on documents and queries that the user brings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from flows.settings import Settings
from storage.root import Root
from tasks.evaluate.evidence import read_documents, read_queries
from tasks.evaluate.paging import evaluate_paging
from tasks.models.encoder import OnnxEncoder
from tasks.models.export import exported_encoder
from tasks.parse.local import RuleClassifier

_METHODS = ("full", "nodes", "mmr", "chunks")


def paging_bench(
    root: Root,
    settings: Settings,
    documents: Path,
    queries: Path,
    methods: list[str] | None,
    budgets: list[float] | None,
) -> dict[str, Any]:
    """Return the table of paging methods on a bench; the encoder's export lies below the root."""
    texts, asked = read_documents(documents), read_queries(queries)
    encoder = OnnxEncoder(exported_encoder(root.folder / "models", settings.encoder))
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("paging", total=None)
        return evaluate_paging(
            texts,
            asked,
            methods=methods or _METHODS,
            budgets=budgets or [None],
            encoder=encoder,
            tokenizer=encoder,
            classifier=RuleClassifier(),
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
