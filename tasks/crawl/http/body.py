"""The body of an HTTP answer: unpacked in steps of bounded size, and read up to a limit."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import AsyncGenerator, Iterator
from typing import BinaryIO

import aiohttp

from tasks.crawl.http.errors import HttpTerminal, HttpTransient

_STEP = 1 << 16  # bytes
_GZIP = 16 + zlib.MAX_WBITS


async def read_body(response: aiohttp.ClientResponse, sink: BinaryIO, *, max_bytes: int) -> None:
    """Write the unpacked body of an answer into `sink`; bytes written before an error stay there.

    Args:
        response: An answer whose body the client has not unpacked.
        sink: Where the body goes.
        max_bytes: The largest size of a body, both announced and unpacked.

    Raises:
        HttpTerminal: `too-large`, or `refused` if the encoding was not asked for.
        HttpTransient: `connection`: the body ends too early or is damaged.
        aiohttp.ClientError, TimeoutError: The connection failed.
    """
    if (response.content_length or 0) > max_bytes:
        raise _too_large(response, max_bytes, f"announces {response.content_length} bytes")
    size = 0
    async with contextlib.aclosing(_pieces(response)) as pieces:
        async for piece in pieces:
            size += len(piece)
            if size > max_bytes:
                raise _too_large(response, max_bytes, "goes on")
            sink.write(piece)


async def read_start(response: aiohttp.ClientResponse, size: int) -> bytes:
    """Return the first `size` unpacked bytes of a body, or fewer if the body ends or breaks off earlier."""
    start = b""
    with contextlib.suppress(aiohttp.ClientError, TimeoutError, HttpTerminal, HttpTransient):
        async with contextlib.aclosing(_pieces(response)) as pieces:
            async for piece in pieces:
                start += piece
                if len(start) >= size:
                    # Closed, since reading the rest would only serve to keep the connection.
                    response.close()
                    break
    return start[:size]


async def _pieces(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """Yield an unpacked body in pieces of at most about 128 KB."""
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding in {"", "identity"}:
        async for raw in response.content.iter_any():
            yield raw
        return
    if encoding not in {"gzip", "x-gzip", "deflate"}:
        detail = f"the body comes in the encoding {encoding[:40]!r}, which was not asked for"
        raise HttpTerminal("refused", response.url, detail, status=response.status)
    unpacker = _Unpacker(gzip=encoding != "deflate")
    try:
        async for raw in response.content.iter_any():
            for piece in unpacker.feed(raw):
                yield piece
    except zlib.error as error:
        raise HttpTransient("connection", response.url, f"the body is damaged: {error}") from None
    if not unpacker.whole:
        raise HttpTransient("connection", response.url, "the body ends too early")


class _Unpacker:
    """Unpacks gzip and zlib streams, with bounded memory: a few bytes can unpack to gigabytes."""

    def __init__(self, *, gzip: bool) -> None:
        self._bits: int | None = _GZIP if gzip else None
        self._inflate: zlib._Decompress | None = None

    @property
    def whole(self) -> bool:
        """Whether the stream has come to its end, or never began."""
        return self._inflate is None or self._inflate.eof

    def feed(self, raw: bytes) -> Iterator[bytes]:
        """Yield the bytes that `raw` unpacks to, in pieces of at most 64 KB."""
        while raw:
            if self._inflate is None or self._inflate.eof:
                self._inflate = self._begin(raw)
            piece = self._inflate.decompress(raw, _STEP)
            while piece:
                yield piece
                piece = self._inflate.decompress(self._inflate.unconsumed_tail, _STEP)
            raw = self._inflate.unused_data

    def _begin(self, raw: bytes) -> zlib._Decompress:
        if self._bits is None:
            # `deflate` should mean zlib's format; some servers leave its two bytes of header out.
            self._bits = zlib.MAX_WBITS if raw[0] & 0x0F == zlib.DEFLATED else -zlib.MAX_WBITS
        return zlib.decompressobj(self._bits)


def _too_large(response: aiohttp.ClientResponse, max_bytes: int, how: str) -> HttpTerminal:
    detail = f"the body {how}, beyond the {max_bytes} bytes that are read"
    return HttpTerminal("too-large", response.url, detail, status=response.status)
