"""The stages from raw to served, which every run shares: refine, parse, index."""

from __future__ import annotations

from typing import Literal

from flows.index import index as index_tables
from flows.parse import parse
from flows.refine import refine
from flows.run_record import RunRecord
from flows.runners import shared_runner


def refine_to_served(
    record: RunRecord, root: str, index: Literal["all", "skills"], *, anew: bool = False
) -> None:
    """Refine, parse, index, check and publish, and write the results to the run's record.

    The caller holds the root's writer lock. `index="skills"` leaves the vectors of nodes for later; `anew`
    writes every row of the tables to new files.
    """
    with shared_runner():
        with record.stage("refine"):
            refine(root, record.run_id)
        with record.stage("parse"):
            parsed = parse(root, index)
            record.vectors_new, record.llm = parsed["vectors"], parsed["llm"]
        with record.stage("index"):
            indexed = index_tables(root, index, record.run_id, anew)
    record.vectors_new += indexed["built"]["vectors_new"]
    record.checks, record.published = indexed["checks"], indexed["version"] is not None
