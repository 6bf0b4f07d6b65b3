"""Reads an asynchronous stream from synchronous code, and keeps several requests of a stream under way."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

from anyio.from_thread import start_blocking_portal

A = TypeVar("A")
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


async def in_order(
    work: Callable[[A], Awaitable[T]], items: Iterable[A], ahead: int
) -> AsyncGenerator[T, None]:
    """Yield `work` of each item in their order, up to `ahead` of them under way at once."""
    under_way: deque[asyncio.Future[T]] = deque()
    try:
        for item in items:
            under_way.append(asyncio.ensure_future(work(item)))
            if len(under_way) >= ahead:
                yield await under_way.popleft()
        while under_way:
            yield await under_way.popleft()
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
