"""Parse: splits every document into typed nodes and edges."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from prefect import flow

from flows.run_page import counted, flat, show_table, tell
from flows.runners import batches_at_once, run_batches, runs_elsewhere
from flows.settings import load_settings, run_edges, run_llm
from storage.locks import writer_lock
from storage.root import Root
from tasks.models.llm.budget import Carried, Ledger
from tasks.parse.classify.options import TypingOptions, llm_report
from tasks.parse.corpus import ParseOptions, node_type_mix
from tasks.parse.edges.linker import edges_report
from tasks.parse.shells import believe_llm, parse_batch, plan_parsing, prepare_encoder
from tasks.refine.workers import WORTH_IT


@flow(name="parse", flow_run_name="parse {root}")
def parse(
    root: str = "data", index: Literal["all", "skills"] = "all", spent: Carried | None = None
) -> dict[str, Any]:
    """Parse the documents that are new or changed; return what was parsed now, and what an LLM cost.

    If an LLM does not answer or its ceiling is reached, the rest is typed locally, and the next run asks
    about those documents again. `account` is what the rest of the run may spend.

    Args:
        root: Folder of all that Skillery keeps.
        index: `skills` leaves the nodes' vectors, and edges that need them, for later.
        spent: What this run has asked of an LLM before.

    Raises:
        WrongInput: A setting cannot be used, or the LLM's types are not believed; nothing is typed.
    """
    with_vectors, settings = index == "all", load_settings()
    llm, edges = run_llm(settings), run_edges(settings)
    asked = llm if edges is None else edges.llm
    ledger = _ledger(asked, spent)
    with writer_lock(Root(root)):
        encoder = prepare_encoder(root, settings.encoder)
        options = ParseOptions(encoder, with_vectors, llm, edges, settings.segment == "skillpager")
        plan = plan_parsing(root, options)
        tell(f"documents to parse: {plan['todo']}, gone {plan['gone']}, unchanged {plan['unchanged']}")
        if llm is not None and plan["batches"]:
            llm = believe_llm(root, llm, ledger)
        done: Counter[str] = Counter()
        at_once = batches_at_once(len(plan["batches"]), asked.endpoint.concurrency) if asked else 1
        llm, edges = llm and llm.shared_by(at_once), edges and edges.shared_by(at_once)
        given = {"root": root, "options": replace(options, llm=llm, edges=edges)}
        calls = ((parse_batch, {**given, "partitions": p, "ledger": ledger}) for p in plan["batches"])
        # The budget of an LLM is one account: threads share it, and processes hand it on.
        handed_on = asked is not None and runs_elsewhere()
        batches = run_batches(
            "parse", calls, len(plan["batches"]), in_turn=bool(asked) and at_once == 1, waiting=bool(asked),
            apart=2 if with_vectors else WORTH_IT,  # half a minute a batch, or some seconds
        )  # fmt: skip
        for batch in batches:
            done.update(batch["done"])
            if handed_on:
                ledger = _ledger(asked, batch["account"])
        if plan["batches"]:
            tell(f"parsed {done['documents']} documents, {done['nodes']} nodes")
    found = {k: done[k] for k in ("documents", "nodes", "edges", "vectors")}
    report = llm_report(plan["classifier"], asked, done, ledger.carried())
    if report is not None and edges is not None:
        report["edges"] = edges_report(edges, done)
        report["partial"] = report["partial"] or report["edges"]["partial"]
    _show(found, plan["unchanged"], report)
    mix = partial(node_type_mix, Root(root))
    show_table("skillery-node-types", mix, "Node types beside SkillPager's table 3.")
    return {**found, "llm": report, "account": ledger.carried() if asked else spent}


def require_believed(root: str) -> Carried | None:
    """Measure the LLM that is to type nodes, if that is due, and return what the run has asked of it so far.

    None: no LLM types. Raises as `parse`.
    """
    llm = run_llm(load_settings())
    if llm is None:
        return None
    ledger = _ledger(llm, None)
    believe_llm(root, llm, ledger)
    return replace(ledger.carried(), unanswered=0)  # by the time of parse the server may be back


def _ledger(llm: TypingOptions | None, before: Carried | None) -> Ledger:
    return Ledger() if llm is None else Ledger(llm.prices, llm.ceiling, before)


def _show(found: dict[str, int], unchanged: int, llm: dict[str, Any] | None) -> None:
    work = {f"{k} parsed now": n for k, n in found.items()} | {"unchanged, skipped": unchanged}
    show_table("skillery-parse", counted(work), "What was taken apart.")
    if llm is not None:
        show_table("skillery-llm", counted(flat(llm)), "What the LLM was asked, and what it cost.")
