"""Benches for the command: methods measured on documents and queries that the user brings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flows.progress import progress
from flows.queries import require_page_options
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
    """Return the table of paging methods on a bench; the encoder's export lies below the root.

    Raises:
        WrongInput: A file, a method or a budget cannot be used; no document has been encoded then.
    """
    wanted = methods or list(_METHODS)
    limits: list[float | None] = [*budgets] if budgets else [None]
    require_page_options(wanted, limits)
    texts, asked = read_documents(documents), read_queries(queries)
    encoder = OnnxEncoder(exported_encoder(root.folder / "models", settings.encoder))
    with progress("measured") as report:
        return evaluate_paging(
            texts,
            asked,
            methods=wanted,
            budgets=limits,
            encoder=encoder,
            tokenizer=encoder,
            classifier=RuleClassifier(),
            progress=report,
        )
