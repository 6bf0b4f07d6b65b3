"""The bench of paging: each query paged by each method and budget, on documents prepared once.

What is measured on a document that a scorer was fitted on is too good. The fit keeps, beside the packaged
scorer, one for each fold of its documents, fitted to the documents of all other folds: a bench pages the
documents of a fold by it, however few of them it has.
"""

from __future__ import annotations

import functools
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from storage.errors import WrongInput
from storage.schemas import Node
from tasks.evaluate.measures.evidence import EvidenceQuery, coverage
from tasks.evaluate.measures.runs import grouped, latency, long_table, summarise
from tasks.evaluate.measures.statistics import bootstrap_ratio_interval, clustered_interval
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

# A method, and a budget as `page` takes it; None: the method's own limit.
Setting = tuple[str, float | None]
# Nodes of a document up to which it belongs to a group; the paper's own line is at 100.
SIZES = (50, 100, 149, 299)
_BREADTHS = ("narrow", "medium", "broad")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one query got: measures of its context and of its document."""

    coverage: float | None  # share of its evidence in the context; None: the query has none
    tokens: int  # of the context
    document_tokens: int  # of the body
    nodes: int  # that the context holds whole
    milliseconds: float  # of the page, its query's encoding included
    node_tokens: int = 0  # of all nodes joined, the paper's whole document
    query_id: str = ""
    doc_id: str = ""
    breadth: str | None = None
    size: int = 0  # nodes of the document
    context: str = ""  # for a judge
    verdict: bool | None = None  # whether that judge finds that it suffices; None: the evidence decides
    chunks: int | None = None  # of the context, for a method that picks chunks
    held_out: bool = False  # whether a scorer that never saw the document took the packaged one's place

    @property
    def units(self) -> int:
        """The number of units in the context, of the kind that the method picks: nodes or chunks."""
        return self.nodes if self.chunks is None else self.chunks

    @property
    def sufficient(self) -> bool | None:
        """Whether the context suffices: by the judge who read it, else by its evidence, else unknown."""
        return by_evidence(self) if self.verdict is None else self.verdict


def by_evidence(outcome: Outcome) -> bool | None:
    """Return whether a context holds all evidence; None: there is none."""
    return None if outcome.coverage is None else outcome.coverage == 1.0


def rows_of(measured: Mapping[Setting, Sequence[Outcome]]) -> list[dict[str, Any]]:
    """Return a row for each method and budget, as `summarise_outcomes` has it."""
    return [{"method": m, "budget": b, **summarise_outcomes(found)} for (m, b), found in measured.items()]


def summarise_outcomes(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the measures of one method and budget with their intervals; there is at least one outcome.

    `sufficient` is the share of queries whose context covers all evidence, `coverage` the mean share of
    evidence covered (null where no query has any), `token_reduction` is `1 - tokens of contexts / tokens of
    bodies`, both summed over queries (`token_reduction_nodes` against all nodes joined, as the paper has
    it), and `units` the mean number of units in a context, of the kind that the method picks: nodes or chunks
    (`nodes`: of the nodes that it holds whole, in either case). `held_out` queries are paged by a scorer that
    never saw the document, as the packaged one was fitted on it. `ci95` holds percentile bootstrap intervals
    over queries, `ci95_clustered` that of `sufficient` over documents; `median_ms` and `p95_ms` are of a
    query, its encoding included. `by_breadth`, `by_size` and `by_budget` hold the first three for groups of
    queries, with the interval of `sufficient`.
    """
    found = _means(outcomes, "sufficient", "coverage", "units")
    bodies = [max(outcome.document_tokens, 1) for outcome in outcomes]
    left_out = [body - outcome.tokens for body, outcome in zip(bodies, outcomes, strict=True)]
    found["ci95"]["token_reduction"] = list(bootstrap_ratio_interval(left_out, bodies))
    known = [outcome for outcome in outcomes if outcome.sufficient is not None]
    sufficient = [float(bool(outcome.sufficient)) for outcome in known]
    by_breadth, by_size = sorted(outcomes, key=_breadth_order), sorted(outcomes, key=lambda o: o.size)
    return {
        "queries": len(outcomes),
        **found,
        "token_reduction": _reduction(outcomes, [outcome.document_tokens for outcome in outcomes]),
        "token_reduction_nodes": _reduction(outcomes, [outcome.node_tokens for outcome in outcomes]),
        "nodes": sum(outcome.nodes for outcome in outcomes) / len(outcomes),
        "held_out": sum(outcome.held_out for outcome in outcomes),
        "ci95_clustered": {
            "sufficient": list(clustered_interval(sufficient, [o.doc_id for o in known])) if known else None
        },
        **latency([outcome.milliseconds for outcome in outcomes]),
        "by_breadth": {n: _group(part) for n, part in grouped(by_breadth, lambda o: o.breadth).items()},
        "by_size": {n: _group(part) for n, part in grouped(by_size, lambda o: size_group(o.size)).items()},
        "by_budget": {n: _group(part) for n, part in grouped(by_size, budget_group).items()},
    }


