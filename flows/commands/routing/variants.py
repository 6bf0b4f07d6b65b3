"""Variants of a method: its name, and settings that differ, as `skillflow:dense_queries=1,deep_k=5`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings

from flows.commands.routing.settings import SkillFlowSettings, SkillRouterSettings
from storage.errors import WrongInput

Model = TypeVar("Model", bound=BaseSettings)
_OF_SEVERAL = ("_gathering", "_depth", "_aggregation")  # queries, which an LLM writes
# The methods that have settings, and whose they are.
VARIED: dict[str, type[BaseSettings]] = {
    "skillflow": SkillFlowSettings,
    "skillrouter": SkillRouterSettings,
    "reranked": SkillRouterSettings,
}

# The comparisons of the papers: SkillFlow's tables 4 and 8 to 11 and figure 3, SkillRouter's 5 and 12.
SWEEPS: dict[str, list[str]] = json.loads(
    resources.files("tasks.evaluate").joinpath("data/routing_sweeps.json").read_text("utf-8")
)


def expanded(names: Sequence[str], sweeps: Sequence[str]) -> list[str]:
    """Return methods and the variants of sweeps, each once.

    Raises:
        WrongInput: A sweep is not known.
    """
    if unknown := [sweep for sweep in sweeps if sweep not in SWEEPS]:
        msg = f"--sweep {unknown[0]!r} is not known: choose some of {', '.join(SWEEPS)}"
        raise WrongInput(msg)
    return list(dict.fromkeys([*names, *(name for sweep in sweeps for name in SWEEPS[sweep])]))


def base_of(name: str) -> str:
    """Return the method that a variant is one of."""
    return name.split(":", 1)[0]


def settings_of(name: str, kind: type[Model]) -> Model:
    """Return the settings of a variant: what its name says, the rest from the environment.

    Raises:
        WrongInput: A setting is not known, or its value, or that of a variable, cannot be used.
    """
    given = _given(name, kind)
    try:
        return kind(**given)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0])
        where = f"{name}: {field}" if field in given else _variable(kind, field)
        msg = f"{where}={first['input']!r}: {first['msg']}"
        raise WrongInput(msg) from error


def llm_setting(name: str) -> str | None:
    """Return the first setting in a variant of SkillFlow's name that means nothing without an LLM."""
    for field, value in _given(name, SkillFlowSettings).items():
        several = field.endswith("_queries") and value != "1"
        if several or field.endswith(_OF_SEVERAL) or (field == "stages" and "select" in value):
            return f"{field}={'+'.join(value) if isinstance(value, list) else value}"
    return None


def _given(name: str, kind: type[BaseSettings]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for part in name.partition(":")[2].split(","):
        field, sign, value = part.partition("=")
        if not part:
            continue
        if not sign or field not in kind.model_fields:
            msg = f"method {name}: {field!r} is no setting of it; they are {', '.join(kind.model_fields)}"
            raise WrongInput(msg)
        # A list's items are joined by plus signs, since commas part the settings.
        given[field] = value.split("+") if isinstance(kind.model_fields[field].default, list) else value
    return given


def _variable(kind: type[BaseSettings], field: str) -> str:
    return f"{kind.model_config.get('env_prefix')}{field.upper()}"
