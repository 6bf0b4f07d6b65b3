"""Micro-batches: requests that come at once share a call of an encoder, and a reading of all vectors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Generic, TypeVar

import numpy as np

from tasks.models.protocols import Vectors

_BLOCK = 256  # rows, which stay in a processor's cache while one query after the other is laid beside them
A = TypeVar("A")
R = TypeVar("R")


class MicroBatches(Generic[A, R]):
    """Has calls of a function that threads make at once done together, `lanes` of them at a time.

    A call begins at once if a lane is free. What comes while none is waits, and goes into the next call.
    """

    def __init__(self, lanes: int) -> None:
        self._free, self._changed = lanes, threading.Condition()
        self._waiting: dict[Future[R], A] = {}

    def __call__(self, work: Callable[[list[A]], list[R]], value: A) -> R:
        """Return the result for one value; raise what `work` raises for it alone.

        `work` returns a result for each value, which depends on no other; the same function each time. It is
        not kept: an index whose method it is would keep itself, with its mapped files.
        """
        own: Future[R] = Future()
        taken: dict[Future[R], A] = {}
        with self._changed:
            self._waiting[own] = value
            self._changed.wait_for(lambda: self._free or own not in self._waiting)
            if own in self._waiting:
                taken, self._waiting = self._waiting, taken
                self._free -= 1
        if taken:
            with suppress(Exception):
                self._do(work, taken)
        try:
            return own.result()
        except CancelledError:  # what fails together is done alone, so that none fails for another
            return work([value])[0]

    def _do(self, work: Callable[[list[A]], list[R]], taken: dict[Future[R], A]) -> None:
        try:
            for own, result in zip(taken, work([*taken.values()]), strict=True):
                own.set_result(result)
        finally:
            for own in taken:
                own.cancel()  # unless it has its result
            with self._changed:
                self._free += 1
                self._changed.notify_all()


def cosines(vectors: Vectors, queries: Vectors) -> Vectors:
    """Return the product of each query with each of the vectors, shape `(queries, vectors)`.

    Each query is laid beside each block of vectors by itself: to the last bit, none depends on the others.
    """
    whole, beside = len(vectors) - len(vectors) % _BLOCK, queries[:, :, None]
    blocks = vectors[:whole].reshape(-1, 1, _BLOCK, vectors.shape[1]) @ beside
    first = blocks.swapaxes(0, 1).reshape(len(queries), whole)
    return np.concatenate([first, (vectors[whole:] @ beside)[:, :, 0]], axis=1)
