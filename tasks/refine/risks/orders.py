"""Orders in prose, in several languages: to send what is private, to hide a deed, to drop other orders."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tasks.refine.risks.rules import Region
from tasks.refine.risks.terms import patterns

_ENDS = re.compile(r"[.!?](?=\s)|[。！？]|\n")
_REACH = 300  # characters of a paragraph, before and after what is looked at, that are read with it
_NEAR = 40
_ADDRESS = re.compile(r"https?://|@")


def sends_private(text: str) -> Iterator[Region]:
    """Yield where a sentence orders that something private be sent to an address: verb, thing and address."""
    lowered, found, done = text.lower(), patterns(), 0
    for mark in _ADDRESS.finditer(lowered) if len(lowered) == len(text) else ():
        if mark.start() < done:
            continue
        start, done = _sentence(lowered, *mark.span())
        place = found["order_place"].search(lowered, start, done)
        if place and found["order_private"].search(lowered, start, done):
            sends = found["order_sends"].search(lowered, start, place.start())
            after = sends or found["order_sends_after"].search(lowered, place.end(), done)
            if after:
                yield (sends or place).start(), done


def against_user(text: str) -> Iterator[Region]:
    """Yield where secrecy from the user is ordered, or a machine is told to send or run something unseen."""
    lowered, found = text.lower(), patterns()
    for seed in found["order_seeds"].finditer(lowered) if len(lowered) == len(text) else ():
        first = max(lowered.rfind("\n", 0, seed.start()) + 1, seed.start() - _REACH)
        last = lowered.find("\n", seed.end())
        last = min(last if last >= 0 else len(lowered), seed.end() + _REACH)
        acts = ("order_sends", "order_sends_after", "order_runs")
        if seed.lastgroup == "secret" or (
            found["order_hides"].search(lowered, first, last)
            and any(found[name].search(lowered, first, last) for name in acts)
        ):
            yield seed.start(), last


def drops_orders(text: str) -> Iterator[Region]:
    """Yield where a reader is told to drop the orders, or the rules of safety, that it had before."""
    lowered, found = text.lower(), patterns()
    for drop in found["order_drops"].finditer(lowered) if len(lowered) == len(text) else ():
        if found["order_earlier"].search(lowered, max(0, drop.start() - _NEAR), drop.end() + _NEAR):
            yield drop.span()


def _sentence(text: str, start: int, end: int) -> Region:
    first = max(0, start - _REACH)
    for stop in _ENDS.finditer(text, first, start):
        first = stop.end()
    after = _ENDS.search(text, end, end + _REACH)
    return first, after.start() if after else min(len(text), end + _REACH)
