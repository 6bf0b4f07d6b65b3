"""A document made ready for the method `facets`, and what its pieces cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storage.schemas import Node
from tasks.models.protocols import Tokenizer, Vectors
from tasks.retrieve.paging_choice import Costs
from tasks.retrieve.paging_compact import compact
from tasks.retrieve.paging_outline import Prepared, prepare_pages
from tasks.retrieve.paging_units import frame_of


@dataclass(frozen=True, slots=True)
class Ready:
    """A document's units and sections, the nodes' vectors, and the tokens of what may be printed."""

    prepared: Prepared
    vectors: Vectors
    costs: Costs


def make_ready(body: str, nodes: Sequence[Node], vectors: Vectors, tokenizer: Tokenizer) -> Ready:
    """Take a document with at least one node apart for paging; every request can use the result."""
    prepared = prepare_pages(body, nodes, vectors)
    units = prepared.units
    spans = zip(units.start.tolist(), units.end.tolist(), units.owner.tolist(), strict=True)
    # A table's parts have no header of their own, and none of its marks.
    texts = [compact(body[a:b], _form(nodes[o], whole=_whole(prepared, o))) for a, b, o in spans]
    titles = [body[h.start : h.end] for h in prepared.headings]
    split = [n for n in range(len(nodes)) if not _whole(prepared, n)]
    frames = [compact("\n".join(frame_of(body, nodes[n])), nodes[n].block) for n in split]
    counted = tokenizer.count([*texts, *titles, *frames])
    around = dict.fromkeys(range(len(nodes)), 0)
    around |= {n: 1 + counted[len(texts) + len(titles) + i] for i, n in enumerate(split)}
    costs = Costs(
        [max(1, n) for n in counted[: len(texts)]],
        counted[len(texts) : len(texts) + len(titles)],
        list(around.values()),
    )
    return Ready(prepared, vectors, costs)


def _whole(prepared: Prepared, node: int) -> bool:
    return int(prepared.units.first[node + 1] - prepared.units.first[node]) == 1


def _form(node: Node, *, whole: bool) -> str:
    return "list_item" if node.block == "table" and not whole else node.block
