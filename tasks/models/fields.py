"""Reads fields of what marketplaces, registries and models' servers answer: texts, times and counts.

JSON from third parties holds one fact in many forms. Each function takes any JSON value, never raises, and
returns None where the value has none of the known forms.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

_MILLISECONDS_FROM = 1e12  # seconds would be the year 33658
_COUNT = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[km]?)", re.I)
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000}
_LARGEST = 2**63 - 1  # what a column of 64-bit integers holds


def time_of(value: object) -> datetime | None:
    """Return a time in UTC.

    Known forms are seconds since 1970, as a number or as text, milliseconds where they exceed 10^12, and ISO
    8601, which is UTC where it names no zone.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        seconds = float(value)
    except ValueError:
        return _from_iso(str(value).strip())
    except OverflowError:
        return None
    try:
        moment = datetime.fromtimestamp(seconds / 1000 if seconds > _MILLISECONDS_FROM else seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    # Nothing was updated at 1970's first second: a zero means unknown.
    return moment if seconds > 0 else None


def _from_iso(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def count_of(value: object) -> int | None:
    """Return a count, such as a number of stars; texts such as `"137.1k"` and `"1,241"` are read too."""
    if isinstance(value, str):
        match = _COUNT.fullmatch(value.strip().replace(",", ""))
        value = float(match["number"]) * _UNITS[match["unit"].lower()] if match else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return round(value) if 0 <= value < _LARGEST else None


def whole_of(value: object, most: int = _LARGEST) -> int | None:
    """Return a whole number from 0 to `most`: JSON may hold one of hundreds of digits."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= most else None


def text_of(value: object) -> str | None:
    """Return stripped text, or a whole number as text; None for blank text and other values.

    Half of a surrogate pair, which JSON may hold and no file can, becomes a replacement character.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if abs(value) <= _LARGEST else None
    if not isinstance(value, str) or not value.strip():
        return None
    return without_surrogates(value.strip())


def mapping_of(value: object) -> Mapping[str, Any]:
    """Return an object of JSON; an empty one in place of any other value."""
    return value if isinstance(value, Mapping) else {}


def without_surrogates(text: str) -> str:
    """Return a text in which halves of surrogate pairs are replacement characters."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
