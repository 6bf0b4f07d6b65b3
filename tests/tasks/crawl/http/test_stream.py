from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator

import pytest

from tasks.crawl.http.stream import drain, in_order


def test_items_come_in_their_order_and_the_generator_is_closed() -> None:
    closed = []

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            for n in range(3):
                await asyncio.sleep(0)
                yield n
        finally:
            closed.append(True)

    assert list(drain(numbers)) == [0, 1, 2]
    stream = drain(numbers)
    assert next(stream) == 0
    stream.close()  # type: ignore[attr-defined]
    assert closed == [True, True]


def test_work_goes_on_while_nobody_asks_for_an_item() -> None:
    done = threading.Event()

    async def busy() -> AsyncGenerator[str, None]:
        async def work() -> None:
            await asyncio.sleep(0.01)
            done.set()

        task = asyncio.create_task(work())
        yield "started"
        await task

    stream = drain(busy)
    assert next(stream) == "started"
    assert done.wait(10)
    assert list(stream) == []


def test_what_the_generator_raises_is_raised_to_who_asks() -> None:
    async def broken() -> AsyncGenerator[int, None]:
        yield 1
        raise LookupError("nothing on the shelf")

    stream = drain(broken)
    assert next(stream) == 1
    with pytest.raises(LookupError, match="shelf"):
        next(stream)


def test_work_done_at_once_comes_out_in_order_and_never_more_than_so_much_is_under_way() -> None:
    under_way, most = 0, 0

    async def double(n: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001 * (7 - n % 7))
        under_way -= 1
        return 2 * n

    async def collect() -> list[int]:
        return [n async for n in in_order(double, range(40), 5)]

    assert asyncio.run(collect()) == [2 * n for n in range(40)]
    assert 1 < most <= 5


def test_what_is_under_way_is_ended_when_nobody_wants_it_any_more() -> None:
    ended = []

    async def endless(n: int) -> int:
        if n == 0:
            return 0
        try:
            await asyncio.sleep(3_600)
        finally:
            ended.append(n)
        return n

    async def first() -> None:
        stream = in_order(endless, range(4), 4)
        assert await anext(stream) == 0
        await stream.aclose()

    asyncio.run(first())
    assert sorted(ended) == [1, 2, 3]
