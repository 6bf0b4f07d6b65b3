"""Settings of inducing skills: of an LLM, with the defaults of SGDR's release."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from flows.settings import load


class InductionSettings(BaseSettings):
    """What SGDR leaves open; the variable of `windows` is SKILLERY_INDUCE_WINDOWS."""

    model_config = SettingsConfigDict(env_prefix="SKILLERY_INDUCE_", extra="ignore", frozen=True)

    windows: int = Field(16, ge=1, description="Windows that one question to the LLM asks about at most.")
    summaries: Literal["rule", "llm"] = Field("rule", description="What sums up states.")
    summary_tokens: int = Field(160, ge=1, description="Tokens of a summary by the LLM at most.")
    summary_characters: int = Field(
        12_000, ge=1, description="Characters of a state that the LLM reads to sum it up."
    )


def load_induction() -> InductionSettings:
    """Return the settings of inducing; raises `WrongInput` naming the variable that cannot be used."""
    return load(InductionSettings)
