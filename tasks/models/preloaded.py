"""Preloaded models: one is loaded in a thread of its own while other work is done, and once a process."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, ParamSpec, TypeVar, cast

P = ParamSpec("P")
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


def loaded_once(most: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Have the last `most` results of a function kept, as `lru_cache` does, but threads wait for each other.

    Threads that ask for the same at once get what one of them loads.
    """

    def decorate(load: Callable[P, T]) -> Callable[P, T]:
        def begun(*args: P.args, **kwargs: P.kwargs) -> Preloaded[T]:
            return Preloaded(functools.partial(load, *args, **kwargs))

        lock, kept = threading.Lock(), functools.lru_cache(most)(begun)

        @functools.wraps(load)
        def loaded(*args: P.args, **kwargs: P.kwargs) -> T:
            with lock:
                found = kept(*args, **cast("dict[str, Hashable]", kwargs))
            return found.get()

        return loaded

    return decorate
