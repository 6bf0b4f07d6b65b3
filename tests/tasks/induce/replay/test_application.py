from __future__ import annotations

import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given

from tasks.induce.replay.chromium import ApplicationUnusable, WebApplication, without_times
from tests.support.induce.runs import JSON
from tests.support.induce.workshop.application import workshop
from tests.support.induce.workshop.server import Asked, Said, goes_to, says_json, served

Answer = Callable[[Asked], Said]


def begun(url: str) -> WebApplication:
    """Return an application that was reset."""
    application = WebApplication(url)
    application.reset()
    return application


def test_an_application_is_reset_and_its_state_is_told_from_others_without_times() -> None:
    with workshop() as shop:
        application = begun(f"{shop.url}jobs/new?from=home#form")
        before = application.digest()
        shop.records.order("Saddle", "3")
        after = application.digest()
        application.reset()
        again = application.digest()
        time.sleep(0.01)
        shop.records.order("Saddle", "3")
        assert again == before != after
        assert application.digest() == after


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (lambda _: Said("", 404), "answers POST /.skillery/reset with 404"),
        (lambda _: goes_to("/elsewhere"), "answers POST /.skillery/reset with 303"),
        (lambda _: Said("Welcome!"), "GET /.skillery/state must answer with JSON"),
        (lambda _: Said("[" * 100_000), "GET /.skillery/state must answer with JSON"),
        (lambda _: says_json("x" * (8 << 20)), "answers with more than 8,388,608 bytes"),
    ],
)
def test_an_application_that_cannot_be_reset_or_asked_is_unusable(answer: Answer, what: str) -> None:
    with served(answer) as url, pytest.raises(ApplicationUnusable, match=what):
        begun(url).digest()


def test_an_application_that_is_not_there_is_to_be_started() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ApplicationUnusable, match=r"refused.*; start it first"):
        WebApplication(f"http://127.0.0.1:{port}/").reset()


def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with workshop() as shop:
        assert begun(shop.url).digest()


@pytest.mark.parametrize(
    "url",
    ["", "shop", "ftp://127.0.0.1/", "http:///jobs", "http://127.0.0.1:many/", "http://a,b/", "http://[::1/"],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ApplicationUnusable, match="give the address of a web application"):
        WebApplication(url)


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
