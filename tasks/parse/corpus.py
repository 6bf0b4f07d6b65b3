"""Parses what changed in the corpus, partition by partition, and writes its nodes, edges and vectors."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from storage.folder import cores
from storage.partitions import partition_of
from storage.root import Root
from storage.schemas import EDGES, NODE_TYPES, NODES, Edge, Node, to_frame
from storage.state import PARSED, documents_table, edges_table, nodes_table, parsed_table
from tasks.models.cached_encoder import KeptEncoder, export_here, load_kept_encoder
from tasks.models.encoder import card_of
from tasks.models.llm.ask import Slot
from tasks.models.llm.budget import Ledger
from tasks.models.protocols import Tokenizer, Vectors
from tasks.models.token_states import encoded
from tasks.parse import STAGE_VERSION
from tasks.parse.classify.local import LocalClassifier
from tasks.parse.classify.options import TypingOptions, typing_identity
from tasks.parse.classify.protocol import Classifier
from tasks.parse.document import parse_documents
from tasks.parse.edges.linker import EdgeOptions, Linked, Linker, edges_identity, open_asked
from tasks.parse.edges.rules import infer_edges

DOCUMENTS_PER_BATCH = 50
# Typed and encoded together: of 250 there are more nodes of one length than of 60, and to encode them takes
# four fifths of the time.
_DOCUMENTS_AT_ONCE = 250
_BATCHES_PER_CORE = 4  # about, where documents suffice, so that no core waits long for the others
# A write rewrites its partitions, so few documents a write take time that grows as their square; many must
# fit in memory with their vectors, and a kill loses the work since the last write.
_DOCUMENTS_PER_WRITE = 1000


@dataclass(frozen=True, slots=True)
class ParsePlan:
    """The partitions to parse, in batches of some 50 to 250 documents or more, and counts of documents."""

    batches: list[list[int]]
    todo: int
    gone: int
    unchanged: int


def rules_digest(classifier: str, tokenizer: str, encoder: str | None) -> str:
    """Return the digest of everything but the text on which a parse depends: `rules`, or `rules+vectors`.

    It is made of the classifier's name and what else types depend on, and of the revisions of the tokenizer
    and of the encoder. A document parsed with vectors counts as parsed where none are asked for, never the
    reverse.
    """
    rules = hashlib.sha256(repr((STAGE_VERSION, classifier, tokenizer)).encode()).hexdigest()[:12]
    return rules if encoder is None else f"{rules}+{hashlib.sha256(encoder.encode()).hexdigest()[:12]}"


def _state(root: Root, rules: str, partitions: list[int] | None = None) -> pl.DataFrame:
    """Return the rows of what is parsed, and `wanted`, the digest that each should have (null: it is gone).

    A document that is not parsed has the digest null.
    """
    wanted = documents_table(root).read(partitions, ["doc_id", "body_hash", "kind"])
    wanted = wanted.filter(pl.col("kind") == "skill").select(
        "doc_id", wanted=pl.concat_str(pl.lit(f"{rules}:"), "body_hash")
    )
    state = wanted.join(parsed_table(root).read(partitions), on="doc_id", how="full", coalesce=True)
    # A document parsed with vectors need not be parsed again without them.
    with_more = pl.col("digest").str.replace(r"\+[0-9a-f]+:", ":").eq(pl.col("wanted"))
    return state.with_columns(wanted=pl.when(with_more).then("digest").otherwise("wanted"))


def plan_parse(root: Root, rules: str) -> ParsePlan:
    """Return the partitions with documents to parse, or with nodes of documents that are gone."""
    state = _state(root, rules)
    gone = state.filter(pl.col("wanted").is_null())
    todo = state.filter(pl.col("wanted").is_not_null(), pl.col("wanted").ne_missing(pl.col("digest")))
    per_partition = Counter(partition_of(d) for d in [*todo["doc_id"], *gone["doc_id"]])
    shared = min(todo.height // (_BATCHES_PER_CORE * cores()), _DOCUMENTS_AT_ONCE)
    size = max(DOCUMENTS_PER_BATCH, shared)
    batches: list[list[int]] = []
    room = 0
    for partition, count in sorted(per_partition.items()):
        if room <= 0:
            batches.append([])
            room = size
        batches[-1].append(partition)
        room -= count
    return ParsePlan(batches, todo.height, gone.height, state.height - todo.height - gone.height)


def parse_partitions(
    root: Root, partitions: list[int], *, rules: str, classifier: Classifier, tokenizer: Tokenizer,
    encoder: KeptEncoder | None, linker: Linker | None = None, grouped: bool = False,
) -> dict[str, int]:  # fmt: skip
    """Parse the documents of partitions (0 to 63) that changed, at most about 1,000 of them a write.

    Documents that the classifier or the linker (None: the rules infer conditions and references) leaves
    unfinished are parsed again by the next run. The encoder makes the nodes' vectors for semantic edges, and
    keeps them for the index; None: no vectors. `grouped` is as `segment` has it.

    Returns:
        Counts of `documents`, `nodes` and `edges` written, of `vectors` made, `Typing.counts` and
        `Linked.counts`.
    """
    state = _state(root, rules, partitions)
    todo = state.filter(pl.col("wanted").ne_missing(pl.col("digest")))
    writer, made = _ParseWriter(root), encoder.made if encoder else 0
    writer.invalidate(todo)
    writer.delete(todo.filter(pl.col("wanted").is_null())["doc_id"].to_list())
    digests = dict(todo.filter(pl.col("wanted").is_not_null()).select("doc_id", "wanted").iter_rows())
    documents = documents_table(root).read(partitions, ["doc_id", "body"])
    documents = documents.filter(pl.col("doc_id").is_in(list(digests)))
    parts = max(1, round(documents.height / _DOCUMENTS_AT_ONCE))
    for chunk in documents.iter_slices(max(1, -(-documents.height // parts))):
        bodies = dict(chunk.iter_rows())
        parsed, typing = parse_documents(bodies, classifier=classifier, tokenizer=tokenizer, grouped=grouped)
        linked = Linked() if linker is None else linker.link(parsed)
        late = typing.unfinished | linked.unfinished
        texts = [node.text for nodes in parsed.values() for node in nodes]
        # With token states, which the encoder keeps too: the index takes both.
        vectors = None if encoder is None else encoded(encoder, texts)[0]
        edges = _edges(parsed, vectors, linked)
        done = {d: _unfinished(digests[d], parsed[d], edges[d]) if d in late else digests[d] for d in parsed}
        writer.add(done, parsed, edges)
        writer.counts.update(typing.counts() + linked.counts())
        if more := len(late - typing.unfinished):
            writer.counts["unfinished"] += more
    writer.write()
    writer.counts["vectors"] = encoder.made - made if encoder else 0
    return dict(writer.counts)


def _unfinished(digest: str, nodes: list[Node], edges: list[Edge]) -> str:
    """Return a digest that no plan takes for parsed."""
    # It changes with types and edges, so that the index sees them change.
    found = repr(([(n.node_type, n.classifier) for n in nodes], edges))
    return f"{digest}?{hashlib.sha256(found.encode()).hexdigest()[:12]}"


def _edges(parsed: dict[str, list[Node]], vectors: Vectors | None, linked: Linked) -> dict[str, list[Edge]]:
    found, start = {}, 0
    for doc_id, nodes in parsed.items():
        own = None if vectors is None else vectors[start : start + len(nodes)]
        found[doc_id] = infer_edges(nodes, own, pairs=linked.pairs.get(doc_id))
        start += len(nodes)
    return found


class _ParseWriter:
    """Collects nodes and edges, and writes them and, last, the digests that mark their documents."""

    def __init__(self, root: Root) -> None:
        self.nodes, self.edges, self.parsed = nodes_table(root), edges_table(root), parsed_table(root)
        self.counts: Counter[str] = Counter(documents=0, nodes=0, edges=0, vectors=0)
        self._clear()

    def _clear(self) -> None:
        self._done: list[tuple[str, str, int, int]] = []
        self._nodes: list[pl.DataFrame] = []
        self._edges: list[pl.DataFrame] = []

    def invalidate(self, todo: pl.DataFrame) -> None:
        """Mark documents, of which `_state` told, as not parsed until they are written."""
        # Otherwise a kill could leave new nodes behind an old digest, to which the document may return, or
        # behind none, so that no plan would see them when the document goes.
        rows = todo.with_columns(pl.col("n_nodes", "n_edges").fill_null(0), digest=pl.lit(""))
        self.parsed.replace(rows["doc_id"].to_list(), rows.select(PARSED.names()))

    def delete(self, doc_ids: list[str]) -> None:
        """Remove everything of documents that are gone."""
        for table in (self.nodes, self.edges, self.parsed):
            table.replace(doc_ids, pl.DataFrame(schema=table.schema))

    def add(
        self, digests: dict[str, str], parsed: dict[str, list[Node]], edges: dict[str, list[Edge]],
    ) -> None:  # fmt: skip
        """Take the rows of a chunk of documents; `digests` by doc_id will mark them as parsed."""
        nodes = [n for rows in parsed.values() for n in rows]
        all_edges = [e for rows in edges.values() for e in rows]
        self._nodes.append(to_frame(nodes, NODES))
        self._edges.append(to_frame(all_edges, EDGES))
        self._done += [(d, digests[d], len(parsed[d]), len(edges[d])) for d in parsed]
        self.counts.update(documents=len(parsed), nodes=len(nodes), edges=len(all_edges))
        if len(self._done) >= _DOCUMENTS_PER_WRITE:
            self.write()

    def write(self) -> None:
        """Replace the rows of the documents taken since the last write."""
        if not self._done:
            return
        ids = [doc_id for doc_id, *_ in self._done]
        self.nodes.replace(ids, pl.concat(self._nodes))
        self.edges.replace(ids, pl.concat(self._edges))
        self.parsed.replace(ids, pl.DataFrame(self._done, schema=PARSED, orient="row"))
        self._clear()


# SkillPager, table 3: shares of 22,774 nodes of 395 skills, in percent.
SKILLPAGER = {
    "concept": 49.9, "param": 22.7, "step": 11.5, "example": 11.1, "precondition": 2.5, "error_handling": 2.2,
}  # fmt: skip


def node_type_mix(root: Root) -> list[dict[str, Any]]:
    """Return a row a node type: its number of nodes, their share in percent, and SkillPager's share."""
    types = nodes_table(root).read(columns=["node_type"])["node_type"]
    counts = dict(types.value_counts().iter_rows())
    total = max(sum(counts.values()), 1)
    return [
        {
            "node_type": t,
            "nodes": counts.get(t, 0),
            "percent": round(100 * counts.get(t, 0) / total, 1),
            "skillpager_percent": SKILLPAGER[t],
        }
        for t in sorted(NODE_TYPES, key=lambda t: -SKILLPAGER[t])
    ]


