from __future__ import annotations

import sys
from typing import Any

import pytest

from flows.settings import Settings, llm_options, load_settings, run_llm
from storage.errors import WrongInput
from tasks.models.llm.budget import Ceiling, Prices
from tasks.models.llm.question import Sampling
from tasks.parse.classify.options import TypingOptions

SERVER = {"llm_base_url": "http://127.0.0.1:9/v1", "llm_model": "small-model"}


def options(**given: Any) -> TypingOptions:  # noqa: ANN401
    found = llm_options(Settings(**{**SERVER, **given}), "hybrid")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("given", "threshold"),
    [
        ({}, "no model"),
        (SERVER, 0.79),
        ({**SERVER, "classifier": "local"}, "no model"),
        ({**SERVER, "classifier": "llm"}, None),
        ({**SERVER, "classifier": "hybrid", "llm_threshold": 0.0}, 0.0),
        ({**SERVER, "llm_accuracy": 0.9}, 0.9),
    ],
)
def test_a_run_asks_a_model_that_is_set_up_where_the_local_one_is_unsure(
    given: dict[str, Any], threshold: float | str | None
) -> None:
    found = run_llm(Settings(**given))
    assert (found.threshold if found else "no model") == threshold


@pytest.mark.parametrize(
    "given",
    [{"llm_model": "m"}, {"llm_base_url": "http://127.0.0.1:9/v1"}, {"classifier": "llm"}],
)
def test_half_an_endpoint_is_refused_by_name(given: dict[str, Any]) -> None:
    with pytest.raises(WrongInput, match="SKILLERY_LLM_BASE_URL"):
        run_llm(Settings(**given))


def test_settings_reach_the_client() -> None:
    found = options(
        llm_timeout=7, llm_concurrency=2, llm_batch=5, llm_max_tokens=99, llm_temperature=0.3, llm_seed=4,
        llm_max_total_tokens=1_000, llm_max_cost=2.5, llm_prompt_price=1.5, llm_completion_price=6,
        retry_wait_max=3,
    )  # fmt: skip
    assert (found.endpoint.timeout, found.endpoint.concurrency, found.batch) == (7, 2, 5)
    assert found.endpoint.retry.wait_max == 3
    assert found.sampling == Sampling(0.3, 4, 99)
    assert (found.prices, found.ceiling) == (Prices(1.5, 6), Ceiling(1_000, 2.5))


def test_the_key_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKILLERY_LLM_API_KEY", "sk-hush")
    settings = load_settings()
    assert "sk-hush" not in f"{settings!r} {settings.model_dump_json()}"
    found = llm_options(settings.model_copy(update=SERVER), "llm")
    assert found is not None
    assert found.endpoint.api_key == "sk-hush"
    assert "sk-hush" not in repr(found)


def test_without_the_package_nothing_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(WrongInput, match=r"pip install '\.\[llm\]'"):
        options()
