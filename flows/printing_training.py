"""The form in which a training is printed for a person."""

from __future__ import annotations

from typing import Any

from flows.console import counts, say, table
from flows.printing_routing import print_contests

_MEASURES = ("hit@1", "mrr@10", "recall@10", "recall@50")


def print_training(found: dict[str, Any]) -> None:
    """Print what was trained with, how fast, and what it changed on held-out skills."""
    material = found["material"]
    say(f"{material['queries']} queries on {material['train']} of {material['skills']} skills")
    say(f"negatives: {counts(material['negatives'])}")
    say(f"false negatives removed: {counts(material['false_negatives'])} ({material['false_share']:.1%})")
    _training("encoder", found["training"])
    if found["reranker"]:
        _training("reranker", found["reranker"])
    weights = {name: f"{weight:.2f}" for name, weight in found["scorer"]["weights"].items()}
    say(f"weights of the listwise scorer: {counts(weights)}")
    title = f"{material['held_out_queries']} queries on {material['held_out']} skills held out"
    rows = [[row["method"], *(f"{row[m]:.3f}" for m in _MEASURES)] for row in found["methods"]]
    table(title, ["method", *_MEASURES], rows)
    print_contests(found["contests"])
    verdict = "helps: try it with" if found["helps"] else "does not measurably help; it is"
    say(f"the trained encoder {verdict} SKILLERY_ENCODER={found['encoder']}")


def _training(what: str, training: dict[str, Any]) -> None:
    speed = f"{training['tokens']:,} tokens in {training['seconds']:.0f} s"
    loss = f"loss {training['first_loss']:.3f} to {training['last_loss']:.3f}"
    say(f"{what}: {training['updates']} updates, {speed} ({training['tokens_per_second']} a second), {loss}")
