"""Nodes written in a line each, for tests of edges."""

from __future__ import annotations

from storage.schemas import Node


def node(
    ordinal: int,
    text: str,
    *path: str,
    kind: str = "concept",
    block: str = "prose",
    lead_in: str | None = None,
) -> Node:
    return Node(
        node_id=f"d#{ordinal}", doc_id="d", ordinal=ordinal, node_type=kind, heading_path=path, lead_in=None,
        block=block, start=0, end=len(text), text=text, n_tokens=1, classifier="c", confidence=0.5,
    )  # fmt: skip


def document(*rows: tuple[str, str, str] | tuple[str, str, str, str]) -> list[Node]:
    """Nodes from `(type, section, text[, block])`; `A/B` is section B of A, all below the title Sourdough."""
    return [
        node(
            k, row[2], "Sourdough", *row[1].split("/"), kind=row[0], block=row[3] if len(row) > 3 else "prose"
        )
        for k, row in enumerate(rows)
    ]
