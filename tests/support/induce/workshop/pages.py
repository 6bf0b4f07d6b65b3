"""Pages of the workshop: nine of them, with forms, a dialog, and a part that a script redraws."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from tests.support.induce.workshop.records import KINDS, MECHANICS, REASONS

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
