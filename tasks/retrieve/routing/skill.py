"""A skill as methods of routing, and what is written about it, read it."""

from __future__ import annotations

from typing import NamedTuple

TEMPLATE = "{name}\n{description}"


class Skill(NamedTuple):
    """What is read of a skill; `body` is without front matter."""

    doc_id: str
    name: str
    description: str
    body: str

    @property
    def text(self) -> str:
        """Name, description and body, a line each."""
        return f"{self.name}\n{self.description}\n{self.body}"
