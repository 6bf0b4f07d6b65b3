"""Requests whose steps are known: read from a file, with the categories in which their steps count."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from storage.errors import WrongInput
from storage.jsonl import read_lines, text_field
from tasks.evaluate.compose.measures import Needed, NeededStep

_FORM = "{query_id, query, steps, edges}"


@dataclass(frozen=True, slots=True)
class KnownRequest:
    """A request whose steps are known: what it says, what each step is for, and what it needs.

    `descriptions` is None where the file has none; `main` holds each step's `servers` without `also`, in
    lower case, and is empty where they are not known; `paraphrase` says the same in other words.
    """

    query_id: str
    query: str
    difficulty: str
    descriptions: tuple[str, ...] | None
    needed: Needed
    tags: tuple[str, ...] = ()
    main: tuple[frozenset[str], ...] = ()
    paraphrase: str | None = None

    def reworded(self) -> KnownRequest:
        """Return the request in the words of its paraphrase."""
        return replace(self, query=self.paraphrase or self.query, paraphrase=None)


@dataclass(frozen=True, slots=True)
class CategorySet:
    """The categories that count: those of the index, or others that a file maps them to."""

    mapped: Mapping[str, str] | None = None

    def of(self, category: str | None) -> frozenset[str]:
        """Return the category of a row of the index; none if it has none, or one that is not mapped."""
        found = category if self.mapped is None else self.mapped.get(category or "")
        return frozenset({found}) if found else frozenset()

    def of_step(self, step: Mapping[str, Any]) -> frozenset[str]:
        """Return the categories of a request's step: its `categories`, or its `category24` where mapped."""
        if self.mapped is not None and "category24" in step:
            return frozenset({str(step["category24"])})
        return frozenset(c for name in step.get("categories", ()) for c in self.of(name))


def read_categories(path: Path | None) -> CategorySet:
    """Return the categories of a JSON file `{category of the index: category that counts}`; no file, its own.

    Raises:
        WrongInput: The file cannot be read, or is no such object.
    """
    if path is None:
        return CategorySet()
    try:
        held = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        msg = f"--categories {path} cannot be read ({error}): give JSON {{category: category that counts}}"
        raise WrongInput(msg) from error
    if not isinstance(held, dict) or not all(isinstance(value, str) for value in held.values()):
        msg = f"--categories {path} is no JSON object of texts: give {{category: category that counts}}"
        raise WrongInput(msg)
    return CategorySet(held)


def read_requests(path: Path, categories: CategorySet | None = None) -> list[KnownRequest]:
    """Return the requests of a file of JSON lines `{query_id, query, difficulty, tags, steps, edges}`.

    A step may have `description`, `servers`, `also`, and `categories` or `category24`; an edge is a pair of
    places from 1 on. What a request does not say (its servers, its edges) is not measured on it.

    Raises:
        WrongInput: The file cannot be read, holds none, or a line has another form; names file and line.
    """
    chosen, found = categories or CategorySet(), []
    for where, row in read_lines(path, _FORM):
        found.append(_request(where, row, chosen))
    if not found:
        raise WrongInput(f"{path}: holds no request; give JSON lines {_FORM}")
    if len({request.query_id for request in found}) < len(found):
        raise WrongInput(f"{path}: a query_id occurs twice; mend the file")
    return found


def _request(where: str, row: dict[str, Any], categories: CategorySet) -> KnownRequest:
    query_id, query = text_field(row, "query_id", where), text_field(row, "query", where)
    try:
        given = [_told_something(step) for step in row["steps"]]
        known = all("servers" in step for step in given)
        steps = tuple(_step(step, categories, known=known) for step in given)
        told = tuple(step.get("description") for step in given)
        edges = frozenset((int(a) - 1, int(b) - 1) for a, b in row["edges"]) if "edges" in row else None
        if edges and not all(0 <= place < len(steps) for edge in edges for place in edge):
            raise ValueError(f"an edge leads outside of {len(steps)} steps")
        main = tuple(_lower(step["servers"]) for step in given) if known else ()
        tags = tuple(map(str, row.get("tags", ())))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise WrongInput(f"{where}: a step or an edge has another form ({error!r}); give {_FORM}") from error
    if categories.mapped is None and any("category24" in step for step in given):
        msg = f"{where}: its steps have `category24`: give --categories, which maps the index's to them"
        raise WrongInput(msg)
    texts = tuple(map(str, told)) if all(told) else None
    paraphrase = text_field(row, "paraphrase", where) if row.get("paraphrase") else None
    difficulty = str(row.get("difficulty", ""))
    return KnownRequest(query_id, query, difficulty, texts, Needed(steps, edges), tags, main, paraphrase)


_SAYS = ("description", "servers", "categories", "category24")


def _told_something(step: Mapping[str, Any]) -> Mapping[str, Any]:
    if not any(key in step for key in _SAYS):
        raise ValueError(f"a step has none of {', '.join(_SAYS)}")
    return step


def _step(step: Mapping[str, Any], categories: CategorySet, *, known: bool) -> NeededStep:
    servers = _lower([*step["servers"], *step.get("also", ())]) if known else None
    return NeededStep(servers, categories.of_step(step))


def _lower(names: list[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)
