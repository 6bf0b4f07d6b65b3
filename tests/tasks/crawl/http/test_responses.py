"""Bodies of answers, and streams of requests in order."""

from __future__ import annotations

import asyncio
import gzip
import random
import threading
import tracemalloc
import zlib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from aiohttp import web

from storage.root import Root
from tasks.crawl.http.responses import HttpTerminal, HttpTransient
from tasks.crawl.source.base import drain, in_order
from tasks.models.retry import RetryPolicy
from tests.support.crawl.loopback_host import Host, Reply, impatient, in_loop, says

TEXT = b"Smoke the hive before you open it. " * 20_000
NOISE = random.Random(3).randbytes(300_000)  # noqa: S311
MEGABYTE = 1_000_000


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def sends(head: str, pieces: list[bytes], *, endless: bool = False) -> Reply:
    """Return a reply that writes its bytes to the connection as they are."""

    async def reply(request: web.Request) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None
        transport.write(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode())
        while not transport.is_closing():
            for piece in pieces:
                transport.write(piece)
            await asyncio.sleep(0.001)
            if not endless:
                transport.close()
        return web.Response()

    return reply


@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE], ids=["empty", "byte", "text", "noise"])
@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("identity", bytes),
        ("gzip", gzip.compress),
        ("x-gzip", gzip.compress),
        ("GZip", lambda data: gzip.compress(data[:100_000]) + gzip.compress(data[100_000:])),
        ("deflate", zlib.compress),
        ("deflate", raw_deflate),
    ],
    ids=["plain", "gzip", "x-gzip", "two members", "zlib", "raw deflate"],
)
@in_loop
async def test_packed_bodies_arrive_unpacked(root: Root, data: bytes, encoding: str, pack: Reply) -> None:
    reply = says(pack(data), Content_Encoding=encoding)  # type: ignore[arg-type]
    async with Host({"/a": reply}) as host, host.http(root) as http:
        assert (await http.get(f"{host.url}/a")).body == data
        assert host.requests[0].headers["Accept-Encoding"] == "gzip"


@pytest.mark.parametrize(("encoding", "pack"), [("identity", bytes), ("gzip", gzip.compress)])
@in_loop
async def test_the_limit_holds_to_the_byte(root: Root, tmp_path: Path, encoding: str, pack: Reply) -> None:
    replies = {f"/{n}": says(pack(b"b" * n), Content_Encoding=encoding) for n in (1000, 1001)}  # type: ignore[arg-type]
    async with Host(replies) as host, host.http(root) as http:
        assert (await http.get(f"{host.url}/1000", max_bytes=1000)).body == b"b" * 1000
        await http.download(f"{host.url}/1000", tmp_path / "a", max_bytes=1000)
        assert (tmp_path / "a").read_bytes() == b"b" * 1000
        for asked in (http.get, lambda url, **limit: http.download(url, tmp_path / "b", **limit)):
            with pytest.raises(HttpTerminal) as caught:
                await asked(f"{host.url}/1001", max_bytes=1000)
            assert caught.value.reason == "too-large"
        assert {f.name for f in tmp_path.iterdir()} <= {"root", "a"}
        assert len(host.requests) == 4


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (says(b"x", Content_Encoding="br"), "'br'"),
        (sends("Content-Length: 10000000000", [b"x"]), "announces 10000000000 bytes"),
    ],
    ids=["an encoding that nobody asked for", "a length beyond the limit"],
)
@in_loop
async def test_a_body_is_refused_unread(root: Root, reply: Reply, said: str) -> None:
    async with Host({"/a": reply}) as host, host.http(root) as http:
        with pytest.raises(HttpTerminal, match=said):
            await http.get(f"{host.url}/a")


@pytest.mark.parametrize("head", ["Content-Type: text/plain", "Transfer-Encoding: chunked"])
@in_loop
async def test_a_body_without_end_is_cut_at_the_limit(root: Root, tmp_path: Path, head: str) -> None:
    chunk = b"z" * 50_000
    piece = b"c350\r\n" + chunk + b"\r\n" if "chunked" in head else chunk
    reply = sends(head, [piece], endless=True)
    async with Host({"/a": reply}) as host, host.http(root) as http:
        with pytest.raises(HttpTerminal, match="goes on, beyond the 1000000 bytes"):
            await http.get(f"{host.url}/a", max_bytes=MEGABYTE)
        with pytest.raises(HttpTerminal, match="goes on"):
            await http.download(f"{host.url}/a", tmp_path / "a", max_bytes=MEGABYTE)
        assert not list(tmp_path.glob("a*"))


@in_loop
async def test_more_or_less_than_was_announced_is_a_cut_connection(root: Root, tmp_path: Path) -> None:
    more = sends("Content-Length: 10", [b"0123456789" * 5000], endless=True)
    less = sends("Content-Length: 1000", [b"x" * 999])
    limits = impatient(retry=RetryPolicy(tries=1))
    replies = {"/more": more, "/less": less, "/b": says(b"b")}
    async with Host(replies) as host, host.http(root, limits) as http:
        with pytest.raises(HttpTransient, match="broke off") as caught:
            await http.get(f"{host.url}/more")
        assert caught.value.reason == "connection"
        assert (await http.get(f"{host.url}/b")).body == b"b"
        for asked in (http.get(f"{host.url}/less"), http.download(f"{host.url}/less", tmp_path / "a")):
            with pytest.raises(HttpTransient) as caught:
                await asked
            assert caught.value.reason == "connection"
        assert not list(tmp_path.glob("a*"))


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """100 MB of zeros in 100 KB."""
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    return b"".join(packer.compress(bytes(MEGABYTE)) for _ in range(100)) + packer.flush()


@pytest.mark.parametrize("status", [200, 500])
@in_loop
async def test_a_gzip_bomb_takes_no_memory(root: Root, bomb: bytes, status: int) -> None:

    reply = says(bomb, status, Content_Encoding="gzip")
    async with Host({"/a": reply}) as host, host.http(root) as http:
        tracemalloc.start()
        with pytest.raises(HttpTerminal if status == 200 else HttpTransient):
            await http.get(f"{host.url}/a", max_bytes=MEGABYTE)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 * MEGABYTE


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

    async def broken() -> AsyncGenerator[int, None]:
        yield 1
        raise LookupError("nothing on the shelf")

    stream = drain(broken)
    assert next(stream) == 1
    with pytest.raises(LookupError, match="shelf"):
        next(stream)


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
