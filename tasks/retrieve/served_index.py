"""The served index: the only way by which queries read what is served."""

from __future__ import annotations

import functools
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from storage.errors import (
    EncodingTooLong,
    ModelMismatch,
    SkilleryError,
    StorageError,
    UnknownDocument,
    VersionGone,
    WrongInput,
)
from storage.lance.served import Licences, Served, require_licences, require_served, require_shown
from storage.lance.tables import INDEXED, TableAt, is_damage
from storage.root import Root
from storage.state import read_sources, seen_table
from tasks.crawl.source.lookup import followed, meant, suggestion, was_brought
from tasks.models.encoder import OnnxEncoder
from tasks.models.protocols import Encoder
from tasks.retrieve.baselines.skillpager import OPEN_SETTINGS, OpenSettings
from tasks.retrieve.index.stored_nodes import indexed_nodes, stored_edges
from tasks.retrieve.open_version import OpenVersion
from tasks.retrieve.page import DEFAULT_METHOD, page
from tasks.retrieve.paging.facets import ready_for
from tasks.retrieve.paging.terms import WordVectors, shares_word
from tasks.retrieve.paging.types import Page, PagedDocument, Reranker
from tasks.retrieve.routing.coarse import EXACT_ROWS
from tasks.retrieve.routing.fit import DECIDING
from tasks.retrieve.routing.reranker import DEFAULT_RERANK
from tasks.retrieve.routing.router import Ranked
from tasks.retrieve.routing.search import PROVENANCE, Filters, SkillRanker, fitting, provenance

P = ParamSpec("P")
R = TypeVar("R")


def asked_again(ask: Callable[P, R]) -> Callable[P, R]:
    """Have a question put once more, to what is served by then, where its version was removed meanwhile."""

    @functools.wraps(ask)
    def asked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return ask(*args, **kwargs)
        except VersionGone:
            return ask(*args, **kwargs)

    return asked


