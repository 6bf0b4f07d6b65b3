"""Print the cost of a run before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flows.commands.console import say


def print_cost(found: dict[str, Any]) -> None:
    """Print what `flows.commands.foresee.foresee` returns."""
    for one in found["sources"]:
        say(f"{one['source']}: {_reading(one)}")
    say(f"documents to refine {found['documents']:,}, nodes {found['nodes']:,}")
    say(f"texts to encode {found['texts']:,}, of {found['tokens']:,} tokens")
    for llm, what in ((found["llm"], ""), (found["expansion"], ", to foretell requests")):
        if llm:
            asked = f"questions to the LLM{what} {llm['questions']:,}, of {llm['tokens']:,} tokens"
            say(f"{asked}; cost {llm['cost']:,.2f}")
    stages = ", ".join(f"{stage} {seconds:,.1f}" for stage, seconds in found["seconds"].items())
    took = between(sum(found["seconds"].values()), found["range"])
    say(f"seconds: {stages}; in all {took}")
    size, *spread = (size / 1e6 for size in (found["bytes_written"], *found["bytes_range"]))
    say(f"megabytes to write: {between(size, spread, 1)}")
    say("nothing was done")


def between(likely: float, spread: Sequence[float], digits: int = 0) -> str:
    """Return what is likely, and the least and the most that it may be."""
    found, low, high = (f"{value:,.{digits}f}" for value in (likely, *spread))
    return f"{found}, between {low} and {high}"


def _reading(one: dict[str, Any]) -> str:
    if one["documents"] is None:
        return "nobody knows what it holds before it has been read"
    quota = "" if one["quota_left"] is None else f" of {one['quota_left']} that are left"
    return f"new or changed {one['documents']:,}, requests {one['requests'] or 0:,}{quota}"
