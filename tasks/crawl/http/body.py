"""Bodies of answers: read in bounded steps up to a limit, whatever they announce or unpack to."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import AsyncGenerator, Iterator
from typing import BinaryIO

import aiohttp

from tasks.crawl.http.errors import HttpTerminal, HttpTransient

_STEP = 1 << 16
_GZIP = 16 + zlib.MAX_WBITS


async def read_body(response: aiohttp.ClientResponse, sink: BinaryIO, *, max_bytes: int) -> None:
    """Write an answer's body, unpacked, into `sink`.

    Args:
        response: An answer whose body the client has not unpacked.
        sink: Where it goes; what was written before an error stays there.
        max_bytes: The most it may be, announced or unpacked.

    Raises:
        HttpTerminal: `too-large`, or `refused` where its encoding is none that was asked for.
        HttpTransient: `connection`: it ends too early or is damaged.
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
    """Return up to `size` bytes of a body, unpacked, or as many as came; the rest is not waited for."""
    start = b""
    with contextlib.suppress(aiohttp.ClientError, TimeoutError, HttpTerminal, HttpTransient):
        async with contextlib.aclosing(_pieces(response)) as pieces:
            async for piece in pieces:
                start += piece
                if len(start) >= size:
                    response.close()
                    break
    return start[:size]


async def _pieces(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """Yield an unpacked body in pieces of at most 128 KB or so."""
    unpack = _unpacker(response)
    try:
        async for raw in response.content.iter_any():
            for piece in unpack.feed(raw):
                yield piece
    except zlib.error as error:
        raise HttpTransient("connection", response.url, f"the body is damaged: {error}") from None
    if not unpack.whole:
        raise HttpTransient("connection", response.url, "the body ends too early")


class _Plain:
    """Leaves a body as it is."""

    whole = True

    def feed(self, raw: bytes) -> Iterator[bytes]:
        """Yield `raw`."""
        yield raw


class _Deflated:
    """Unpacks gzip and zlib; memory stays bounded however much a few bytes unpack to."""

    def __init__(self, *, gzip: bool) -> None:
        self._bits: int | None = _GZIP if gzip else None
        self._inflate: zlib._Decompress | None = None

    @property
    def whole(self) -> bool:
        """Whether the stream has come to its end, or never began."""
        return self._inflate is None or self._inflate.eof

    def feed(self, raw: bytes) -> Iterator[bytes]:
        """Yield what `raw` unpacks to, in pieces of at most 64 KB."""
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


def _unpacker(response: aiohttp.ClientResponse) -> _Plain | _Deflated:
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding in {"", "identity"}:
        return _Plain()
    if encoding in {"gzip", "x-gzip", "deflate"}:
        return _Deflated(gzip=encoding != "deflate")
    detail = f"the body comes in the encoding {encoding[:40]!r}, which was not asked for"
    raise HttpTerminal("refused", response.url, detail, status=response.status)


def _too_large(response: aiohttp.ClientResponse, max_bytes: int, how: str) -> HttpTerminal:
    detail = f"the body {how}, beyond the {max_bytes} bytes that are read"
    return HttpTerminal("too-large", response.url, detail, status=response.status)
