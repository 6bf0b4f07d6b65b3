"""Builds the prompt of a question: the rules, quoted data, what is asked, and what was wrong before."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import resources
from typing import Any

from tasks.models.llm.quoting import data_block, quoted

Messages = tuple[tuple[str, str], ...]


def messages_of(
    package: str, rules: str, record: Mapping[str, object], task: str, complaint: str | None
) -> Messages:
    """Return the messages of a question about one record, which is quoted as data.

    Args:
        package: Has the folder `data/` with the rules, such as `tasks.evaluate`.
        rules: The file of the rules.
        record: What the question is about.
        task: What is asked of it.
        complaint: What was wrong with the answer before; None: there was none.
    """
    parts = [data_block([quoted(record)]), task]
    if complaint is not None:
        parts.append(f"An earlier answer could not be used. What was wrong: {quoted({'error': complaint})}")
    return ("system", _rules(package, rules)), ("user", "\n\n".join(parts))


@functools.cache
def _rules(package: str, name: str) -> str:
    return resources.files(package).joinpath("data", name).read_text(encoding="utf-8").strip()


def object_schema(**properties: object) -> dict[str, Any]:
    """Return the JSON schema of an object with these properties, all required, and no others."""
    return {
        "type": "object", "properties": properties, "required": list(properties),
        "additionalProperties": False,
    }  # fmt: skip


def list_schema(items: object) -> dict[str, Any]:
    """Return the JSON schema of a list of such items."""
    return {"type": "array", "items": items}
