"""Tuned: what a root's own requests taught of reading, used by `search` in place of packaged numbers."""

from __future__ import annotations

import functools
import hashlib
import math
from typing import Any, NamedTuple

import numpy as np

from storage.errors import StorageError
from storage.root import Root
from tasks.retrieve.routing.fit import FILE as FIT
from tasks.retrieve.routing.fit import FitModel, packaged_fit
from tasks.retrieve.routing.reranker import FILE as RERANKER
from tasks.retrieve.routing.reranker import REACHES, Reach

FILE = "state/tuned.json"
UNUSED = "`skillery train requests` learns anew, with --remove the file goes"


class Tuned(NamedTuple):
    """Numbers of one way of reading: of `rerank`, learned `at` a time of so many `requests`.

    `package` is the digest of the packaged files that they were learned beside.
    """

    rerank: str
    weight: float
    reading: tuple[float, ...]
    least: float
    requests: int
    at: str
    package: str

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


@functools.cache
def package_digest() -> str:
    """Return the digest of the packaged reranker and fit: numbers tuned beside others mean nothing."""
    return hashlib.sha256(RERANKER.read_bytes() + FIT.read_bytes()).hexdigest()


def read_tuned(root: Root) -> Tuned | None:
    """Return what a root's own requests taught, None if nothing; keys that are not known are left out.

    Raises `StorageError` if it is damaged, or was learned beside another version of the packaged files.
    """
    try:
        held = root.read_json(FILE)
    except StorageError as error:
        raise StorageError(f"{error}: it is not used; {UNUSED}") from error
    if held is None:
        return None
    why = "was learned beside another version of the packaged model"
    if held.get("package") == package_digest():
        try:
            return _checked(held)
        except (KeyError, TypeError, ValueError) as error:
            why = f"is damaged ({error!r})"
    raise StorageError(f"{root.at(FILE)} {why}: it is not used; {UNUSED}")


def _checked(held: dict[str, Any]) -> Tuned:
    found = Tuned(**{name: held[name] for name in Tuned._fields})
    reading = tuple(found.reading)
    packaged = packaged_fit(found.rerank).reading if found.rerank in REACHES else None
    if packaged is None or len(reading) != len(packaged):
        raise ValueError(f"no {len(reading)} weights of {found.rerank!r} are known")
    for number in (found.weight, found.least, *reading):
        if type(number) not in (int, float) or not math.isfinite(number):
            raise ValueError(f"{number!r} is no number")
    if not 0 <= found.least <= 1 or type(found.requests) is not int or not isinstance(found.at, str):
        raise ValueError(f"least {found.least!r}, requests {found.requests!r}, at {found.at!r}")
    return found._replace(reading=reading)


def write_tuned(root: Root, tuned: Tuned | None) -> bool:
    """Write it, or remove it if None; return whether something else was there."""
    was = root.exists(FILE)
    if tuned is not None:
        root.write_json(FILE, tuned._asdict())
    elif was:
        root.delete(FILE)
    return was
