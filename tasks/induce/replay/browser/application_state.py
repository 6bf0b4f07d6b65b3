"""The state of an application: two states, times left out, and where they differ."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any

_SLACK = 90.0  # seconds: what is stamped may be written to the minute, or by a clock that is a little off
_DATE = len("2026-01-31")
_NOTHING = object()  # what the other state has not; no value of JSON


def without_times(value: Any, begin: float, end: float) -> Any:  # noqa: ANN401
    """Return a value of JSON with `time` for each time at which a run took place.

    A time is a text of ISO 8601 with a date and an hour, or a number of seconds or milliseconds since 1970,
    that lies in the run. Other times are data: a date that somebody chose is what a run must do again.

    Args:
        value: A value of JSON; what is in it is looked at too.
        begin: When the run began, in seconds since 1970.
        end: When it ended; 90 s more count on both sides.
    """
    if isinstance(value, dict):
        return {name: without_times(each, begin, end) for name, each in value.items()}
    if isinstance(value, list):
        return [without_times(each, begin, end) for each in value]
    is_of_run = any(begin - _SLACK <= time <= end + _SLACK for time in _times(value))
    return "time" if is_of_run else value


def _times(value: object) -> Iterator[float]:
    """Yield what a value may be as a time, in seconds since 1970."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        yield from (value, value / 1000)
    if not isinstance(value, str) or len(value) <= _DATE:
        return
    try:
        time = datetime.fromisoformat(value)
        # One that names no zone may be of this machine's, or of none.
        yield from (time.timestamp(), time.replace(tzinfo=time.tzinfo or UTC).timestamp())
    except (ValueError, OverflowError):
        return


def first_difference(one: Any, other: Any, path: str = "") -> str | None:  # noqa: ANN401
    """Return the path, of keys and places, at which two values of JSON first differ; None if they do not."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = dict.fromkeys([*one, *other])
        pairs = ((name, one.get(name, _NOTHING), other.get(name, _NOTHING)) for name in names)
    elif isinstance(one, list) and isinstance(other, list):
        both = zip_longest(one, other, fillvalue=_NOTHING)
        pairs = ((str(place), own, its) for place, (own, its) in enumerate(both))
    else:
        # JSON tells a truth from a number.
        return None if isinstance(one, bool) is isinstance(other, bool) and one == other else path or "/"
    found = (first_difference(own, its, f"{path}/{name}") for name, own, its in pairs)
    return next((each for each in found if each is not None), None)
