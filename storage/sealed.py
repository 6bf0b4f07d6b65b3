"""A checksum over the whole of a Parquet file, within its footer: pages have their own, headers have none."""

from __future__ import annotations

import re
import zlib

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

DAMAGE = (pa.ArrowException, OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""What reading a damaged file raises; what Polars makes of a damaged schema may be no Exception at all."""

_KEY, _NONE = b"skillery.crc32", b"00000000"
# How the footer (Thrift, compact) holds the entry: the key, then a field of eight bytes.
_ENTRY = re.compile(re.escape(_KEY) + rb"\x18\x08(.{8})", re.DOTALL)


def sealed_parquet(table: pa.Table) -> bytes:
    """Return a table as a Parquet file whose pages, and itself as a whole, have a checksum (CRC-32)."""
    metadata = {**(table.schema.metadata or {}), _KEY: _NONE}
    buffer = pa.BufferOutputStream()
    pq.write_table(
        table.replace_schema_metadata(metadata), buffer, compression="zstd", write_page_checksum=True
    )
    data = bytearray(buffer.getvalue())
    entry = _entry(data)
    if entry is None:
        msg = "this version of Arrow writes footers otherwise: the checksum of the file has no place"
        raise AssertionError(msg)
    data[entry.start(1) : entry.end(1)] = b"%08x" % zlib.crc32(data)
    return bytes(data)


def check_seal(data: bytes) -> None:
    """Let a Parquet file pass whose checksum is right, or which has none (older versions wrote none).

    Raises:
        ValueError: Its bytes are not those that were written.
    """
    entry = _entry(data)
    if entry is None:
        return
    start, end = entry.span(1)
    with memoryview(data) as view:
        found = zlib.crc32(view[end:], zlib.crc32(_NONE, zlib.crc32(view[:start])))
    if b"%08x" % found != entry[1]:
        msg = "its bytes are not those that were written: the checksum of the file is another"
        raise ValueError(msg)


def _entry(data: bytes | bytearray) -> re.Match[bytes] | None:
    """Return where a footer holds the checksum: it comes last, and a text may hold the same bytes."""
    return _ENTRY.match(data, max(0, data.rfind(_KEY)))