@dataclass(frozen=True, slots=True)
class ParseOptions:
    """How a batch is parsed."""

    encoder: str  # the folder of the encoder's export
    with_vectors: bool
    llm: TypingOptions | None = None  # types nodes; None: the local classifier does
    edges: EdgeOptions | None = None  # infers edges; None: rules do
    grouped: bool = False  # as `segment` has it

    def rules(self) -> str:
        """Return the digest of all but the texts on which a parse depends, as `rules_digest` does."""
        revision = card_of(self.encoder)["revision"]
        identity = typing_identity(LocalClassifier.name, self.llm)
        identity += edges_identity(self.edges) + (" grouped" if self.grouped else "")
        return rules_digest(identity, revision, revision if self.with_vectors else None)


def parse_here(
    root: Root, partitions: list[int], options: ParseOptions, ledger: Ledger, slot: Slot
) -> dict[str, Any]:
    """Segment, type, encode and link the documents of partitions; return counts and the LLM account.

    `slot` is taken for each question to a language model, and `ledger` pays for it. Raises as
    `parse_partitions`.
    """
    options = replace(options, encoder=export_here(root.uri, options.encoder))
    model = load_kept_encoder(root.uri, options.encoder)
    with open_asked(root, LocalClassifier(), options.llm, options.edges, ledger, slot) as (
        classifier,
        linker,
    ):
        done = parse_partitions(
            root, partitions, rules=options.rules(), classifier=classifier, tokenizer=model,
            encoder=model if options.with_vectors else None, linker=linker,
            grouped=options.grouped,
        )  # fmt: skip
    return {"done": done, "account": ledger.carried()}
