"""A skill as the methods of routing read it, and the template of its text."""

from __future__ import annotations

import hashlib
import json
from typing import NamedTuple

TEMPLATE = "{name}\n{description}"


class Skill(NamedTuple):
    """The fields of a skill that routing reads; `body` is without front matter."""

    doc_id: str
    name: str
    description: str
    body: str

    @property
    def head(self) -> str:
        """Name and description, the text that a skill's vector is made of."""
        return TEMPLATE.format(name=self.name, description=self.description)

    @property
    def text(self) -> str:
        """Name, description and body, a line each."""
        return f"{self.head}\n{self.body}"


def digest_of(skill: Skill) -> str:
    """Return 16 hexadecimal digits that change whenever the skill's id or one of its texts does."""
    return hashlib.sha256(json.dumps(skill).encode()).hexdigest()[:16]
