"""Parse: every document into typed nodes and edges."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Literal

from prefect import flow

from flows.artifacts import counted, show_table
from flows.settings import load_settings
from storage.locks import writer_lock
from storage.root import Root
from tasks.parse.mix import node_type_mix
from tasks.parse.shells import parse_batch, plan_parsing, prepare_encoder

log = logging.getLogger(__name__)


@flow(name="parse", flow_run_name="parse {root}")
def parse(root: str = "data", index: Literal["all", "skills"] = "all") -> dict[str, int]:
    """Take apart the documents that are new or changed; return what was parsed now.

    Args:
        root: Folder of all that Skillery keeps.
        index: `skills` leaves the nodes' vectors, and edges that need them, for later.
    """
    with_vectors = index == "all"
    with writer_lock(Root(root)):
        encoder = prepare_encoder(root, load_settings().encoder)
        plan = plan_parsing(root, encoder, with_vectors=with_vectors)
        log.info("parse: %(todo)d documents to parse, %(gone)d gone, %(unchanged)d unchanged", plan)
        done: Counter[str] = Counter(documents=0, nodes=0, edges=0, vectors=0)
        for partitions in plan["batches"]:
            done.update(parse_batch(root, partitions, encoder, with_vectors=with_vectors))
            log.info("parse: %d of %d documents, %d nodes", done["documents"], plan["todo"], done["nodes"])
    work = {f"{k} parsed now": n for k, n in done.items()} | {"unchanged, skipped": plan["unchanged"]}
    show_table("skillery-parse", counted(work), "What was taken apart.")
    show_table("skillery-node-types", node_type_mix(Root(root)), "Node types beside SkillPager's table 3.")
    return dict(done)
