"""Records of the workshop: jobs, parts, orders, customers and settings, with times of changes."""

from __future__ import annotations

import time
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

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
