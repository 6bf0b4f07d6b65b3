from __future__ import annotations

import pytest

from flows import run_page
from flows.run_page import batch_progress, pace


@pytest.mark.parametrize(
    ("done", "total", "seconds", "said"),
    [
        (1, 4, 20.0, "1 of 4 batches, 3 a minute, about 60 s left"),
        (10, 64, 300.0, "10 of 64 batches, 2 a minute, about 27 min left"),
        (1, 64, 600.0, "1 of 64 batches, 0.1 a minute, about 10.5 h left"),
    ],
)
def test_the_pace_says_when_the_rest_will_be_done(done: int, total: int, seconds: float, said: str) -> None:
    assert pace(done, total, seconds) == said


def test_a_line_is_told_every_ten_seconds_and_none_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, told = [0.0], list[str]()
    monkeypatch.setattr(run_page.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(run_page, "create_progress_artifact", lambda **_: None)
    monkeypatch.setattr(run_page, "update_progress_artifact", lambda **_: None)
    monkeypatch.setattr(run_page, "tell", told.append)

    with batch_progress("parse", 8) as step:
        for _ in range(8):
            clock[0] += 4
            step()

    assert [line.split(",")[0] for line in told] == ["parse: 3 of 8 batches", "parse: 6 of 8 batches"]


def test_a_single_batch_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_page, "tell", pytest.fail)
    with batch_progress("parse", 1) as step:
        step()
