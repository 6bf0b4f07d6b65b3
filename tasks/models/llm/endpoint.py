"""The endpoint of an LLM: its address, name, key, and how it is asked."""

from __future__ import annotations

from dataclasses import dataclass, field

from storage.errors import WrongInput
from tasks.models.llm.retry import LLM_RETRY
from tasks.models.retry import RetryPolicy


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is served, and how it is asked.

    Raises:
        WrongInput: URL or model is missing, the key is none that a header can carry (the message hides it),
            or a number is out of its range.
    """

    base_url: str  # with the version: `http://127.0.0.1:8000/v1`
    model: str  # the model's name there
    api_key: str = field(default="", repr=False)  # never shown or logged; empty sends none
    timeout: float = 120.0  # seconds that one request may take in all, its answer read to the end
    concurrency: int = 4  # questions under way at once
    retry: RetryPolicy = LLM_RETRY  # when a question without an answer is sent again
    # Questions in a row without an answer after which the server is asked nothing more.
    give_up_after: int = 8

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("http://", "https://")) or not self.model:
            msg = (
                f"LLM base URL {self.base_url!r}, model {self.model!r}: "
                "set SKILLERY_LLM_BASE_URL to http(s)://.../v1 and SKILLERY_LLM_MODEL to a model's name"
            )
            raise WrongInput(msg)
        if (
            not (self.api_key.isascii() and self.api_key.isprintable())
            or self.api_key != self.api_key.strip()
        ):
            msg = "SKILLERY_LLM_API_KEY holds white space or characters beyond ASCII: set it to the bare key"
            raise WrongInput(msg)
        if not (self.timeout > 0 and self.concurrency >= 1 and self.give_up_after >= 1):
            msg = f"{self}: timeout must be above 0, concurrency and give_up_after at least 1"
            raise WrongInput(msg)
