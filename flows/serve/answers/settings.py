"""Settings of the server: its token, the names it answers to, and the limits of requests."""

from __future__ import annotations

import os

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from flows.settings import load


class ServeSettings(BaseSettings):
    """What bounds the server; the variable of `token` is SKILLERY_SERVE_TOKEN, and so on."""

    model_config = SettingsConfigDict(env_prefix="SKILLERY_SERVE_", extra="ignore", frozen=True)

    token: SecretStr = Field(
        SecretStr(""), description="The bearer token that requests must hold; demanded beyond loopback."
    )
    hosts: list[str] | None = Field(
        None, description="Names, beside localhost, that a request's Host may hold, as a JSON list."
    )
    threads: int = Field(
        min(4, 1 + (os.cpu_count() or 1)), ge=1, description="Answers that are worked out at once."
    )
    page_threads: int = Field(
        2, ge=1, description="Pages and plans worked out at once, beside other answers."
    )
    seconds: float = Field(30.0, gt=0, description="The longest that an answer may take.")
    read_seconds: float = Field(10.0, gt=0, description="The longest that a request may take to arrive.")
    requests: int = Field(256, ge=1, description="Requests under way at once.")
    client_requests: int = Field(96, ge=1, description="Requests under way at once from one address.")
    connections: int = Field(512, ge=1, description="Connections that are open at once.")
    client_connections: int = Field(256, ge=1, description="Connections from one address.")
    body_bytes: int = Field(262_144, ge=1, description="The largest body of a request.")


def load_serving() -> ServeSettings:
    """Return the settings of the server; raises `WrongInput` naming the variable that cannot be used."""
    return load(ServeSettings)
