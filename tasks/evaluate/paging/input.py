"""The input of a paging bench: reads documents and requests, and checks them against each other."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from pathlib import Path

from storage.errors import WrongInput
from tasks.evaluate.measures.evidence import EvidenceQuery, fold_text, read_documents, read_located_queries


def read_paging_bench(documents: Path, queries: Path) -> tuple[dict[str, str], list[EvidenceQuery]]:
    """Return the text of each document by its id, from lines `{doc_id, content}`, and the requests in order.

    Raises:
        WrongInput: A file cannot be used, a request's document is not among the documents, or none of an
            item's spans stands in it, so that no context could hold it; names file and line.
    """
    texts = read_documents(documents)
    located = read_located_queries(queries)
    folded: dict[str, str] = {}
    for where, query in located:
        _require_document(where, query.doc_id, texts, documents)
        if query.doc_id not in folded:
            folded[query.doc_id] = fold_text(texts[query.doc_id])
        _require_evidence(where, query, folded[query.doc_id])
    return texts, [query for _, query in located]


def nearest(doc_id: str, known: Collection[str]) -> str:
    """Return `; near it are ...` with up to three known ids most like one that is not there, or nothing."""
    ids = {name.casefold(): name for name in known}
    close = difflib.get_close_matches(doc_id.casefold(), ids, n=3)
    return f"; near it are {', '.join(ids[key] for key in close)}" if close else ""


def _require_document(where: str, doc_id: str, texts: Mapping[str, str], documents: Path) -> None:
    if doc_id not in texts:
        msg = (
            f"{where}: {documents} has no document {doc_id!r}{nearest(doc_id, texts)}; add it or mend the id"
        )
        raise WrongInput(msg)


def _require_evidence(where: str, query: EvidenceQuery, document: str) -> None:
    for number, item in enumerate(query.evidence, start=1):
        if not any(fold_text(span) in document for span in item):
            msg = (
                f"{where}: item {number} of the evidence, {item[0][:80]!r}, does not stand in document "
                f"{query.doc_id!r}; evidence is copied from it word by word"
            )
            raise WrongInput(msg)
