"""From chosen units back to text: document order, headings over them, what is left out marked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from storage.schemas import Node
from tasks.retrieve.assemble import GAP_MARK, runs
from tasks.retrieve.paging_compact import compact
from tasks.retrieve.paging_outline import Prepared
from tasks.retrieve.paging_units import frame_of


@dataclass(frozen=True, slots=True)
class Printed:
    """A page as text, and what of each node stands in it by ordinal; `whole` are those without a gap."""

    context: str
    texts: Mapping[int, str]
    whole: frozenset[int]


def print_units(body: str, nodes: Sequence[Node], document: Prepared, chosen: Iterable[int]) -> Printed:
    """Print units as they stand in the document, each under its headings, each heading once.

    One line with the gap mark stands where something between two pieces is left out; a block of code or a
    table that is printed in parts keeps its fences or its header. A gap before the first and after the last
    piece is not marked. All units together give exactly the body; anything less is made shorter as `compact`
    says.

    Args:
        body: The document's text.
        nodes: All its nodes.
        document: It made ready.
        chosen: The units to print.
    """
    units = document.units
    kept = sorted(set(chosen))
    if len(kept) == len(units.owner):
        return Printed(body, {n.ordinal: n.text for n in nodes}, frozenset(range(len(nodes))))
    of_node: dict[int, list[int]] = {}
    for unit in kept:
        of_node.setdefault(int(units.owner[unit]), []).append(unit)
    texts = {node: _node_text(body, nodes[node], document, of_node[node]) for node in of_node}
    whole = frozenset(n for n, us in of_node.items() if len(us) == units.first[n + 1] - units.first[n])
    return Printed(_joined(body, nodes, document, texts), texts, whole)


def _joined(body: str, nodes: Sequence[Node], document: Prepared, texts: Mapping[int, str]) -> str:
    parts: list[str] = []
    printed: set[int] = set()
    last = -1
    for node, text in texts.items():
        if last >= 0:
            parts.append(f"\n\n{GAP_MARK}\n\n" if node > last + 1 else "")
        missing = [h for h in document.where.above[node] if h not in printed]
        printed.update(missing)
        if last == node - 1 and last >= 0 and not missing:
            parts.append(_between(body, nodes[last], nodes[node]))
        elif last == node - 1 and last >= 0:
            parts.append("\n\n")
        parts += [
            f"{body[document.headings[h].start : document.headings[h].end].strip()}\n\n" for h in missing
        ]
        parts.append(_indent(body, nodes[node]) * (not parts or parts[-1].endswith("\n\n")) + text)
        last = node
    return "".join(parts)


def _between(body: str, before: Node, after: Node) -> str:
    """Return the white space between neighbours, or a blank line where a heading without nodes stood."""
    text = body[before.end : after.start]
    return text if not text.strip() else "\n\n"


def _indent(body: str, node: Node) -> str:
    line = body.rfind("\n", 0, node.start) + 1
    before = body[line : node.start]
    return before if before.isspace() else ""


def _node_text(body: str, node: Node, document: Prepared, chosen: Sequence[int]) -> str:
    units = document.units
    first, last = units.first[node.ordinal : node.ordinal + 2].tolist()
    if len(chosen) == last - first:
        return compact(node.text, node.block)
    opening, closing = frame_of(body, node)
    glue = "\n" if opening or node.block in ("code", "table") else " "
    pieces: list[str] = []
    for begin, end in runs(chosen):
        text = body[units.start[begin] : units.end[end]]
        # A table's parts have no header of their own.
        pieces += [GAP_MARK] * (bool(pieces) or begin > first)
        pieces.append(compact(text, "list_item" if node.block == "table" else node.block))
    pieces += [GAP_MARK] * (chosen[-1] + 1 < last)
    frame = [compact(opening, node.block)] if opening else []
    return glue.join([*frame, *pieces, *([closing] if closing else [])])
