"""Archives that no honest forge makes; each holds a proper skill too, so that it would be worth reading."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

_FRONT = "---\nname: bait\ndescription: Ties a fishing knot that holds\n---\n"
_SKILL = f"{_FRONT}# Knots\n\nWet the line before you pull.\n"
_ROOT = "trap-main"


def _archive(members: Iterable[tuple[str | ZipInfo, bytes]]) -> bytes:
    packed = io.BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        archive.writestr(f"{_ROOT}/skills/bait/SKILL.md", _SKILL)
        for name, content in members:
            archive.writestr(name, content)
    return packed.getvalue()


def climbing() -> bytes:
    """An entry that climbs out of the folder it is unpacked to."""
    return _archive([(f"{_ROOT}/../../../climbed.txt", b"out")])


def absolute() -> bytes:
    """An entry with an absolute path."""
    return _archive([("/absolute.txt", b"out")])


def bomb(size: int) -> bytes:
    """A SKILL.md of this many bytes that packs to a thousandth of it."""
    packed = io.BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        archive.writestr(f"{_ROOT}/skills/bait/SKILL.md", _SKILL)
        with archive.open(f"{_ROOT}/skills/bomb/SKILL.md", "w", force_zip64=size > 2**31) as member:
            for piece in _zeros(size):
                member.write(piece)
    return packed.getvalue()


def bundle_bomb(size: int) -> bytes:
    """A file of this many bytes beside a SKILL.md; it packs to a thousandth of it."""
    return _archive([(f"{_ROOT}/skills/bait/assets/zeros.bin", b"\0" * size)])


def understated(size: int, said: int) -> bytes:
    """A SKILL.md of `size` bytes that both its headers say is of `said` bytes."""
    packed = bomb(size)
    true, false = size.to_bytes(4, "little"), said.to_bytes(4, "little")
    with ZipFile(io.BytesIO(packed)) as archive:
        crc = archive.getinfo(f"{_ROOT}/skills/bomb/SKILL.md").CRC.to_bytes(4, "little")
    changed = bytearray(packed)
    # Both headers have the CRC, the packed size, the unpacked size, one after the other.
    at = packed.find(crc)
    while at >= 0:
        if packed[at + 8 : at + 12] == true:
            changed[at + 8 : at + 12] = false
        at = packed.find(crc, at + 1)
    return bytes(changed)


def encrypted() -> bytes:
    """An entry that says it is encrypted."""
    packed = bytearray(_archive([]))
    packed[6] |= 1
    packed[packed.rfind(b"PK\x01\x02") + 8] |= 1
    return bytes(packed)


def damaged() -> bytes:
    """An archive whose second half is missing."""
    packed = _archive([(f"{_ROOT}/more.bin", bytes(range(256)) * 40)])
    return packed[: len(packed) // 2]


def endless(size: int = 10_000_000_000) -> Callable[[], Iterator[bytes]]:
    """A body of this many bytes that begins as an archive does; its length is not announced."""

    def body() -> Iterator[bytes]:
        yield _archive([])[:200]
        yield from _zeros(size - 200)

    return body


def _zeros(size: int) -> Iterator[bytes]:
    block = bytes(65_536)
    for start in range(0, size, len(block)):
        yield block[: size - start]
