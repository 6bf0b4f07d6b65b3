"""Parses documents into nodes: segmented, typed in context, their tokens counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storage.schemas import Node
from tasks.models.protocols import Tokenizer
from tasks.parse.classify.llm import TypedBy, Typing, typed_by
from tasks.parse.classify.protocol import Classifier, FragmentInContext
from tasks.parse.segment.segment import Fragment, segment


def parse_document(
    doc_id: str, body: str, *, classifier: Classifier, tokenizer: Tokenizer, grouped: bool = False
) -> list[Node]:
    """Return the nodes of one document in order; arguments as `parse_documents`."""
    one = {doc_id: body}
    return parse_documents(one, classifier=classifier, tokenizer=tokenizer, grouped=grouped)[0][doc_id]


def parse_documents(
    bodies: Mapping[str, str], *, classifier: Classifier, tokenizer: Tokenizer, grouped: bool = False
) -> tuple[dict[str, list[Node]], Typing]:
    """Return the nodes of documents, canonical text by doc_id, typed all at once, and how they were typed.

    Each node's `text` is `body[start:end]`, its `node_id` `doc_id#ordinal`; `grouped` is as `segment` has it.
    """
    fragments = {doc_id: segment(body, grouped=grouped).fragments for doc_id, body in bodies.items()}
    owners = [doc_id for doc_id, own in fragments.items() for _ in own]
    given = [f for doc_id, own in fragments.items() for f in in_context(doc_id, own)]
    typing = typed_by(classifier, given, owners)
    counts = tokenizer.count([f.text for f in given])
    rows = zip(typing.rows, counts, strict=True)
    nodes = {doc_id: [_node(doc_id, f, *next(rows)) for f in own] for doc_id, own in fragments.items()}
    return nodes, typing


def in_context(doc_id: str, fragments: Sequence[Fragment]) -> list[FragmentInContext]:
    """Return a document's fragments, in order, each with the texts before and after it."""
    around = [None, *(f.text for f in fragments), None]
    return [
        FragmentInContext(f"{doc_id}#{f.ordinal}", f.heading_path, f.block, before, f.text, after)
        for f, before, after in zip(fragments, around, around[2:], strict=False)
    ]


def _node(doc_id: str, fragment: Fragment, row: TypedBy, n_tokens: int) -> Node:
    return Node(
        node_id=f"{doc_id}#{fragment.ordinal}",
        doc_id=doc_id,
        ordinal=fragment.ordinal,
        node_type=row.typed.node_type,
        heading_path=fragment.heading_path,
        lead_in=fragment.lead_in,
        block=fragment.block,
        start=fragment.start,
        end=fragment.end,
        text=fragment.text,
        n_tokens=n_tokens,
        classifier=row.classifier,
        confidence=row.typed.confidence,
    )
