"""Which of the ranked nodes fit a token budget, headings and gap marks counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tasks.retrieve.assemble import Outline

Pick = tuple[int, float]


def fill(
    ranked: Iterable[Pick],
    *,
    tokens: Sequence[int],
    heading_tokens: Sequence[int],
    mark_tokens: int,
    where: Outline,
    ceiling: int,
) -> list[Pick]:
    """Take nodes in the order of `ranked`, passing over those that do not fit, until none could.

    Args:
        ranked: `(ordinal, score)`, best first; consumed no further than needed.
        tokens: Tokens of each node of the document.
        heading_tokens: Tokens of each heading of the document.
        mark_tokens: Tokens of one gap mark.
        where: Where the headings stand among the nodes.
        ceiling: The most tokens that nodes, their headings and the gap marks may sum up to.

    Returns:
        The nodes taken, in the order of `ranked`. The sum is that of parts counted one by one: what is
        assembled from them must be counted before it is promised.
    """
    smallest = min(tokens, default=0)
    taken: dict[int, float] = {}
    printed: set[int] = set()
    used = 0
    for ordinal, score in ranked:
        if used + smallest - mark_tokens > ceiling:
            break
        added = _headings_with(ordinal, taken, where) - printed
        gaps = bool(taken) - (ordinal - 1 in taken) - (ordinal + 1 in taken)
        cost = tokens[ordinal] + sum(heading_tokens[h] for h in added) + mark_tokens * gaps
        if used + cost <= ceiling:
            taken[ordinal] = score
            printed |= added
            used += cost
    return list(taken.items())


def _headings_with(ordinal: int, taken: dict[int, float], where: Outline) -> set[int]:
    """Return the headings printed with a node: those above it and those its slice reaches over."""
    headings = set(where.above[ordinal])
    if ordinal == 0 or ordinal - 1 in taken:
        headings.update(where.before[ordinal])
    if ordinal + 1 == len(where.above) or ordinal + 1 in taken:
        headings.update(where.before[ordinal + 1])
    return headings
