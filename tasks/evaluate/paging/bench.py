"""The bench of paging: each query paged by each method and budget, on documents prepared once.

What is measured on a document that a scorer was fitted on is too good. The fit keeps, beside the packaged
scorer, one for each fold of its documents, fitted to the documents of all other folds: the bench pages the
documents of a fold by it, however few of them it has.
"""

from __future__ import annotations

import functools
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from storage.errors import WrongInput
from storage.schemas import Node
from tasks.evaluate.measures.evidence import EvidenceQuery, coverage
from tasks.evaluate.paging.outcomes import Outcome, Setting
from tasks.models.protocols import Encoder, PartEncoder, Tokenizer, Vectors
from tasks.models.token_states import encoded
from tasks.parse.classify.protocol import Classifier
from tasks.parse.document import parse_documents
from tasks.parse.edges.rules import infer_edges
from tasks.refine.frontmatter.frontmatter import parse_frontmatter
from tasks.refine.text.canonical import canonical, strip_boilerplate
from tasks.retrieve.baselines.skillpager import OPEN_SETTINGS, OpenSettings
from tasks.retrieve.page import DEFAULT_METHOD, METHODS, page
from tasks.retrieve.paging.scorer import Scorer, scorer_of
from tasks.retrieve.paging.types import PagedDocument, Reranker, encode_chunks, make_ready


@dataclass(slots=True)
class Remembering:
    """An encoder that encodes no text twice; `spared` adds up the seconds that its memory saved."""

    encoder: Encoder
    clock: Callable[[], float] = time.perf_counter
    spared: float = 0.0
    _known: dict[object, tuple[Vectors, float]] = field(default_factory=dict)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector a text, as the encoder does."""
        return self._remembered(tuple(texts), lambda: self.encoder.encode(texts))

    def encode_parts(self, text: str, parts: Sequence[tuple[int, int]]) -> Vectors:
        """Return the vectors of a text and of its parts, as the encoder does: in one pass, or one by one."""

        def made() -> Vectors:
            if isinstance(self.encoder, PartEncoder):
                return self.encoder.encode_parts(text, parts)
            return self.encoder.encode([text, *(text[start:end] for start, end in parts)])

        return self._remembered((text, tuple(parts)), made)

    def _remembered(self, key: object, made: Callable[[], Vectors]) -> Vectors:
        if key in self._known:
            vectors, seconds = self._known[key]
            self.spared += seconds
            return vectors
        began = self.clock()
        vectors = made()
        self._known[key] = vectors, self.clock() - began
        return vectors


def measure(
    bench: PagingBench, settings: Sequence[Setting], step: Callable[[], None] = lambda: None
) -> dict[Setting, list[Outcome]]:
    """Return what each query got by each setting; `step` is called after each page."""
    return {setting: bench.measured(*setting, step=step) for setting in settings}


@dataclass(slots=True)
class PagingBench:
    """Documents and queries to measure methods on; every query is encoded once.

    With `keep_contexts`, outcomes hold their contexts for a judge. A reranker goes with the default method
    alone. `scorers` are those of the documents that the packaged scorer was fitted on, by doc_id: the default
    method pages them by these, which never saw them. `typing` tells how the documents' nodes were typed.
    """

    documents: Mapping[str, PagedDocument]
    queries: Sequence[EvidenceQuery]
    encoder: Encoder
    tokenizer: Tokenizer
    clock: Callable[[], float] = time.perf_counter
    keep_contexts: bool = False
    reranker: Reranker | None = None
    skillpager: OpenSettings = OPEN_SETTINGS
    typing: Mapping[str, Any] = field(default_factory=lambda: {"llm": None})
    scorers: Mapping[str, Scorer] = field(init=False)

    def __post_init__(self) -> None:
        found = {doc_id: held_out_scorer(document.body) for doc_id, document in self.documents.items()}
        self.scorers = {doc_id: scorer for doc_id, scorer in found.items() if scorer is not None}

    def measured(
        self, method: str, budget: float | Sequence[float] | None, *, step: Callable[[], None] = lambda: None
    ) -> list[Outcome]:
        """Return what each query got by a method, under one budget or each query's own."""
        budgets = budget if isinstance(budget, Sequence) else [budget] * len(self.queries)
        found = []
        for query, limit in zip(self.queries, budgets, strict=True):
            found.append(self._one(query, method, limit))
            step()
        return found

    def _one(self, query: EvidenceQuery, method: str, budget: float | None) -> Outcome:
        document = self.documents[query.doc_id]
        spared = getattr(self.encoder, "spared", 0.0)
        began = self.clock()
        answer = page(
            document, query.query, encoder=self.encoder, tokenizer=self.tokenizer, method=method,
            budget=budget, reranker=self.reranker, scorer=self.scorers.get(query.doc_id),
            skillpager=self.skillpager,
        )  # fmt: skip
        seconds = self.clock() - began + getattr(self.encoder, "spared", 0.0) - spared
        return Outcome(
            coverage=coverage(answer.context, query.evidence) if query.evidence else None,
            tokens=answer.tokens, document_tokens=answer.document_tokens, nodes=len(answer.nodes),
            milliseconds=1000 * seconds, node_tokens=sum(node.n_tokens for node in document.nodes),
            query_id=query.query_id, doc_id=query.doc_id, breadth=query.breadth, size=len(document.nodes),
            context=answer.context if self.keep_contexts else "", chunks=answer.chunks,
            held_out=method == DEFAULT_METHOD and query.doc_id in self.scorers,
        )  # fmt: skip


