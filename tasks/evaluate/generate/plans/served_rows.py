"""Reads the served rows that a bench of plans is grown from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from storage.root import Root
from storage.served import Served, require_licences

_COLUMNS = ["doc_id", "name", "description", "category", "content_hash", "licence", "vector"]


@dataclass(frozen=True, slots=True)
class ServedRow:
    """A served skill or server as it is read: its text, its section, and what copies share."""

    doc_id: str
    name: str
    description: str
    category: str | None
    content_hash: str
    vector: npt.NDArray[np.float32]


def served_rows(root: Root, served: Served) -> tuple[list[ServedRow], int]:
    """Return the rows of a version whose licence lets their text be shown, by id, and how many others are.

    Raises:
        StorageError: The table or the file of licences' classes is damaged or missing.
    """
    licences = require_licences(root)
    rows = served.skills_table(root).rows(_COLUMNS).to_pylist()
    shown = [row for row in rows if licences.class_of(row["licence"]) == "allow"]
    found = [
        ServedRow(
            row["doc_id"], row["name"] or "", row["description"] or "", row["category"],
            row["content_hash"] or "", np.array(row["vector"], dtype=np.float32),
        )
        for row in shown
    ]  # fmt: skip
    return sorted(found, key=lambda row: row.doc_id), len(rows) - len(shown)
