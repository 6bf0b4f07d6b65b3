"""The forms in which benches, and what was measured on them, are printed for a person."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from flows.commands.console import counts, say, table

if TYPE_CHECKING:
    from tasks.evaluate.measures.tables import Block


def show(blocks: Iterable[Block]) -> None:
    """Print texts, and tables that have a row."""
    for block in blocks:
        if isinstance(block, str):
            say(block)
        elif block.rows:
            table(block.title, list(block.columns), block.cells())


def print_paging(found: dict[str, Any]) -> None:
    """Print the table of paging methods with 95 % intervals, who judged, and how judges agree."""
    from tasks.evaluate.paging.report import terminal_blocks  # noqa: PLC0415 (a search prints without it)

    show(terminal_blocks(found))


def print_growth(found: dict[str, Any]) -> None:
    """Print what came of growing a bench of paging."""
    say(f"{found['queries']} queries on {found['documents']} skills of {found['namespaces']} namespaces")
    say(f"by breadth: {counts(found['by_breadth'])}; in {found['out']}")
    say(f"queries rejected: {counts(found['rejected'])}")
    _resumed(found, "a query", "queries/")
    if found["skills"] < found["wanted"] and not found["unfinished"]:
        say(f"no more skills are served: {found['wanted']} were wanted")


def print_plan_bench(found: dict[str, Any]) -> None:
    """Print what came of making a bench of plans."""
    say(f"{found['queries']} requests, {found['steps']} steps, {found['edges']} dependencies")
    say(f"by difficulty: {counts(found['by_difficulty'])}; in {found['out']}")
    say(f"rows used: {found['rows_used']} of {found['rows']}; left out: {counts(found['left_out'])}")
    made = found["queries"] + sum(found["discarded"].values()) + sum(found["unfinished"].values())
    if made < found["wanted"]:
        say(f"too little is served for more: {found['wanted']} were wanted", style="red")
    say(f"discarded: {counts(found['discarded'])}")
    if found["llm"]:
        _asked(found)


def _resumed(found: dict[str, Any], wanted: str, folder: str) -> None:
    """Print how many skills were asked about this time, which came to nothing, and the cost."""
    say(f"this time: asked about {found['asked']} skills, {found['kept']} kept from before")
    if found["failed"]:
        why = f"{counts(found['failed'])}; each file in {folder} says why"
        say(f"skills without {wanted}: {why}, delete it to ask again", style="red")
    _asked(found)


def _asked(found: dict[str, Any]) -> None:
    """Print what a language model was asked, what that cost, and what is left to ask."""
    llm = found["llm"]
    say(f"asked of {found['model']} by {found['prompt']}: {llm['requests']} requests, {llm['cached']} known")
    say(f"answers rejected {llm['rejected']}, {llm['tokens']} tokens, cost {llm['cost']:g}")
    if found["unfinished"]:
        say(f"partial: left for the next run: {counts(found['unfinished'])}", style="red")


def print_distractors(found: dict[str, Any]) -> None:
    """Print what came of making distractors."""
    say(f"{found['distractors']} distractors of {found['skills']} skills: {counts(found['by_kind'])}")
    say(f"in {found['out']}/distractors.jsonl: give it to `evaluate routing` as one more --documents")
    _resumed(found, "any", "distractors/")


_TRAINING_MEASURES = ("hit@1", "mrr@10", "recall@10", "recall@50")


def print_training(found: dict[str, Any]) -> None:
    """Print what was trained with, how fast, and what it changed on held-out skills."""
    from tasks.evaluate.routing.report import contest_block  # noqa: PLC0415 (as above)

    material = found["material"]
    say(f"{material['queries']} queries on {material['train']} of {material['skills']} skills")
    say(f"negatives: {counts(material['negatives'])}")
    say(f"false negatives removed: {counts(material['false_negatives'])} ({material['false_share']:.1%})")
    if material["left_out"]:
        say(f"requests left out: {counts(material['left_out'])}")
    _training("encoder", found["training"])
    if found["reranker"]:
        _training("reranker", found["reranker"])
    weights = {name: f"{weight:.2f}" for name, weight in found["scorer"]["weights"].items()}
    say(f"weights of the listwise scorer: {counts(weights)}")
    title = f"{material['held_out_queries']} queries on {material['held_out']} skills held out"
    rows = [[row["method"], *(f"{row[m]:.3f}" for m in _TRAINING_MEASURES)] for row in found["methods"]]
    table(title, ["method", *_TRAINING_MEASURES], rows)
    show([contest_block(found["contests"])])
    verdict = "helps: try it with" if found["helps"] else "does not measurably help; it is"
    last = found.get("pooling") == "last"  # no index is of such an encoder
    setting = "--method skillrouter and SKILLERY_SKILLROUTER_ENCODER" if last else "SKILLERY_ENCODER"
    say(f"the trained encoder {verdict} {setting}={found['encoder']}")


def _training(what: str, training: dict[str, Any]) -> None:
    speed = f"{training['tokens']:,} tokens in {training['seconds']:.0f} s"
    loss = f"loss {training['first_loss']:.3f} to {training['last_loss']:.3f}"
    say(f"{what}: {training['updates']} updates, {speed} ({training['tokens_per_second']} a second), {loss}")


_EDGE_MEASURES = ("precision", "recall", "f1")


def print_edges(found: dict[str, Any]) -> None:
    """Print how rules and candidates agree with a model's edges, and what asking cost."""
    rows = [
        [who, kind, str(row["llm"]), str(row["found"]), *(f"{row[name]:.3f}" for name in _EDGE_MEASURES)]
        for who in ("rules", "candidates")
        for kind, row in found[who].items()
    ]
    title = f"edges against {found['model']}, {found['documents']} of {found['asked_of']} documents"
    table(title, ["", "edge", "LLM's", "found", "precision", "recall", "F1"], rows)
    say("hybrid asks about the candidates: their recall is the most it can reach")
    llm = found["llm"]
    say(f"{llm['requests']} requests, {llm['cached']} known, {llm['tokens']} tokens, cost {llm['cost']:g}")
    if llm["edges"]["fallbacks"]:
        say(f"questions left to the rules: {counts(llm['edges']['fallbacks'])}", style="red")


def print_tuning(found: dict[str, Any]) -> None:
    """Print what came of tuning by own requests: figures of those that decide, before and after."""
    say(
        f"{found['requests']} requests, {found['kept']} of them kept; {found['unknown']} of skills not served"
    )
    for name, why in (("contradicting", "both kept and not"), ("beyond", "lines before the last 20,000")):
        if found[name]:
            say(f"left out: {found[name]} {why}")
    sides = {"your requests": found["own"], "the package's": found["packaged"]}
    rows = [
        [f"{name}, {when}", *(f"{row[key]:.3f}" for key in row)]
        for name, pair in sides.items()
        for when, row in zip(("before", "tuned"), pair, strict=True)
    ]
    names = (key.removeprefix("wrongly_").replace("_", " ") for key in found["own"][0])
    table("held out; refused and accepted: wrongly so", ["of", *names], rows)
    if found["shipped"]:
        say("better: search uses it from now on; skillery train requests --remove goes back")
    else:
        say("not better beyond chance on both: nothing was changed")
