"""A workshop for bicycles as a web application: its records, its nine pages, and what each request does."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any

from tests.support.induce.workshop.server import Asked, Said, goes_to, says_json, served

KINDS = ("Brakes", "Gears", "Wheels")
MECHANICS = ("Ada", "Ben", "Cleo")
REASONS = ("Too expensive", "No parts", "Customer left")
_JOBS = (
    ("Red Gazelle", "Brakes", "Ada", "open"),
    ("Blue Batavus", "Gears", "Ben", "open"),
    ("Green Brompton", "Wheels", "Cleo", "in work"),
    ("Grey Koga", "Brakes", "Ben", "in work"),
    ("White Cortina", "Gears", "Ada", "open"),
    ("Black Sparta", "Wheels", "Ben", "in work"),
)
_PARTS = {"Brake pads": 12, "Brake cable": 4, "Chain": 7, "Inner tube": 30, "Saddle": 2}
_CUSTOMERS = {"Omar Haddad": "030 111", "Iris Vos": "030 222", "Lena Maas": "030 333"}


class Records:
    """All that the workshop knows, as `state` shows it; `facts` is the same without what tells the time."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin with the same jobs, parts and customers."""
        jobs: list[dict[str, Any]] = [
            {"bicycle": bicycle, "kind": kind, "mechanic": mechanic, "status": status, "urgent": False,
             "complaint": "", "notes": [], "cancelled": None, "opened_at": "2026-01-05T09:30:00+00:00"}
            for bicycle, kind, mechanic, status in _JOBS
        ]  # fmt: skip
        customers = [{"name": n, "phone": p, "newsletter": True} for n, p in _CUSTOMERS.items()]
        settings = {"opening": "weekdays", "reminders": False, "greeting": "Hello"}
        self.state: dict[str, Any] = {
            "jobs": jobs, "parts": [{"name": n, "stock": s} for n, s in _PARTS.items()], "orders": [],
            "customers": customers, "settings": settings, "log": [], "begun": time.time(),
        }  # fmt: skip

    def facts(self) -> dict[str, Any]:
        """Return the state without times."""
        facts = deepcopy(self.state)
        del facts["begun"]
        for row in (*facts["jobs"], *facts["orders"], *facts["log"]):
            for name in ("opened_at", "changed_at", "at"):
                row.pop(name, None)
        for job in facts["jobs"]:
            for note in job["notes"]:
                del note["at"]
        return facts

    def new_job(self, given: dict[str, Any]) -> int:
        """Open a job, and return its place."""
        job = {"status": "open", "notes": [], "cancelled": None, "opened_at": _now(), **given}
        self.state["jobs"].append(job)
        self._log(f"opened {job['bicycle']}")
        return len(self.state["jobs"]) - 1

    def change_job(self, place: int, **changes: object) -> None:
        self.state["jobs"][place] |= {**changes, "changed_at": int(time.time() * 1000)}
        self._log(f"changed {self.state['jobs'][place]['bicycle']}")

    def note(self, place: int, text: str) -> None:
        self.state["jobs"][place]["notes"].append({"text": text, "at": _now()})

    def order(self, part: str, pieces: str) -> None:
        self.state["orders"].append({"part": part, "pieces": pieces, "at": time.time()})

    def remove_order(self, place: int) -> None:
        del self.state["orders"][place]

    def _log(self, text: str) -> None:
        self.state["log"].append({"text": text, "at": f"{datetime.now():%Y-%m-%d %H:%M}"})  # noqa: DTZ005


def _now() -> str:
    return datetime.now(UTC).isoformat()


_NAMES = ("Jobs", "Parts", "Orders", "Customers", "Settings")
_ROW = "style='cursor:pointer' onclick='location=\"{}\"'"


def page(title: str, body: str) -> str:
    links = " ".join(f"<a href='/{name.lower()}'>{name}</a>" for name in _NAMES)
    icon = "<link rel=icon href='data:,'>"
    return f"<!doctype html>{icon}<title>{title}</title><nav>{links}</nav><h1>{title}</h1>{body}"


def home(state: dict[str, Any]) -> str:
    waiting = sum(job["status"] == "open" for job in state["jobs"])
    return page("Workshop", f"<p>{waiting} bicycles wait.</p><a href='/jobs/new'>New job</a>")


def jobs(state: dict[str, Any], status: str) -> str:
    shown = [(n, job) for n, job in enumerate(state["jobs"]) if status in {"", "all", job["status"]}]
    rows = " ".join(
        f"<tr {_ROW.format(f'/jobs/{n}')}> <td>{escape(job['bicycle'])}</td> <td>{job['kind']}</td>"
        f" <td>{job['mechanic']}</td> <td>{job['status']}</td> </tr>"
        for n, job in shown
    )
    chosen = _select("Status", "status", ("all", "open", "in work", "done", "cancelled"), status)
    form = f"<form>{chosen}<button>Show</button></form>"
    return page("Jobs", f"<a href='/jobs/new'>New job</a>{form}<table>{rows}</table>")


