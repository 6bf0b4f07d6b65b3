"""The settings of installing, prefix `SKILLERY_INSTALL_`."""

from __future__ import annotations

import json
from typing import Annotated, get_args

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from flows.settings import load
from storage.schemas import Severity
from tasks.refine.risks.rules import GROUPS

_CLASSES = (*get_args(Severity), *GROUPS)


class InstallSettings(BaseSettings):
    """What is refused: a JSON list, or words with commas between them."""

    model_config = SettingsConfigDict(env_prefix="SKILLERY_INSTALL_", extra="ignore", frozen=True)

    refuse: Annotated[list[str], NoDecode] = Field(
        ["error"],
        description="Severities (error, warning, info) and groups (such as remote) of risks that `install` "
        "refuses; empty: none.",
    )

    @field_validator("refuse", mode="before")
    @classmethod
    def _split(cls, given: object) -> object:
        if not isinstance(given, str):
            return given
        words = json.loads(given) if given.lstrip().startswith("[") else given.split(",")
        return [str(word).strip() for word in words if str(word).strip()]

    @field_validator("refuse")
    @classmethod
    def _known(cls, given: list[str]) -> list[str]:
        if unknown := [word for word in given if word not in _CLASSES]:
            msg = f"{unknown[0]!r} is no class of risks: choose among {', '.join(_CLASSES)}"
            raise ValueError(msg)
        return given


def load_installing() -> InstallSettings:
    """Return the settings of installing; raises `WrongInput` naming the variable that cannot be used."""
    return load(InstallSettings)
