from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given

from tasks.induce.replay.browser.application_state import first_difference, without_times
from tasks.induce.skills.actions import const
from tests.support.induce.runs import JSON

BEGIN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
RUN = (BEGIN.timestamp(), BEGIN.timestamp() + 10)
ABOUT = BEGIN + timedelta(seconds=4)


@pytest.mark.parametrize(
    "written",
    [
        "2026-03-01T12:00:04+00:00",
        "2026-03-01T12:00:04.123Z",
        "2026-03-01T14:00:04+02:00",
        "2026-03-01 12:00",
        ABOUT.timestamp(),
        int(ABOUT.timestamp() * 1000),
        ABOUT.astimezone().replace(tzinfo=None).isoformat(),  # of this machine's zone
        ABOUT.astimezone(timezone(timedelta(hours=-7))).isoformat(),
    ],
)
def test_a_time_of_the_run_is_left_out_however_it_is_written(written: object) -> None:
    held = {"orders": [{"at": written, "pieces": 3}]}

    assert without_times(held, *RUN) == {"orders": [{"at": "time", "pieces": 3}]}


@pytest.mark.parametrize(
    "written",
    [
        "2026-03-01",
        "2026-03-02T12:00:00Z",
        "2025-03-01T12:00:04+00:00",
        ABOUT.timestamp() + 86_400,
        "2026-03-01T25:00:00",
        "ready at 2026-03-01T12:00:04Z",
        7,
        True,
        None,
        float("inf"),
        "0001-01-01T00:00:00",
    ],
)
def test_other_times_and_values_are_data(written: object) -> None:
    assert without_times([written], *RUN) == [written]


@given(JSON)
def test_what_holds_no_time_stays_as_it_is(value: object) -> None:
    assert without_times(value, *RUN) == value


@given(JSON, JSON)
@example({"a": 0}, {"a": -0.0})
def test_values_differ_somewhere_if_they_are_not_the_same_json(one: object, other: object) -> None:
    assert first_difference(one, one) is None
    if const(one) != const(other):
        assert (first_difference(one, other) is None) is (_plain(one) == _plain(other))


def _plain(value: object) -> str:
    """Return JSON in which 1 and 1.0 are one number, and 0 and -0.0."""
    if isinstance(value, dict):
        return const({name: _plain(each) for name, each in value.items()})
    if isinstance(value, list):
        return const([_plain(each) for each in value])
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return const(float(value) + 0.0 if is_number else value)


@pytest.mark.parametrize(
    ("other", "path"),
    [
        ({"jobs": [{"done": True}, {"done": False}], "n": 1}, "/jobs/1/done"),
        ({"jobs": [{"done": True}], "n": 1}, "/jobs/1"),
        ({"jobs": [{"done": True}, {"done": 1, "by": None}], "n": 1}, "/jobs/1/done"),
        ({"jobs": [{"done": True}, {"done": None}], "n": True}, "/n"),
        ({"jobs": [{"done": True}, {"done": None}], "n": 1, "more": None}, "/more"),
        ([], "/"),
    ],
)
def test_the_first_difference_is_named_by_its_path(other: object, path: str) -> None:
    assert first_difference({"jobs": [{"done": True}, {"done": None}], "n": 1}, other) == path
