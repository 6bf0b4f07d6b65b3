"""A skill as the methods of routing read it, and the template of its text."""

from __future__ import annotations

from typing import NamedTuple

TEMPLATE = "{name}\n{description}"


class Skill(NamedTuple):
    """The fields of a skill that routing reads; `body` is without front matter."""

    doc_id: str
    name: str
    description: str
    body: str

    @property
    def text(self) -> str:
        """Name, description and body, a line each."""
        return f"{self.name}\n{self.description}\n{self.body}"
