"""What the settings say of the language model that takes part in typing."""

from __future__ import annotations

from typing import Literal

from flows.settings import Settings
from tasks.models.llm import require_openai
from tasks.models.llm_budget import Ceiling, Prices
from tasks.models.llm_endpoint import Endpoint
from tasks.models.llm_question import Sampling
from tasks.models.llm_retry import LlmRetryPolicy
from tasks.parse.choose import LlmOptions

Kind = Literal["local", "llm", "hybrid"]


def run_llm(settings: Settings) -> LlmOptions | None:
    """Return how a language model takes part in a run; None: it does not.

    Where `SKILLERY_CLASSIFIER` says nothing, the model is asked about what the local classifier is unsure of
    if one is set up, else the local classifier types alone.

    Raises:
        WrongInput: As `llm_options`.
    """
    set_up: Kind = "hybrid" if settings.llm_base_url or settings.llm_model else "local"
    return llm_options(settings, settings.classifier or set_up)


def llm_options(settings: Settings, kind: Kind) -> LlmOptions | None:
    """Return how a language model takes part in typing of a kind; None for `local`.

    Raises:
        WrongInput: A model is to be asked, and its address or name is missing or wrong, the key is none, or
            the package that asks is not installed.
    """
    if kind == "local":
        return None
    options = LlmOptions(
        _endpoint(settings),
        threshold=_threshold(settings) if kind == "hybrid" else None,
        sampling=Sampling(settings.llm_temperature, settings.llm_seed, settings.llm_max_tokens),
        batch=settings.llm_batch,
        accuracy=settings.llm_accuracy,
        prices=Prices(settings.llm_prompt_price, settings.llm_completion_price),
        ceiling=Ceiling(settings.llm_max_total_tokens, settings.llm_max_cost),
    )
    require_openai()
    return options


def _threshold(settings: Settings) -> float:
    """Return the threshold set, else the model's accuracy: surer local answers are right more often."""
    return settings.llm_accuracy if settings.llm_threshold is None else settings.llm_threshold


def _endpoint(settings: Settings) -> Endpoint:
    return Endpoint(
        settings.llm_base_url,
        settings.llm_model,
        settings.llm_api_key.get_secret_value(),
        timeout=settings.llm_timeout,
        concurrency=settings.llm_concurrency,
        retry=LlmRetryPolicy(wait_max=settings.retry_wait_max),
    )