class ServedIndex:
    """Searches and pages what a root serves; a publication between two answers shows in the second.

    Threads may share one, since each answer is of one version. Every question raises `NotPublished` if
    nothing is served, and `StorageError` if a table or the file of licences' classes is damaged or missing;
    one about a document raises `UnknownDocument` if neither a served document nor an alias of one has the id,
    and `Withheld` if the document's licence is of another class than `allow`.

    Args:
        root: The root whose `state/served.json` is followed.
        encoder: The encoder's name in the settings; another one in the index is refused.
        threads: Threads of one query encoding; None: one a core.
        page_seconds: The longest that a document is encoded for a page, else words decide; None: no limit.
        pinned: The version that answers, whatever is published meanwhile; None follows the pointer.
        rerank: How far a search reads the first skills beside the query, of `RERANKS`.
        exact_rows: Of more skills a coarse scan tells which ones are compared by whole vectors.
    """

    def __init__(
        self, root: Root, *, encoder: str, threads: int | None = 1,
        page_seconds: float | None = None, pinned: Served | None = None, rerank: str = DEFAULT_RERANK,
        skillpager: OpenSettings = OPEN_SETTINGS, exact_rows: int = EXACT_ROWS,
    ) -> None:  # fmt: skip
        self._root, self._name, self._threads = root, encoder, threads
        self._pinned, self._page_seconds = pinned, page_seconds
        self._rerank, self._skillpager, self._opening = rerank, skillpager, threading.Lock()
        self._exact_rows = exact_rows
        self._last: OpenVersion | None = None

    @asked_again
    def search(
        self, query: str, k: int = 10, *, filters: Filters | None = None, explain: bool = False,
        min_fit: float | None = None, ranker: SkillRanker | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Return the `k` skills that fit a query best, as the command prints them.

        Skills with a denied licence or without what `filters` ask for are not ranked. With `explain` each
        result tells the parts of its score and fit. `nothing_fits` is true if the fit of none of the three
        best reaches `least_fit`: `min_fit`, in [0, 1], or the packaged model's; null if no fit is known.
        Results below a given `min_fit` are left out, unless nothing fits. `ranker` replaces the default; a
        score it does not tell is null. `tuned` is there if the root's own requests taught the default. Raises
        `WrongInput` if the query is blank, `k` is not positive, nothing has what a filter asks for, or
        `min_fit` is out of its range, or given where no fit is known.
        """
        started = time.perf_counter()
        require_text("query", query)
        if k < 1:
            raise WrongInput(f"k is {k}: ask for at least 1")
        with self.version() as now:
            ranked = self._ranked(now, query, max(k, DECIDING), filters or Filters(), ranker)
        model = now.fit if all(found.fit is not None for _, found in ranked) else None
        ranked, nothing = fitting(ranked, model, min_fit)
        failed = self.failed_sources()
        results = [
            {
                "rank": rank,
                **{c: row[c] for c in ("doc_id", "name", "description")},
                "score": None if math.isnan(found.score) else found.score,
                "fit": found.fit,
                **({"parts": dict(found.parts), "evidence": dict(found.evidence)} if explain else {}),
                "folded": list(found.folded),
                **provenance(row, failed),
                "index_version": now.served.version,
            }
            for rank, (row, found) in enumerate(ranked[:k], start=1)
        ]
        least = model.least if model and min_fit is None else min_fit
        told = {"query": query, "results": results, "nothing_fits": nothing, "least_fit": least}
        tuned = {"tuned": now.tuned.said()} if model and now.tuned else {}
        return {**told, **tuned, "index_version": now.served.version, "took_ms": _since(started)}

    @asked_again
    def page(
        self, doc_id: str, query: str, *, budget: float | None, method: str, reranker: Reranker | None = None
    ) -> dict[str, Any]:
        """Return the parts of a document that a query needs, as the command prints them.

        With a reranker, `reranked` tells whether it answered. `by_words` is there, and true, if the document
        was read by its words alone, since encoding takes longer than `page_seconds`; `unmatched`, if it has
        no word of the query. Raises `WrongInput` if query, budget or method cannot be used.
        """
        started = time.perf_counter()
        require_text("query", query)
        require_text("id", doc_id)
        with self.version() as now:
            document, row, alias_of = self._found(now, doc_id)

        def paged(document: PagedDocument) -> Page:
            encoder: Encoder = WordVectors() if document.by_words else now.encoder
            if method == DEFAULT_METHOD:
                document = self._readied(now, document, encoder)
            else:
                document = self._joined(document, row)
            return page(
                document, query, encoder=encoder, tokenizer=now.encoder, method=method, budget=budget,
                reranker=reranker, skillpager=self._skillpager,
            )  # fmt: skip

        try:
            found = paged(document)
        except EncodingTooLong:
            document = replace(document, by_words=True)
            found = paged(document)
        named = {"doc_id": doc_id, "alias_of": alias_of} if alias_of else {"doc_id": row["doc_id"]}
        whose = provenance(row, self.failed_sources()) | {"index_version": now.served.version}
        return {
            **named, "query": query, **_printed(found, document.doc_id, row["doc_id"]),
            **({"by_words": True} if document.by_words else {}),
            **({} if shares_word(document.body, query) else {"unmatched": True}),
            "took_ms": _since(started), **whose,
        }  # fmt: skip

    @asked_again
    def document(self, doc_id: str) -> PagedDocument:
        """Return a served document with its nodes and their vectors, computed if none are indexed."""
        with self.version() as now:
            document, row, _ = self._found(now, doc_id)
        if document.vectors is not None:
            return self._joined(document, row)
        return replace(document, vectors=now.encoder.encode([node.text for node in document.nodes]))

    def failed_sources(self) -> set[str]:
        """Return the sources whose last reading failed."""
        # A run that could read no source may have published nothing, so the table's rows do not say it.
        return {spec for spec, record in read_sources(self._root).items() if record["state"] == "failed"}

    @asked_again
    def find(self, doc_id: str) -> str:
        """Return the id of the served document that an id or alias, in any letter case, leads to."""
        with self.version() as now:
            row, alias_of = self._shown(now, doc_id)
            return str(alias_of or row["doc_id"])

    @contextmanager
    def version(self) -> Iterator[OpenVersion]:
        """Open what is served; what is read of it in the body is of one version.

        Raises `VersionGone` if the version was removed meanwhile, by `forget`: `asked_again` puts the
        question anew; `StorageError` if a file of a table is gone or damaged; `ModelMismatch` if another
        encoder made the index; `NotPublished` if nothing is served.
        """
        served = self._pinned or require_served(self._root)
        try:
            with self._opening:  # threads that ask at once open a new version once
                now = self._opened(served)
            yield now
        except Exception as error:
            known = isinstance(error, SkilleryError)
            if not isinstance(error, StorageError) and (known or not is_damage(error)):
                raise
            if (self._pinned or require_served(self._root)) != served:
                raise VersionGone(f"{served.version} was removed while it was read: ask again") from error
            if known:
                raise
            mend, what = f"skillery doctor --root {self._root.uri}", self._damage(served, error)
            raise StorageError(f"{served.version} cannot be read: `{mend}` repairs it ({what})") from error

    def _damage(self, served: Served, error: Exception) -> str:
        """Return which table is damaged, by its indices, else the library's words, which name none."""
        for name, version in served.tables().items():
            try:
                for column in INDEXED[name]:
                    TableAt(self._root, name, version).first([column], **{column: [""]})
            except Exception as found:
                if not (isinstance(found, StorageError) or is_damage(found)):
                    raise
                return f"table {name} is damaged"
        return str(error).splitlines()[0]

    def _opened(self, served: Served) -> OpenVersion:
        last = self._last
        if last is not None and last.served == served:
            return last
        if served.model["name"] != self._name:
            raise ModelMismatch(
                f"the index was made with encoder {served.model['name']}, the settings name {self._name}: "
                "set SKILLERY_ENCODER to the former, or run `skillery run` to index anew"
            )
        encoder = None if last is None else last.encoder
        if encoder is None or encoder.card["revision"] != served.model["revision"]:
            encoder = OnnxEncoder(self._local(served), threads=self._threads, seconds=self._page_seconds)
            encoder.load_ahead()
        if encoder.card["revision"] != served.model["revision"]:
            raise ModelMismatch(
                f"{self._local(served)} holds revision {encoder.card['revision'][:12]} of {self._name}, "
                f"the index was made with {served.model['revision'][:12]}: run `skillery run` to index anew"
            )
        self._last = OpenVersion(self._root, served, encoder, self._rerank, self._threads, self._exact_rows)
        return self._last

    def _local(self, served: Served) -> Path:
        return self._root.fetch(served.model["path"])

    def locate(self, now: OpenVersion, doc_id: str) -> tuple[dict[str, Any], str | None]:
        """Return a version's row for an id and, if the id is an alias, the document that it leads to.

        The id of a copy folded on a served document when that was published has the copy's own text. The end
        of an id, or a name, will do if one document alone has it; else `UnknownDocument` is raised.
        """
        copy: dict[str, Any] | None = None
        for step, wanted in enumerate(followed(self._root, doc_id)):
            if (found := now.row(wanted)) is not None:
                row = found if copy is None else self._as_served(now, copy, found)
                return row, found["doc_id"] if step else None
            from tasks.retrieve.revisions.edition import copy_of  # noqa: PLC0415 (most ids are served)

            copy = copy or copy_of(self._root, wanted, now.served)
        names = now.names()
        likely = [] if was_brought(self._root, doc_id) else meant(doc_id, names)
        if len(likely) == 1:
            return self.locate(now, likely[0])
        msg = f"no served document has the id {doc_id!r}{suggestion(doc_id, likely, names)}"
        raise UnknownDocument(f"{msg}: `skillery search` prints ids")

    def _as_served(self, now: OpenVersion, copy: dict[str, Any], onto: dict[str, Any]) -> dict[str, Any]:
        """Return a folded copy as a served row; its nodes are those of `onto` if that has its text."""
        seen = seen_table(self._root).of_document(copy["doc_id"]).filter(source=copy["source"])
        nodes_of = onto if now.body(onto) == copy["body"] else {}
        return {
            **{name: copy[name] for name in PROVENANCE if name != "stale"}, "doc_id": copy["doc_id"],
            "risks": list(dict.fromkeys(risk["code"] for risk in copy["risks"] or ())),
            "stale": seen["stale_since"].is_not_null().any(), "text": copy["body"], "body_start": 0,
            "n_tokens": now.encoder.count([copy["body"]])[0], "nodes_of": nodes_of,
            "nodes_digest": nodes_of.get("nodes_digest"),
        }  # fmt: skip

    def _ranked(
        self, now: OpenVersion, query: str, k: int, filters: Filters, ranker: SkillRanker | None
    ) -> list[tuple[dict[str, Any], Ranked]]:
        licences = require_licences(self._root)
        found = now.searcher().search(query, k=k, filters=filters, licences=licences, ranker=ranker)
        return [(classed(row, licences), ranked) for row, ranked in now.led_by_first(found)]

    def _shown(self, now: OpenVersion, doc_id: str) -> tuple[dict[str, Any], str | None]:
        """Return the result of `locate` for a document whose text may be shown."""
        row, alias_of = self.locate(now, doc_id)
        row = classed(row, require_licences(self._root))
        require_shown(row["doc_id"], row["licence"], row["licence_class"])
        return row, alias_of

    def _found(self, now: OpenVersion, doc_id: str) -> tuple[PagedDocument, dict[str, Any], str | None]:
        row, alias_of = self._shown(now, doc_id)
        return self.paged_document(now, row), row, alias_of

    def _readied(self, now: OpenVersion, document: PagedDocument, encoder: Encoder) -> PagedDocument:
        """Return a document ready for the default method, kept for the next request."""
        if document.nodes and document.ready is None:
            ready = ready_for(now.encoded(document), encoder=encoder, tokenizer=now.encoder)
            document = replace(document, ready=ready)
            now.keep(document)
        return document

    def _joined(self, document: PagedDocument, row: dict[str, Any]) -> PagedDocument:
        """Return a document whose nodes are served with its stored edges; the default method needs none."""
        if document.vectors is None:
            return document
        return replace(document, edges=stored_edges(self._root, document.doc_id, row["nodes_digest"]))

    def paged_document(self, now: OpenVersion, row: dict[str, Any]) -> PagedDocument:
        """Return the document of a row that `locate` found, with vectors only where they are indexed."""
        if (kept := now.kept(row["doc_id"])) is not None:
            return kept
        doc_id, body = row["doc_id"], now.body(row)
        if row["kind"] == "mcp-server":  # described, not instructed: its page is its description
            return PagedDocument(doc_id, body, [], n_tokens=row["n_tokens"])
        if "doc_id" in row.get("nodes_of", ()):
            return self.paged_document(now, row["nodes_of"])
        if now.nodes is None or "nodes_of" in row:
            nodes = now.parsed(doc_id, body, grouped=self._skillpager.grouped)
            return PagedDocument(doc_id, body, nodes, n_tokens=row["n_tokens"])
        nodes, vectors, states = indexed_nodes(now.nodes, doc_id)
        return PagedDocument(doc_id, body, nodes, vectors, row["n_tokens"], states=states)


def classed(row: dict[str, Any], licences: Licences) -> dict[str, Any]:
    """Return a row with the class of its licence."""
    return {**row, "licence_class": licences.class_of(row["licence"])}


def _printed(found: Page, paged: str, doc_id: str) -> dict[str, Any]:
    # A copy's text is paged as its survivor's; its nodes have ids of its own.
    own = {n.node_id: doc_id + n.node_id.removeprefix(paged) for n, _ in (*found.nodes, *found.left_out)}
    nodes = [
        {
            "node_id": own[n.node_id], "node_type": n.node_type, "score": float(score),
            "text": found.printed.get(n.node_id, n.text), "whole": n.node_id not in found.printed,
            "why": dict(found.why.get(n.node_id, {})),
        }
        for n, score in found.nodes
    ]  # fmt: skip
    told = [(own[n.node_id], n.node_type, score, n.n_tokens) for n, score in found.left_out]
    left_out = [dict(zip(("node_id", "node_type", "score", "tokens"), row, strict=True)) for row in told]
    reranked = {} if found.reranked is None else {"reranked": found.reranked}
    return {
        "context": found.context, "nodes": nodes, "left_out": left_out, "tokens": found.tokens,
        "document_tokens": found.document_tokens, "method": found.method, "budget": found.budget,
        "over_budget": found.over_budget, **reranked,
    }  # fmt: skip


def require_text(name: str, text: str) -> None:
    """Raise `WrongInput`, naming what it is, if a text is blank or holds half a surrogate pair."""
    if not text.strip():
        raise WrongInput(f"the {name} is blank")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise WrongInput(f"the {name} is no valid Unicode text ({error})") from error


def _since(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)
