"""From selected nodes back to text: document order, headings put back, gaps marked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tasks.parse.segment import Heading

Span = tuple[int, int]

GAP_MARK = "…"


@dataclass(frozen=True, slots=True)
class Outline:
    """Where a document's headings stand among its `n` nodes; headings are given by their index.

    Args:
        above: For each node, the headings it stands under, outermost first.
        before: For each node, the headings between the node before it and itself; one more entry, the
            last, holds those after the last node.
    """

    above: list[tuple[int, ...]]
    before: list[tuple[int, ...]]


def outline(spans: Sequence[Span], headings: Sequence[Heading]) -> Outline:
    """Return where `headings` stand among the nodes with `spans`; both in document order."""
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
    """Print the selected nodes as they stand in the document, each under its headings.

    Consecutive nodes are one slice of the body, so that its layout and the headings between them stay. Before
    a slice come the headings its first node stands under, each once in the whole context. Between two slices,
    above the second one's headings, stands one line with the gap mark; a gap at the beginning or the end is
    not marked. A slice with the first (last) node reaches to the body's beginning (end), so that all nodes
    together give exactly the body, headings without nodes included; so does a body that has no nodes.

    Args:
        body: The document's text.
        spans: `(start, end)` of every node of the document, ordered and disjoint.
        headings: The document's headings in order; none leaves headings out, but for those inside a slice.
        selected: Ordinals of the nodes to print, in any order; repeats count once.

    Returns:
        The context; empty where there are nodes and none is selected.

    Raises:
        ValueError: An ordinal is not below the number of spans.
    """
    chosen = runs(selected)
    if chosen and not 0 <= chosen[0][0] <= chosen[-1][1] < len(spans):
        msg = f"ordinals must be in [0, {len(spans)}), got {chosen[0][0]} to {chosen[-1][1]}"
        raise ValueError(msg)
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
    """Return the slice of a run, its first line's indentation included: it bears the nesting of lists."""
    line = body.rfind("\n", 0, spans[first][0]) + 1
    start = spans[first][0] if body[line : spans[first][0]].strip() else line
    return 0 if first == 0 else start, len(body) if last == len(spans) - 1 else spans[last][1]
