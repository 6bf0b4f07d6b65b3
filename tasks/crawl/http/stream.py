"""Pulls an asynchronous stream from synchronous code, while its requests go on in a thread of their own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TypeVar

from anyio.from_thread import start_blocking_portal

T = TypeVar("T")


def drain(make: Callable[[], AsyncGenerator[T, None]]) -> Iterator[T]:
    """Yield what `make()` yields; its event loop runs on between two items, and ends with the iterator.

    Every item is asked for in a task of its own, so the generator must not hold a task group or a time-out
    open across a `yield`. What it raises is raised here.
    """
    with start_blocking_portal() as portal:
        items = make()
        try:
            while True:
                try:
                    item = portal.call(anext, items)
                except StopAsyncIteration:
                    return
                yield item
        finally:
            portal.call(items.aclose)