def new_job() -> str:
    fields = (
        _field("Bicycle", "bicycle"),
        _select("Kind", "kind", KINDS),
        _select("Mechanic", "mechanic", MECHANICS),
        "<label><input type=checkbox name=urgent> Urgent</label>",
        "<label>Complaint <textarea name=complaint></textarea></label>",
    )
    return page("New job", _form("/jobs/new", fields, "Save job"))


def job(number: int, held: dict[str, Any]) -> str:
    at = f"/jobs/{number}"
    changes = {"open": "Start work", "in work": "Finish"}
    change = changes.get(held["status"])
    form = _form(f"{at}/change", (), change) if change else ""
    return page(
        escape(held["bicycle"]),
        f"<p>{held['status']}, {held['mechanic']}</p>{form}<ul id=notes>{notes(held)}</ul>"
        f"<label>Note <input id=note></label><button onclick='add()'>Add note</button>{_cancelling(at)}"
        "<script>function add() { const note = document.getElementById('note');"
        f"fetch('{at}/note', {{method: 'POST', body: new URLSearchParams({{text: note.value}})}})"
        ".then(r => r.text())"
        ".then(t => { document.getElementById('notes').innerHTML = t; note.value = '' }) }</script>",
    )


def notes(held: dict[str, Any]) -> str:
    return "".join(f"<li>{escape(note['text'])} at {note['at'][11:19]}</li>" for note in held["notes"])


def _cancelling(at: str) -> str:
    return (
        "<button onclick='document.getElementById(\"sure\").showModal()'>Cancel job</button>"
        f"<dialog id=sure aria-label='Cancel this job?'><form method=post action='{at}/cancel'>"
        f"{_select('Reason', 'reason', REASONS)}"
        "<label><input type=checkbox name=told> Tell the customer</label>"
        "<button>Cancel job</button></form>"
        "<button onclick='document.getElementById(\"sure\").close()'>Keep it</button></dialog>"
    )


def parts(state: dict[str, Any], wanted: str) -> str:
    found = [part for part in state["parts"] if wanted.lower() in part["name"].lower()]
    rows = " ".join(
        f"<li>{part['name']}, {part['stock']} there "
        + _form("/orders", (f"<input type=hidden name=part value='{part['name']}'>",
                            "<input name=pieces aria-label=Pieces>"), "Order")
        + "</li>"
        for part in found
    )  # fmt: skip
    search = f"<form><input name=wanted aria-label='Search parts' value='{escape(wanted)}'></form>"
    return page("Parts", f"{search}<ul>{rows}</ul>")


def orders(state: dict[str, Any]) -> str:
    rows = " ".join(
        f"<li>{escape(order['pieces'])} of {order['part']} {_form(f'/orders/{n}/remove', (), 'Remove')}</li>"
        for n, order in enumerate(state["orders"])
    )
    return page("Orders", f"<ul>{rows}</ul>")


def customers(state: dict[str, Any]) -> str:
    return page("Customers", " ".join(
        f"<p><a href='/customers/{n}'>{one['name']}</a></p>" for n, one in enumerate(state["customers"])
    ))  # fmt: skip


def customer(number: int, held: dict[str, Any]) -> str:
    ticked = "checked" if held["newsletter"] else ""
    fields = (
        _field("Phone", "phone", held["phone"]),
        f"<label><input type=checkbox name=newsletter {ticked}> Newsletter</label>",
    )
    return page(held["name"], _form(f"/customers/{number}", fields, "Save customer"))


def settings(held: dict[str, Any]) -> str:
    radios = " ".join(
        f"<label><input type=radio name=opening value={each} {'checked' if held['opening'] == each else ''}>"
        f" {each.title()}</label>"
        for each in ("weekdays", "weekend")
    )
    ticked = "checked" if held["reminders"] else ""
    reminders = f"<label><input type=checkbox name=reminders {ticked}> Send reminders</label>"
    fields = (radios, reminders, _field("Greeting", "greeting", held["greeting"]))
    return page("Settings", _form("/settings", fields, "Save settings"))


def _form(action: str, fields: Iterable[str], button: str) -> str:
    return f"<form method=post action='{action}'>{' '.join(fields)} <button>{button}</button></form>"


def _field(label: str, name: str, value: str = "") -> str:
    return f"<label>{label} <input name={name} value='{escape(value)}'></label>"


def _select(label: str, name: str, options: Iterable[str], chosen: str = "") -> str:
    rows = "".join(f"<option {'selected' if each == chosen else ''}>{each}</option>" for each in options)
    return f"<label for={name}>{label}</label> <select id={name} name={name}>{rows}</select>"


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
    "/": lambda state, _, __: home(state),
    "/jobs": lambda state, _, given: jobs(state, given.get("status", "")),
    "/jobs/new": lambda _, __, ___: new_job(),
    "/jobs/N": lambda state, number, _: job(number, state["jobs"][number]),
    "/parts": lambda state, _, given: parts(state, given.get("wanted", "")),
    "/orders": lambda state, _, __: orders(state),
    "/customers": lambda state, _, __: customers(state),
    "/customers/N": lambda state, number, _: customer(number, state["customers"][number]),
    "/settings": lambda state, _, __: settings(state["settings"]),
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
    return Said(notes(records.state["jobs"][number]))


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
