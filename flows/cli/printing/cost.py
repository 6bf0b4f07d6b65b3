"""Print the cost of a run before it begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    say(f"megabytes to write: {megabytes(found)}")
    say("nothing was done")


def between(likely: float, spread: Sequence[float]) -> str:
    """Return what is likely, and the least and the most that it may be."""
    low, high = spread
    return f"{likely:,.0f}, between {low:,.0f} and {high:,.0f}"


def megabytes(found: Mapping[str, Any]) -> str:
    """Return what would be written."""
    return between(found["bytes_written"] / 1e6, [size / 1e6 for size in found["bytes_range"]])


def _reading(one: dict[str, Any]) -> str:
    if one["documents"] is None:
        return "nobody knows what it holds before it has been read"
    quota = "" if one["quota_left"] is None else f" of {one['quota_left']} that are left"
    return f"new or changed {one['documents']:,}, requests {one['requests'] or 0:,}{quota}"
