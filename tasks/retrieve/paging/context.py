"""The context that selected nodes make: document order, headings restored, gaps marked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tasks.parse.segment.headings import Heading


def ceiling_of(budget: float, document_tokens: int) -> int:
    """Return a budget in tokens; a budget of up to 1 is a share of the document's tokens."""
    return int(budget * document_tokens) if budget <= 1 else int(budget)


Span = tuple[int, int]
GAP_MARK = "…"


@dataclass(frozen=True, slots=True)
class Outline:
    """The places of a document's headings among its nodes; headings are given by their index.

    `above` has for each node the headings above it, outermost first. `before` has those between the node
    before it and itself, and as its last entry those after the last node.
    """

    above: list[tuple[int, ...]]
    before: list[tuple[int, ...]]


def outline(spans: Sequence[Span], headings: Sequence[Heading]) -> Outline:
    """Return the places of `headings` among the nodes with `spans`; both in document order."""
    above: list[tuple[int, ...]] = []
    before: list[tuple[int, ...]] = []
    path: tuple[int, ...] = ()
    following = 0
    for start, _ in spans:
        first = following
        while following < len(headings) and headings[following].start < start:
            level = headings[following].level
            path = (*(h for h in path if headings[h].level < level), following)
            following += 1
        above.append(path)
        before.append(tuple(range(first, following)))
    before.append(tuple(range(following, len(headings))))
    return Outline(above, before)


def runs(selected: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and last ordinal of each run of consecutive ordinals, ascending."""
    found: list[tuple[int, int]] = []
    for ordinal in sorted(set(selected)):
        if found and found[-1][1] == ordinal - 1:
            found[-1] = (found[-1][0], ordinal)
        else:
            found.append((ordinal, ordinal))
    return found


def assemble(body: str, spans: Sequence[Span], headings: Sequence[Heading], selected: Iterable[int]) -> str:
    """Print the selected nodes in document order, each under its headings.

    Consecutive nodes are one slice of the body, which keeps its layout and the headings inside. Before a
    slice come the headings of its first node, each once in the whole context. Between two slices, above
    the second one's headings, one line holds the gap mark; a gap at the beginning or end is not marked. A
    slice with the first (last) node reaches to the body's beginning (end). So all nodes together give
    exactly the body, headings without nodes included, and so does a body without nodes. The context is empty
    if there are nodes and none is selected.

    `spans` are those of all nodes, ordered and disjoint; `selected` are ordinals of nodes in any order.
    """
    chosen = runs(selected)
    if not spans:
        return body
    where = outline(spans, headings)
    printed: set[int] = set()
    parts: list[str] = []
    for first, last in chosen:
        start, end = _extent(body, spans, first, last)
        missing = [] if first == 0 else [h for h in where.above[first] if h not in printed]
        printed.update(where.above[first], *where.before[first + 1 : last + 1])
        parts += [GAP_MARK] * bool(parts)
        parts += [body[headings[h].start : headings[h].end].strip() for h in missing]
        parts.append(body[start:end])
    return "\n\n".join(parts)


def _extent(body: str, spans: Sequence[Span], first: int, last: int) -> Span:
    """Return the slice of a run with the indentation of its first line, which nests lists."""
    line = body.rfind("\n", 0, spans[first][0]) + 1
    start = spans[first][0] if body[line : spans[first][0]].strip() else line
    return 0 if first == 0 else start, len(body) if last == len(spans) - 1 else spans[last][1]


Pick = tuple[int, float]


def fill(
    ranked: Iterable[Pick], *, tokens: Sequence[int], heading_tokens: Sequence[int], mark_tokens: int,
    where: Outline, ceiling: int,
) -> list[Pick]:  # fmt: skip
    """Return nodes in the order of `ranked`, without those that do not fit, until none can fit.

    `ranked` is consumed no further than needed. The ceiling is for the tokens of nodes, their headings and
    the gap marks. These are counted one by one, so the assembled text must be counted again.
    """
    smallest = min(tokens, default=0)
    taken: dict[int, float] = {}
    printed: set[int] = set()
    used = 0
    for ordinal, score in ranked:
        if used + smallest - mark_tokens > ceiling:
            break
        added = _headings_with(ordinal, taken, where) - printed
        beside = (ordinal - 1 in taken) + (ordinal + 1 in taken)
        cost = tokens[ordinal] + sum(heading_tokens[h] for h in added) + mark_tokens * (bool(taken) - beside)
        if used + cost <= ceiling:
            taken[ordinal] = score
            printed |= added
            used += cost
    return list(taken.items())


def _headings_with(ordinal: int, taken: dict[int, float], where: Outline) -> set[int]:
    """Return the headings printed with a node: those above it and those inside its slice."""
    headings = set(where.above[ordinal])
    if ordinal == 0 or ordinal - 1 in taken:
        headings.update(where.before[ordinal])
    if ordinal + 1 == len(where.above) or ordinal + 1 in taken:
        headings.update(where.before[ordinal + 1])
    return headings
