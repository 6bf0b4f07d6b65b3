from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from storage.errors import EnvironmentStopped, EnvironmentUnusable, WrongInput
from tasks.induce.replay.browser.application import WebApplication
from tests.support.induce.workshop.application import workshop
from tests.support.induce.workshop.server import Asked, Said, goes_to, says_json, served

Answer = Callable[[Asked], Said]


def begun(url: str) -> WebApplication:
    """Return an application that was reset."""
    application = WebApplication(url, 5, 1 << 17)
    application.reset()
    return application


def test_an_application_is_reset_and_says_its_state_without_times() -> None:
    with workshop() as shop:
        application = begun(f"{shop.url}jobs/new?from=home#form")
        before = application.state()
        shop.records.order("Saddle", "3")
        shop.records.note(0, "Bell is lost")
        after = application.state()
        application.reset()

        assert application.state() == before
        assert after["orders"] == [{"part": "Saddle", "pieces": "3", "at": "time"}]
        assert after["jobs"][0]["notes"] == [{"text": "Bell is lost", "at": "time"}]
        assert after["jobs"][0]["opened_at"] == "2026-01-05T09:30:00+00:00"


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (lambda _: Said("", 404), "answers POST /.skillery/reset with 404"),
        (lambda _: goes_to("/elsewhere"), "answers POST /.skillery/reset with 303"),
        (lambda _: Said("Welcome!"), "GET /.skillery/state must answer with JSON"),
        (lambda _: Said("[" * 100_000), "GET /.skillery/state must answer with JSON"),
        (lambda _: says_json("x" * 200_000), "answers with more than 131,072 bytes"),
    ],
)
def test_an_application_that_cannot_be_reset_or_asked_is_unusable(answer: Answer, what: str) -> None:
    with served(answer) as url, pytest.raises(EnvironmentUnusable, match=what):
        begun(url).state()


def late_answer(_: Asked) -> Said:
    time.sleep(1)
    return says_json({})


@pytest.mark.parametrize("answer", [late_answer, lambda _: Said(" " * 40, pause=0.05)])
def test_an_application_that_does_not_answer_in_time_is_stopped(answer: Answer) -> None:
    late = r"no answer to GET /.skillery/state within 0.2 s"
    with (
        served(answer) as url,
        pytest.raises(EnvironmentStopped, match=late),
    ):
        WebApplication(url, 0.2, 1 << 20).state()


def test_an_application_that_is_not_there_is_to_be_started() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    with pytest.raises(EnvironmentStopped, match="refused; start it first"):
        WebApplication(f"http://127.0.0.1:{port}/", 5, 1 << 20).reset()


def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with workshop() as shop:
        assert begun(shop.url).state()


@pytest.mark.parametrize(
    "url",
    ["", "shop", "ftp://127.0.0.1/", "http:///jobs", "http://127.0.0.1:many/", "http://a,b/", "http://[::1/"],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(WrongInput, match="give the address of a web application"):
        WebApplication(url, 5, 1 << 20)
