"""Late interaction: the words of a request against the token embeddings of a document, unit by unit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from storage.schemas import Node
from tasks.models.protocols import Tokenizer, Vectors
from tasks.models.token_states import GROUP, project, unpack_all
from tasks.retrieve.paging.prepared import Prepared, Units
from tasks.retrieve.paging.similarity import standard, standard_sections
from tasks.retrieve.paging.terms import Floats, Integers

STATES = (
    "state_mean", "state_mean_standard", "state_best", "state_mean_share", "state_three",
    "state_section", "state_section_mean_share", "state_both_mean_share",
)  # fmt: skip
_BEST = 3
_SECTION = np.float32(0.7)  # what a section counts beside a unit
_LEAST = np.float32(1e-30)


@dataclass(frozen=True, slots=True)
class TokenStates:
    """The token embeddings of a document's units.

    `rows`, shape `(states, d)`, are unit vectors in the order of the units, at least one per unit; `first`,
    shape `(units,)`, is the first row of each unit. A vector must be projected before it is compared with
    them if they are `projected`.
    """

    rows: Vectors
    first: Integers
    projected: bool


def states_of(
    nodes: Sequence[Node], units: Units, vectors: Vectors, packed: Sequence[bytes], tokenizer: Tokenizer
) -> TokenStates:
    """Return the token embeddings of units; a node without any has its vector as the only one.

    `packed` are the nodes' token embeddings, packed by `tasks.models.token_states`; `tokenizer` is that of
    the encoder that made them and the vectors. There is at least one node. Raises `ValueError` if the length
    of some bytes is not a multiple of a state's.
    """
    projected = any(packed)
    own = project(vectors) if projected else vectors
    parts: list[Vectors] = []
    for ordinal, (node, held) in enumerate(zip(nodes, unpack_all(packed), strict=True)):
        states = held if len(held) else own[ordinal][None]
        cuts = range(int(units.first[ordinal]), int(units.first[ordinal + 1]))
        # A node that is not cut needs no offsets, which are slow to compute.
        parts += [states] if len(cuts) == 1 else _cut(states, node, units, cuts, tokenizer)
    first = np.cumsum([0, *map(len, parts[:-1])])
    # By column, so that the product with the words is fastest and comes out by word.
    return TokenStates(np.asfortranarray(np.concatenate(parts)), first, projected)


def _cut(states: Vectors, node: Node, units: Units, cuts: range, tokenizer: Tokenizer) -> Iterator[Vectors]:
    """Yield the states of each part of a node; a state on the border of two parts belongs to both."""
    begins = np.array([start for start, _ in tokenizer.offsets(node.text)], dtype=np.int64) + node.start
    last = len(states) - 1
    for part in cuts:
        start, end = np.searchsorted(begins, [units.start[part], units.end[part]])
        first = min(int(start) // GROUP, last)
        yield states[first : max(-(-int(end) // GROUP), first + 1)]


def state_rows(states: TokenStates, words: Vectors, document: Prepared) -> Floats:
    """Return `STATES`: the largest cosine of each word of the request to a unit's states, over the words.

    Khattab and Zaharia, "ColBERT", SIGIR 2020, equation 3; also what each word says of a unit in comparison
    with other units, and of its section. `words` are unit vectors of the request's words in context, shape
    `(words, d)`, at least one.
    """
    asked = project(words) if states.projected else words
    largest = np.maximum.reduceat(asked @ states.rows.T, states.first, axis=1)
    scores = standard(largest)
    in_sections = np.maximum.reduceat(largest, document.sections, axis=1)
    around = standard_sections(in_sections, np.diff(document.sections, append=largest.shape[1]))
    best = np.partition(scores, max(len(scores) - _BEST, 0), axis=0)[-_BEST:]
    rows = [
        largest.mean(axis=0),
        scores.mean(axis=0),
        scores.max(axis=0),
        _log_share(scores),
        best.mean(axis=0),
        around.mean(axis=0)[document.section],
        _log_share(around)[document.section],
        _log_share(scores + (_SECTION * around)[:, document.section]),
    ]
    return np.stack(rows)


def _log_share(scores: Floats) -> Floats:
    """Return the logarithm of each column's share in the softmax of the rows, on average."""
    # One of many thousands may lie a hundred deviations off, whose exponential is no number.
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: Floats = np.log(np.maximum((1 / shares.sum(axis=1)) @ shares / np.float32(len(scores)), _LEAST))
    return found
