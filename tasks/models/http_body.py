"""The HTTP body of any server's answer, unpacked within a bound: a few bytes can unpack to gigabytes."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterable, Iterator, Mapping

ENCODINGS = "gzip"  # what a request asks for in `Accept-Encoding`
_STEP = 1 << 16  # bytes
_GZIP = 16 + zlib.MAX_WBITS


class BodyRefused(Exception):
    """A body that cannot be read: `too-large`, `refused` (its encoding), or `connection` (cut, damaged)."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


async def unpacked(
    raw: AsyncIterable[bytes], headers: Mapping[str, str], most: int
) -> AsyncGenerator[bytes, None]:
    """Yield an unpacked body in pieces of at most 64 KB, or as they came.

    `headers` are found in any letter case; `most` is the largest size in bytes, both announced and unpacked.

    Raises:
        BodyRefused: It is larger, damaged, ends too early, or has an encoding that was not asked for.
    """
    announced = headers.get("Content-Length", "")
    if announced.isdecimal() and int(announced[:19]) > most:
        raise _too_large(f"announces {announced[:20]} bytes", most)
    size = 0
    async for piece in _pieces(raw, headers.get("Content-Encoding", "").strip().lower()):
        size += len(piece)
        if size > most:
            raise _too_large("goes on", most)
        yield piece


def _too_large(how: str, most: int) -> BodyRefused:
    return BodyRefused("too-large", f"the body {how}, beyond the {most} bytes that are read")


async def _pieces(raw: AsyncIterable[bytes], encoding: str) -> AsyncGenerator[bytes, None]:
    if encoding in {"", "identity"}:
        async for given in raw:
            yield given
        return
    if encoding not in {"gzip", "x-gzip", "deflate"}:
        detail = f"the body comes in the encoding {encoding[:40]!r}, which was not asked for"
        raise BodyRefused("refused", detail)
    unpacker = _Unpacker(gzip=encoding != "deflate")
    try:
        async for given in raw:
            for piece in unpacker.feed(given):
                yield piece
    except zlib.error as error:
        raise BodyRefused("connection", f"the body is damaged: {error}") from None
    if not unpacker.whole:
        raise BodyRefused("connection", "the body ends too early")


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
            while raw and not self._inflate.eof:
                if piece := self._inflate.decompress(raw, _STEP):
                    yield piece
                # Fed after its end, it would hand out the same bytes for ever.
                raw = self._inflate.unconsumed_tail
            raw = self._inflate.unused_data

    def _begin(self, raw: bytes) -> zlib._Decompress:
        if self._bits is None:
            # `deflate` should mean zlib's format; some servers leave its two bytes of header out.
            self._bits = zlib.MAX_WBITS if raw[0] & 0x0F == zlib.DEFLATED else -zlib.MAX_WBITS
        return zlib.decompressobj(self._bits)
