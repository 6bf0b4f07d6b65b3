"""A document prepared for the method `facets`, with the token costs of its pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np

from storage.schemas import Node
from tasks.models.protocols import Tokenizer, Vectors
from tasks.retrieve.paging.context import GAP_MARK
from tasks.retrieve.paging.late_interaction import TokenStates, states_of
from tasks.retrieve.paging.outline import Prepared, prepare_pages
from tasks.retrieve.paging.render import Pieces, pieces_of
from tasks.retrieve.paging.selection import Costs


@dataclass(frozen=True, slots=True)
class Ready:
    """A prepared document: units and sections, the nodes' vectors, printable pieces and their tokens.

    `additive` tells whether a text's tokens are the sum of those of its pieces, as for tokenizers that split
    words at white space; then a printed text need not be counted again.
    """

    prepared: Prepared
    vectors: Vectors
    states: TokenStates
    pieces: Pieces
    costs: Costs
    additive: bool


def make_ready(
    body: str, nodes: Sequence[Node], vectors: Vectors, states: Sequence[bytes], tokenizer: Tokenizer
) -> Ready:
    """Prepare a document with at least one node for paging; every request can use the result.

    Raises:
        ValueError: A node's states are no whole number of them.
    """
    prepared = prepare_pages(body, nodes, vectors)
    pieces = pieces_of(body, nodes, prepared)
    frames = ["\n".join(frame) for frame in pieces.frames]
    parts = [pieces.texts, pieces.titles, frames, [GAP_MARK]]
    every = [text for part in parts for text in part]
    # All texts as one, joined by whatever may stand between them.
    whole = "".join(map("".join, zip(every, cycle((" ", "\n", "\n\n")), strict=False)))
    *counted, together = tokenizer.count([*every, whole])
    units, headings, around, mark = np.split(np.array(counted), np.cumsum([len(part) for part in parts])[:-1])
    costs = Costs(units, headings, around, int(mark[0]))
    of_units = states_of(nodes, prepared.units, vectors, states, tokenizer)
    return Ready(prepared, vectors, of_units, pieces, costs, together == sum(counted))


def tokens_of(ready: Ready, chosen: Sequence[int], marks: int) -> int:
    """Return the tokens of units printed with their headings and frames, and of `marks` gap marks."""
    prepared, costs = ready.prepared, ready.costs
    units = np.array(chosen, dtype=np.int64)
    headings = np.unique(prepared.above[:, prepared.section[units]])
    found = costs.units[units].sum() + costs.frames[np.unique(prepared.units.owner[units])].sum()
    return int(found + costs.headings[headings[headings < len(costs.headings)]].sum()) + marks * costs.mark