def _means(outcomes: Sequence[Outcome], *measures: str) -> dict[str, Any]:
    """Return means and intervals as `summarise`, each of the queries where it is known; null if of none."""
    columns = {m: [v for o in outcomes if (v := getattr(o, m)) is not None] for m in measures}
    found = summarise({m: [float(v) for v in values] for m, values in columns.items() if values})
    return {**dict.fromkeys(measures), **found}


def _reduction(outcomes: Sequence[Outcome], whole: Sequence[int]) -> float:
    return 1 - sum(outcome.tokens for outcome in outcomes) / max(sum(whole), 1)


def _group(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "queries": len(outcomes),
        "token_reduction": _reduction(outcomes, [outcome.document_tokens for outcome in outcomes]),
        "coverage": _means(outcomes, "coverage")["coverage"],
        **_means(outcomes, "sufficient"),
    }


def _breadth_order(outcome: Outcome) -> tuple[int, str]:
    breadth = outcome.breadth or ""
    return (_BREADTHS.index(breadth) if breadth in _BREADTHS else len(_BREADTHS)), breadth


def size_group(nodes: int) -> str:
    """Return the name of the group of documents with so many nodes."""
    for low, high in zip((0, *SIZES), SIZES, strict=False):
        if nodes <= high:
            return f"{low + 1} to {high} nodes" if low else f"up to {high} nodes"
    return f"{SIZES[-1] + 1} nodes or more"


def budget_group(outcome: Outcome) -> str:
    """Return the name of the group of documents that get as many nodes by SkillPager's equation 4."""
    large = OPEN_SETTINGS.large
    return f"up to {large} nodes" if outcome.size <= large else f"over {large} nodes"


_MEASURED = (
    "coverage", "tokens", "document_tokens", "nodes", "node_tokens", "milliseconds", "size", "chunks",
)  # fmt: skip


def run_table(measured: Mapping[Setting, Sequence[Outcome]]) -> pl.DataFrame:
    """Return the long table of outcomes, `sufficient` by evidence and `verdict` by the judge, if one read it.

    Contexts are left out: they would be most of the file.
    """
    rows = [
        {"method": method, "budget": budget, **asdict(outcome), "sufficient": by_evidence(outcome)}
        for (method, budget), outcomes in measured.items()
        for outcome in outcomes
    ]
    schema = {
        "budget": pl.Float64, "breadth": pl.String, "chunks": pl.Int64, "coverage": pl.Float64,
        "sufficient": pl.Boolean, "verdict": pl.Boolean,
    }  # fmt: skip
    frame = pl.DataFrame(rows, schema_overrides=schema, infer_schema_length=None)
    return long_table("paging", frame.drop("context"), ["sufficient", "verdict", *_MEASURED])


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
