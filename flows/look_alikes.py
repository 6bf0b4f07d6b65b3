"""Reports what of the served index looks alike, for the command; it needs no orchestrator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from storage.errors import WrongInput
from storage.lance import SKILLS, connect, open_at
from storage.root import Root
from storage.served import require_served
from tasks.evaluate.look_alikes import look_alikes
from tasks.models.protocols import Vectors

SHOWN = 20


def served_look_alikes(root: Root, threshold: float, out: Path | None) -> dict[str, Any]:
    """Report the served skills whose names and descriptions mean nearly the same.

    Args:
        root: Whose index is read.
        threshold: Cosine similarity from which two look alike, above 0, at most 1.
        out: A Parquet file for all pairs; None: none is written.

    Raises:
        WrongInput: The threshold is out of its range.
        NotPublished: Nothing is served.
    """
    if not 0 < threshold <= 1:
        msg = f"--threshold is {threshold}: choose one above 0 and at most 1"
        raise WrongInput(msg)
    served = require_served(root)
    table = open_at(connect(root), SKILLS, served.skills)
    rows = table.search().where("kind = 'skill'").select(["doc_id", "name", "vector"]).to_arrow()
    found = look_alikes(rows["doc_id"].to_pylist(), _matrix(rows["vector"]), threshold=threshold)
    if out is not None:
        found.pairs.write_parquet(out)
    names = dict(zip(rows["doc_id"].to_pylist(), rows["name"].to_pylist(), strict=True))
    return {
        "version": served.version,
        "model": served.model["name"],
        "threshold": threshold,
        "documents": found.documents,
        "pairs": found.pairs.height,
        "truncated": found.truncated,
        "groups": len(found.groups),
        "documents_in_groups": sum(map(len, found.groups)),
        "largest": [
            {"size": len(g), "name": names[g[0]], "doc_ids": list(g[:SHOWN])} for g in found.groups[:SHOWN]
        ],
        "closest": found.pairs.head(SHOWN).to_dicts(),
    }


def _matrix(column: pa.ChunkedArray) -> Vectors:
    return np.asarray(column.combine_chunks().flatten().to_numpy()).reshape(
        len(column), column.type.list_size
    )
