"""Tuned: what a root's own requests taught of reading, used by `search` in place of packaged numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from storage.errors import StorageError
from storage.root import Root
from tasks.retrieve.routing.fit import FitModel
from tasks.retrieve.routing.reranker import REACHES, Reach

FILE = "state/tuned.json"


class Tuned(NamedTuple):
    """Numbers of one way of reading: of `rerank`, learned `at` a time of so many `requests`."""

    rerank: str
    weight: float
    reading: tuple[float, ...]
    least: float
    requests: int
    at: str

    @property
    def reach(self) -> Reach:
        """How far skills are read, and the weight of that."""
        return REACHES[self.rerank]._replace(weight=self.weight)

    def fit(self, packaged: FitModel) -> FitModel:
        """Return the packaged model with what was learned of reading."""
        return packaged._replace(reading=np.array(self.reading), least=self.least)

    def said(self) -> dict[str, Any]:
        """Return what `search`, `status` and `doctor` say of it."""
        return {"rerank": self.rerank, "requests": self.requests, "at": self.at}


def read_tuned(root: Root) -> Tuned | None:
    """Return what a root's own requests taught, None if nothing; raises `StorageError` of a damaged file."""
    held = root.read_json(FILE)
    if held is None:
        return None
    try:
        found = Tuned(**{**held, "reading": tuple(map(float, held["reading"]))})
        float(found.weight), float(found.least), REACHES[found.rerank], str(found.at)
    except (KeyError, TypeError, ValueError) as error:
        msg = f"{root.at(FILE)} is damaged ({error!r}): `skillery train requests --remove` removes it"
        raise StorageError(msg) from error
    return found


def write_tuned(root: Root, tuned: Tuned | None) -> bool:
    """Write it, or remove it if None; return whether something else was there."""
    was = root.exists(FILE)
    if tuned is not None:
        root.write_json(FILE, tuned._asdict())
    elif was:
        root.delete(FILE)
    return was
