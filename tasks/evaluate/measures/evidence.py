"""Evidence that a context holds what a request needs: coverage and sufficiency, without a language model."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from storage.errors import WrongInput
from storage.jsonl import read_lines, text_field
from tasks.crawl.source.lookup import suggestion

# An item is covered by any one of its spans.
Item = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EvidenceQuery:
    """A request about one document, and the items of text that it takes to answer it, if they are known."""

    query_id: str
    doc_id: str
    query: str
    evidence: tuple[Item, ...]
    breadth: str | None = None


def fold_text(text: str) -> str:
    """Return `text` in lower case with every run of non-word characters as one space, none outside."""
    return re.sub(r"\W+", " ", text.lower()).strip()


def coverage(context: str, evidence: Sequence[Item]) -> float:
    """Return the share of items of which the context contains a span, both folded by `fold_text`.

    A span without a word character folds to nothing and is in every context. No evidence raises ValueError.
    """
    if not evidence:
        raise ValueError("coverage needs at least one item of evidence")
    folded = fold_text(context)
    return sum(any(fold_text(span) in folded for span in item) for item in evidence) / len(evidence)


def spans_in(body: str, span: str) -> list[tuple[int, int]]:
    """Return where a body holds a span, both folded by `fold_text`: `(start, end)` of each occurrence."""
    words = [m.span() for m in re.finditer(r"\w+", body)]
    folded = [body[start:end].lower() for start, end in words]
    wanted = fold_text(span).split(" ")
    if wanted == [""]:
        return []
    # Where each word begins in the folded text, so that a place there leads back to the body.
    starts = [0, *accumulate(len(word) + 1 for word in folded)]
    length = len(" ".join(wanted))
    found = []
    for match in re.finditer(f"(?={re.escape(' '.join(wanted))})", " ".join(folded)):
        first = bisect(starts, match.start()) - 1
        last = bisect(starts, match.start() + length - 1) - 1
        found.append((words[first][0], words[last][1]))
    return found


def read_documents(path: Path) -> dict[str, str]:
    """Return the text of each document by its id, from lines `{doc_id, content}`.

    Raises:
        WrongInput: The file cannot be read, a line is no such object, or an id occurs twice; names the line.
    """
    documents: dict[str, str] = {}
    for where, record in read_lines(path, "{doc_id, content}"):
        doc_id = text_field(record, "doc_id", where)
        if doc_id in documents:
            raise WrongInput(f"{where}: doc_id {doc_id!r} occurs twice; keep one")
        documents[doc_id] = text_field(record, "content", where)
    return documents


def read_queries(path: Path) -> list[EvidenceQuery]:
    """Return the requests in order; argument and errors as `read_located_queries`."""
    return [query for _, query in read_located_queries(path)]


def read_located_queries(path: Path, *, judged: bool = False) -> list[tuple[str, EvidenceQuery]]:
    """Return the requests in order, each with its `file:line`.

    Lines are `{query_id, doc_id, query, evidence: [{any_of: [span, ...]}, ...]}`, and `breadth` if known; if
    `judged` by a language model they need no evidence.

    Raises:
        WrongInput: As `read_documents`, or a query is blank, or evidence, an item or a span is empty.
    """
    queries: dict[str, tuple[str, EvidenceQuery]] = {}
    for where, record in read_lines(path, "{query_id, doc_id, query, evidence}"):
        query_id, doc_id, query = (text_field(record, key, where) for key in ("query_id", "doc_id", "query"))
        if query_id in queries:
            msg = f"{where}: query_id {query_id!r} occurs twice, first in {queries[query_id][0]}; keep one"
            raise WrongInput(msg)
        if not query.strip():
            msg = f"{where}: the query of {query_id!r} is blank; say what is asked, or drop the line"
            raise WrongInput(msg)
        breadth = text_field(record, "breadth", where) if record.get("breadth") is not None else None
        items = record.get("evidence")
        evidence = () if judged and not items else _evidence(items, where)
        queries[query_id] = where, EvidenceQuery(query_id, doc_id, query, evidence, breadth)
    return list(queries.values())


def _evidence(items: object, where: str) -> tuple[Item, ...]:
    if not isinstance(items, list) or not items or not all(_is_item(item) for item in items):
        msg = (
            f"{where}: `evidence` must be a list of {{any_of: [text, ...]}}, none of them empty; "
            "--judge llm needs none"
        )
        raise WrongInput(msg)
    return tuple(tuple(item["any_of"]) for item in items)


def _is_item(item: object) -> bool:
    spans = item.get("any_of") if isinstance(item, dict) else None
    return (
        isinstance(spans, list)
        and bool(spans)
        and all(isinstance(span, str) and span.strip() for span in spans)
    )


def read_paging_bench(
    documents: Path, queries: Path, *, judged: bool = False
) -> tuple[dict[str, str], list[EvidenceQuery]]:
    """Return the text of each document by its id, from lines `{doc_id, content}`, and the requests in order.

    If `judged` by a language model, requests need no evidence.

    Raises:
        WrongInput: A file cannot be used, a request's document is not among the documents, or none of an
            item's spans stands in it, so that no context could hold it; names file and line.
    """
    texts = read_documents(documents)
    located = read_located_queries(queries, judged=judged)
    folded: dict[str, str] = {}
    for where, query in located:
        if query.doc_id not in texts:
            near = suggestion(query.doc_id, [], texts)
            msg = f"{where}: {documents} has no document {query.doc_id!r}{near}; add it or mend the id"
            raise WrongInput(msg)
        if query.doc_id not in folded:
            folded[query.doc_id] = fold_text(texts[query.doc_id])
        _require_evidence(where, query, folded[query.doc_id])
    return texts, [query for _, query in located]


def _require_evidence(where: str, query: EvidenceQuery, document: str) -> None:
    for number, item in enumerate(query.evidence, start=1):
        if not any(fold_text(span) in document for span in item):
            msg = (
                f"{where}: item {number} of the evidence, {item[0][:80]!r}, does not stand in document "
                f"{query.doc_id!r}; evidence is copied from it word by word"
            )
            raise WrongInput(msg)
