"""Answers of models that a worker remembers: nothing that they were asked is worked out twice."""

from __future__ import annotations

import functools
import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from tasks.models import engine, model_cache
from tasks.models.adapted_encoder import token_vectors
from tasks.models.engine import Feed, OpenVino
from tasks.models.protocols import Vectors
from tasks.retrieve.routing import learned_leg

_BYTES = 200_000_000  # of answers; the one not asked for the longest gives way


class Remembering(OpenVino):
    """OpenVINO, which is asked only what was not asked of the same model before."""

    known: ClassVar[OrderedDict[bytes, Vectors]] = OrderedDict()
    held: ClassVar[int] = 0
    used: ClassVar[bool] = True

    def __init__(self, model: Path | bytes, threads: int) -> None:
        held = model if isinstance(model, bytes) else f"{model} {model.stat().st_mtime_ns}".encode()
        self._told = hashlib.sha256(held)
        super().__init__(model, threads)

    def run(self, feed: Feed) -> Vectors:
        if not Remembering.used:
            return super().run(feed)
        digest = self._told.copy()
        for name in sorted(feed):
            digest.update(f"{name} {feed[name].shape} {feed[name].dtype}".encode())
            digest.update(feed[name].tobytes())
        key, known = digest.digest(), Remembering.known
        found = known.pop(key, None)
        if found is None:
            found = super().run(feed)
            found.flags.writeable = False
            Remembering.held += found.nbytes
        known[key] = found
        while Remembering.held > _BYTES:
            Remembering.held -= known.popitem(last=False)[1].nbytes
        return found


def remember() -> None:
    """Let all encoders of this process share what was worked out, and load the vectors of tokens once."""
    for module in (engine, model_cache):
        module.__dict__["OpenVino"] = Remembering
    learned_leg.__dict__["token_vectors"] = functools.cache(token_vectors)


@contextmanager
def forgetful() -> Iterator[None]:
    """Work everything out, as tests of the encoders themselves must."""
    Remembering.used = False
    try:
        yield
    finally:
        Remembering.used = True
