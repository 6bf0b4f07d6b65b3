"""Parse: splits every document into typed nodes and edges."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

from prefect import flow

from flows.artifacts import counted, flat, show_table
from flows.run_page import tell
from flows.runners import run_batches
from flows.settings import load_settings, run_llm
from storage.locks import writer_lock
from storage.root import Root
from tasks.parse.classify.options import llm_report
from tasks.parse.corpus import node_type_mix
from tasks.parse.shells import parse_batch, plan_parsing, prepare_encoder


@flow(name="parse", flow_run_name="parse {root}")
def parse(root: str = "data", index: Literal["all", "skills"] = "all") -> dict[str, Any]:
    """Parse the documents that are new or changed; return what was parsed now, and what an LLM cost.

    If an LLM does not answer or its ceiling is reached, the rest is typed locally, and the next run asks
    about those documents again.

    Args:
        root: Folder of all that Skillery keeps.
        index: `skills` leaves the nodes' vectors, and edges that need them, for later.
    """
    with_vectors, settings = index == "all", load_settings()
    llm, account = run_llm(settings), None
    with writer_lock(Root(root)):
        encoder = prepare_encoder(root, settings.encoder, settings.encoder_precision)
        plan = plan_parsing(root, encoder, with_vectors=with_vectors, llm=llm)
        tell(f"documents to parse: {plan['todo']}, gone {plan['gone']}, unchanged {plan['unchanged']}")
        done: Counter[str] = Counter()
        given = {"root": root, "encoder": encoder, "with_vectors": with_vectors, "llm": llm}
        calls = ((parse_batch, {**given, "partitions": p, "before": account}) for p in plan["batches"])
        # The budget of an LLM is one account: each batch needs what the batch before it has left.
        for batch in run_batches("parse", calls, len(plan["batches"]), in_turn=llm is not None):
            done.update(batch["done"])
            account = batch["account"]
            tell(f"parsed {done['documents']} of {plan['todo']} documents, {done['nodes']} nodes")
    found = {k: done[k] for k in ("documents", "nodes", "edges", "vectors")}
    report = llm_report(plan["classifier"], llm, done, account)
    _show(found, plan["unchanged"], report)
    show_table("skillery-node-types", node_type_mix(Root(root)), "Node types beside SkillPager's table 3.")
    return {**found, "llm": report}


def _show(found: dict[str, int], unchanged: int, llm: dict[str, Any] | None) -> None:
    work = {f"{k} parsed now": n for k, n in found.items()} | {"unchanged, skipped": unchanged}
    show_table("skillery-parse", counted(work), "What was taken apart.")
    if llm is not None:
        show_table("skillery-llm", counted(flat(llm)), "What the LLM was asked, and what it cost.")
