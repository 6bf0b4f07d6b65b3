"""From a body to its typed nodes."""

from __future__ import annotations

from storage.schemas import Node
from tasks.models.protocols import Tokenizer
from tasks.parse.classify import Classifier, FragmentInContext
from tasks.parse.segment import segment


def parse_document(doc_id: str, body: str, *, classifier: Classifier, tokenizer: Tokenizer) -> list[Node]:
    """Return the nodes of a document in order: segmented, typed in context, tokens counted.

    Args:
        doc_id: Begins each `node_id`, which is `doc_id#ordinal`.
        body: Canonical text; each node's `text` is `body[start:end]`.
        classifier: Types the fragments, each with the fragments before and after it.
        tokenizer: Counts `n_tokens`.
    """
    fragments = segment(body).fragments
    texts = [fragment.text for fragment in fragments]
    around = [None, *texts, None]
    in_context = [
        FragmentInContext(
            fragment_id=f"{doc_id}#{fragment.ordinal}",
            heading_path=fragment.heading_path,
            block=fragment.block,
            previous=around[position],
            text=fragment.text,
            next=around[position + 2],
        )
        for position, fragment in enumerate(fragments)
    ]
    types = classifier.classify(in_context)
    counts = tokenizer.count(texts)
    return [
        Node(
            node_id=f"{doc_id}#{fragment.ordinal}",
            doc_id=doc_id,
            ordinal=fragment.ordinal,
            node_type=typed.node_type,
            heading_path=fragment.heading_path,
            lead_in=fragment.lead_in,
            block=fragment.block,
            start=fragment.start,
            end=fragment.end,
            text=fragment.text,
            n_tokens=n_tokens,
            classifier=classifier.name,
            confidence=typed.confidence,
        )
        for fragment, typed, n_tokens in zip(fragments, types, counts, strict=True)
    ]
