"""The workshop's web application: what it answers, and its state over HTTP."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.induce.workshop import pages
from tests.support.induce.workshop.records import Records
from tests.support.induce.workshop.server import Asked, Said, goes_to, says_json, served


@dataclass(frozen=True, slots=True)
class Workshop:
    """The application while it is served: its records, and the address of its first page."""

    records: Records
    url: str


@contextmanager
def workshop() -> Iterator[Workshop]:
    """Serve the workshop on loopback."""
    records = Records()
    with served(lambda asked: answer(records, asked)) as url:
        yield Workshop(records, url)


Given = Mapping[str, str]
_PAGES: Mapping[str, Callable[[Any, int, Given], str]] = {
    "/": lambda state, _, __: pages.home(state),
    "/jobs": lambda state, _, given: pages.jobs(state, given.get("status", "")),
    "/jobs/new": lambda _, __, ___: pages.new_job(),
    "/jobs/N": lambda state, number, _: pages.job(number, state["jobs"][number]),
    "/parts": lambda state, _, given: pages.parts(state, given.get("wanted", "")),
    "/orders": lambda state, _, __: pages.orders(state),
    "/customers": lambda state, _, __: pages.customers(state),
    "/customers/N": lambda state, number, _: pages.customer(number, state["customers"][number]),
    "/settings": lambda state, _, __: pages.settings(state["settings"]),
}


def answer(records: Records, asked: Asked) -> Said:
    """Return what the workshop says."""
    pattern = re.sub(r"/\d+", "/N", asked.path)
    number = next((int(part) for part in asked.path.split("/") if part.isdigit()), 0)
    if asked.path == "/.skillery/state":
        return says_json(records.state)
    if asked.method == "POST" and pattern in _CHANGES:
        return _CHANGES[pattern](records, number, asked.given)
    if asked.method == "GET" and pattern in _PAGES:
        return Said(_PAGES[pattern](records.state, number, asked.given))
    return Said("nothing is here", 404)


def _reset(records: Records, _: int, __: Given) -> Said:
    records.reset()
    return says_json({})


def _new_job(records: Records, _: int, given: Given) -> Said:
    own = {name: given.get(name, "") for name in ("bicycle", "kind", "mechanic", "complaint")}
    return goes_to(f"/jobs/{records.new_job({**own, 'urgent': 'urgent' in given})}")


def _change_job(records: Records, number: int, _: Given) -> Said:
    now = records.state["jobs"][number]["status"]
    records.change_job(number, status="in work" if now == "open" else "done")
    return goes_to(f"/jobs/{number}")


def _note(records: Records, number: int, given: Given) -> Said:
    records.note(number, given.get("text", ""))
    return Said(pages.notes(records.state["jobs"][number]))


def _cancel(records: Records, number: int, given: Given) -> Said:
    records.change_job(
        number, status="cancelled", cancelled={"reason": given["reason"], "told": "told" in given}
    )
    return goes_to(f"/jobs/{number}")


def _order(records: Records, _: int, given: Given) -> Said:
    records.order(given["part"], given.get("pieces", ""))
    return goes_to("/orders")


def _remove(records: Records, number: int, _: Given) -> Said:
    records.remove_order(number)
    return goes_to("/orders")


def _customer(records: Records, number: int, given: Given) -> Said:
    records.state["customers"][number] |= {
        "phone": given.get("phone", ""),
        "newsletter": "newsletter" in given,
    }
    return goes_to("/customers")


def _settings(records: Records, _: int, given: Given) -> Said:
    records.state["settings"] = {
        "opening": given["opening"],
        "reminders": "reminders" in given,
        "greeting": given.get("greeting", ""),
    }
    return goes_to("/settings")


_CHANGES: Mapping[str, Callable[[Records, int, Given], Said]] = {
    "/.skillery/reset": _reset,
    "/jobs/new": _new_job,
    "/jobs/N/change": _change_job,
    "/jobs/N/note": _note,
    "/jobs/N/cancel": _cancel,
    "/orders": _order,
    "/orders/N/remove": _remove,
    "/customers/N": _customer,
    "/settings": _settings,
}
