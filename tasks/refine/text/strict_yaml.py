"""Strict YAML, read from the parser's events: every scalar is a string; no aliases, no objects.

Events make it safe: no alias can multiply, and deep nesting, which takes the parser quadratic time, stops
it early. They also show repeated keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import yaml

Value: TypeAlias = "str | list[Value] | dict[str, Value]"
MAX_DEPTH = 16
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


class StrictYamlError(ValueError):
    """The text is no YAML document that front matter may hold; its message says why."""


class _Builder:
    def __init__(self, events: Iterator[yaml.Event]) -> None:
        self.events = events
        self.duplicates: list[str] = []

    def document(self) -> Value:
        next(self.events)  # the stream's start
        if isinstance(next(self.events), yaml.StreamEndEvent):
            return ""
        value = self.value(next(self.events), 0)
        next(self.events)  # the document's end
        if not isinstance(next(self.events), yaml.StreamEndEvent):
            raise StrictYamlError("several documents")
        return value

    def value(self, event: yaml.Event, depth: int) -> Value:
        if depth > MAX_DEPTH:
            raise StrictYamlError(f"nested deeper than {MAX_DEPTH} levels")
        if getattr(event, "anchor", None) is not None:
            raise StrictYamlError("anchors and aliases are not allowed")
        if isinstance(event, yaml.ScalarEvent):
            plain_null = not event.style and event.value in _NULLS
            return "" if plain_null else str(event.value)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(depth + 1)
        return self._mapping(depth + 1)

    def _sequence(self, depth: int) -> list[Value]:
        items: list[Value] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self.value(event, depth))
        return items

    def _mapping(self, depth: int) -> dict[str, Value]:
        fields: dict[str, Value] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self.value(event, depth)
            if not isinstance(key, str):
                raise StrictYamlError("a key is a list or a mapping")
            value = self.value(next(self.events), depth)
            if key in fields:
                self.duplicates.append(key)
                value = value or fields[key]
            fields[key] = value
        return fields


def _problem(error: Exception) -> str:
    """Return the parser's complaint in one line, with the number of the front matter's line."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "not readable"
    return f"{problem} (line {mark.line + 1})" if mark else str(problem)


def load_strict(text: str) -> tuple[Value, tuple[str, ...]]:
    """Return the value of one YAML document and its repeated keys; null and an empty text are "".

    Raises:
        StrictYamlError: It is no YAML, has several documents, anchors or keys of no text, or nests too deep.
    """
    builder = _Builder(iter(yaml.parse(text, Loader=_LOADER)))
    try:
        value = builder.document()
    except (yaml.YAMLError, UnicodeError) as error:
        raise StrictYamlError(_problem(error)) from error
    return value, tuple(dict.fromkeys(builder.duplicates))