def prepare_all(
    documents: Mapping[str, str], queries: Iterable[EvidenceQuery], *, encoder: Encoder, tokenizer: Tokenizer,
    classifier: Classifier, progress: Callable[[int, int], None] = lambda _done, _total: None,
    skillpager: OpenSettings = OPEN_SETTINGS, typed: Counter[str] | None = None,
) -> dict[str, PagedDocument]:  # fmt: skip
    """Return each document that a query asks for, parsed, encoded and ready for every method.

    All are typed at once; `typed` takes the counts of `Typing.counts`.
    """
    ready: dict[str, PagedDocument] = {}
    asked = {query.doc_id: body_of(documents[query.doc_id]) for query in queries}
    grouped = skillpager.grouped
    nodes, typing = parse_documents(asked, classifier=classifier, tokenizer=tokenizer, grouped=grouped)
    if typed is not None:
        typed.update(typing.counts())
    for doc_id, body in asked.items():
        ready[doc_id] = _encoded(doc_id, body, nodes[doc_id], encoder, tokenizer, skillpager)
        progress(len(ready), len(asked))
    return ready


def _encoded(
    doc_id: str, body: str, nodes: Sequence[Node], encoder: Encoder, tokenizer: Tokenizer,
    skillpager: OpenSettings,
) -> PagedDocument:  # fmt: skip
    vectors, states = encoded(encoder, [node.text for node in nodes])
    document = PagedDocument(doc_id, body, nodes, vectors, n_tokens=tokenizer.count([body])[0], states=states)
    return replace(
        document,
        chunks=encode_chunks(
            body,
            encoder=encoder,
            tokenizer=tokenizer,
            size=skillpager.chunk_tokens,
            overlap=skillpager.chunk_overlap,
        ),
        edges=infer_edges(nodes, vectors),
        ready=make_ready(body, nodes, vectors, states, tokenizer) if nodes else None,
    )


def body_of(content: str) -> str:
    """Return what stands below a document's front matter, as refine would keep it."""
    return strip_boilerplate(canonical(parse_frontmatter(content).body)[0], "body")[0]


def require_paging(queries: Sequence[EvidenceQuery], methods: Sequence[str]) -> None:
    """Raise `WrongInput` if there is no query, or a method is not known."""
    if not queries:
        raise WrongInput("there are no queries to evaluate; give a file with at least one")
    if unknown := [method for method in methods if method not in METHODS]:
        raise WrongInput(f"unknown paging method {unknown[0]!r}; choose one of {', '.join(METHODS)}")


FITTED = Path(__file__).parents[1] / "data" / "paging_fitted.json"
SEED = 42  # of the folds


@dataclass(frozen=True, slots=True)
class Fitted:
    """What the packaged scorer was fitted on."""

    folds: Mapping[str, int]  # of each body, by its digest
    scorers: Sequence[Scorer]  # of each fold, fitted to the bodies of all others
    packaged: str  # digest of the file with the scorer that was fitted to all of them


@functools.cache
def fitted(path: Path = FITTED) -> Fitted:
    """Return what the packaged scorer was fitted on; ValueError: it was with other features than today's."""
    found = json.loads(path.read_text("utf-8"))
    return Fitted(found["folds"], [scorer_of(scorer) for scorer in found["scorers"]], found["packaged"])


def digest(text: str) -> str:
    """Return the digest by which a body, or a file with a scorer, is named."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def held_out_scorer(body: str) -> Scorer | None:
    """Return a scorer that never saw a body; None: nor did the packaged one."""
    fold = fitted().folds.get(digest(body))
    return None if fold is None else fitted().scorers[fold]
