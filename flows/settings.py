"""All settings, read once at the edge from the environment (prefix `SKILLERY_`)."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from storage.errors import WrongInput


class Settings(BaseSettings):
    """Settings of a run and of queries; each has an environment variable of its name."""

    model_config = SettingsConfigDict(env_prefix="SKILLERY_", extra="ignore", frozen=True)

    root: Path = Field(Path("data"), description="Folder of all that Skillery keeps.")
    encoder: str = Field(
        "sentence-transformers/all-MiniLM-L6-v2", description="Hugging Face id, or a model's folder."
    )
    query_threads: int = Field(1, ge=1, description="Threads that encode one query.")
    max_document_bytes: int = Field(2_000_000, ge=1, description="A longer SKILL.md is dropped as too large.")
    max_control_share: float = Field(
        0.1, ge=0, le=1, description="A text with a larger share of control characters is no text."
    )
    git_timeout: float = Field(300.0, gt=0, description="Seconds that one git command may take.")
    probes: int = Field(100, ge=1, description="Seeded probes of each kind that evaluate asks.")


def load_settings() -> Settings:
    """Return the settings.

    Raises:
        WrongInput: A variable has a value that cannot be used; the message names it.
    """
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = "SKILLERY_" + "_".join(str(part) for part in first["loc"]).upper()
        msg = f"{name}={first['input']!r}: {first['msg']}"
        raise WrongInput(msg) from error
