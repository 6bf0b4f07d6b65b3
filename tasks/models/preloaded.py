"""Preloaded models: one is loaded in a thread of its own while other work is done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class Preloaded(Generic[T]):
    """What a function loads, once; `load` is called when it is first needed."""

    def __init__(self, load: Callable[[], T]) -> None:
        self._load, self._lock = load, threading.Lock()
        self._loading: Future[T] | None = None

    def begin(self) -> Future[T]:
        """Begin to load, unless that was done."""
        with self._lock:
            # What failed is tried again: its files may have been mended since.
            if self._loading is None or (self._loading.done() and self._loading.exception()):
                pool = ThreadPoolExecutor(1)
                self._loading = pool.submit(self._load)
                pool.shutdown(wait=False)
            return self._loading

    def get(self) -> T:
        """Return what was loaded; raise what the function raised."""
        return self.begin().result()
