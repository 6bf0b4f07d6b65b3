"""Settings of routing beyond the default, SkillFlow's and SkillRouter's, and variants of these methods.

A variant is named as `skillflow:dense_queries=1,deep_k=5`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from storage.errors import WrongInput
from tasks.retrieve.baselines.skillflow import Aggregation, Gathering

TWO_PHASE = Path("two-phase")  # the packaged prompt of SkillFlow's figure 7, as its name is given
StageName = Literal["dense", "shallow", "deep", "select"]


class SkillFlowSettings(BaseSettings):
    """SkillFlow's four stages; the defaults are the paper's best configuration."""

    model_config = SettingsConfigDict(env_prefix="SKILLERY_SKILLFLOW_", extra="ignore", frozen=True)

    stages: list[StageName] = Field(
        ["dense", "shallow", "deep", "select"], description="Which run, in this order; JSON."
    )
    dense_model: str = Field(
        "BAAI/bge-base-en-v1.5", description="The bi-encoder; empty: the encoder of the settings."
    )
    dense_text: Literal["description", "name-description", "content"] = Field(
        "description", description="What of a skill is encoded; content: description and body."
    )
    dense_tokens: int = Field(0, ge=0, description="Tokens it reads of a skill; 0: all, as means of windows.")
    dense_text_prefix: str = Field("", description="Before each skill, as models like E5 were trained.")
    dense_query_prefix: str = Field("", description="Before each query.")
    dense_k: int = Field(1000, ge=1, description="Skills kept by the dense stage.")
    dense_queries: int = Field(5, ge=1, description="Queries generated for it.")
    dense_gathering: Gathering = Field("union", description="How their rankings become one.")
    dense_depth: int = Field(200, ge=1, description="Best skills of each query that a union takes.")
    dense_prompt: Path | None = Field(None, description="File with another prompt for its queries.")
    shallow_model: str = Field("cross-encoder/ms-marco-MiniLM-L-6-v2", description="The light reranker.")
    shallow_tokens: int = Field(512, ge=8, description="Tokens it reads of a skill.")
    shallow_k: int = Field(100, ge=1, description="Skills it keeps.")
    shallow_queries: int = Field(1, ge=1, description="Queries generated for it.")
    shallow_aggregation: Aggregation = Field("mean", description="How their scores become one.")
    shallow_prompt: Path | None = Field(None, description="File with another prompt for its queries.")
    deep_model: str = Field("BAAI/bge-reranker-v2-m3", description="The reranker that reads whole skills.")
    deep_tokens: int = Field(4096, ge=8, description="Tokens it reads of a skill.")
    deep_k: int = Field(10, ge=1, description="Skills it keeps.")
    deep_queries: int = Field(1, ge=1, description="Queries generated for it.")
    deep_aggregation: Aggregation = Field("mean", description="How their scores become one.")
    deep_prompt: Path | None = Field(None, description="File with another prompt for its queries.")
    select_k: int = Field(5, ge=1, description="Skills that the language model takes at most.")
    select_specific: bool = Field(False, description="Whether they must also be specific.")
    select_characters: int = Field(
        12_000, ge=0, description="Characters of each skill that it reads; 0: all."
    )
    listed: bool = Field(False, description="Whether one query too is asked for by the prompt of several.")
    relevant_prompt: Path | None = Field(
        None, description="File with another prompt for relevance; two-phase: one that takes one or none."
    )
    specific_prompt: Path | None = Field(None, description="File with another prompt for specificity.")


class SkillRouterSettings(BaseSettings):
    """SkillRouter's two stages; the defaults are the paper's."""

    model_config = SettingsConfigDict(env_prefix="SKILLERY_SKILLROUTER_", extra="ignore", frozen=True)

    encoder: str = Field(
        "pipizhao/SkillRouter-Embedding-0.6B",
        description="The bi-encoder; api:MODEL asks SKILLERY_LLM_BASE_URL for embeddings.",
    )
    encoder_instruction: str = Field(
        "Given a task description, retrieve the most relevant skill document that would help an agent "
        "complete the task",
        description="Before each task; the published encoder was trained with this one.",
    )
    encoder_pooling: Literal["last", "own"] = Field(
        "last", description="Last token's state, or what a sentence-transformers model does itself."
    )
    encoder_query_prefix: str | None = Field(None, description="Instead of the instruction before each task.")
    encoder_text_prefix: str = Field("", description="Before each skill, as models like E5 were trained.")
    encoder_trusted: bool = Field(
        False, description="Whether code that comes with the encoder is run; some need it."
    )
    encoder_description_tokens: int = Field(
        300, ge=0, description="Of the description that it reads; 0: none."
    )
    encoder_body_tokens: int = Field(2500, ge=0, description="Of the body that it reads; 0: none.")
    candidates: int = Field(20, ge=1, description="Skills that the reranker gets.")
    reranker: str = Field(
        "pipizhao/SkillRouter-Reranker-0.6B",
        description="A causal reranker, a cross-encoder, or judge: the LLM that is set up; empty: none.",
    )
    reranker_instruction: str = Field(
        "Given a task description, judge whether the skill document is relevant and useful for completing "
        "the task",
        description="Before each pair; the published reranker was trained with this one.",
    )
    reranker_description_tokens: int = Field(
        500, ge=0, description="Of the description that it reads; 0: none."
    )
    reranker_body_tokens: int = Field(3000, ge=0, description="Of the body that it reads; 0: none.")
    judge_characters: int = Field(4000, ge=0, description="Of each body that a judge reads; 0: none.")


def require_skillflow(flow: SkillFlowSettings) -> None:
    """Raise `WrongInput` if a stage keeps more than the one before, or a prompt cannot be read."""
    sizes = [(f"{name}_k", getattr(flow, f"{name}_k")) for name in flow.stages]
    for (before, more), (after, fewer) in pairwise(sizes):
        if fewer > more:
            larger, smaller = _variable(SkillFlowSettings, after), _variable(SkillFlowSettings, before)
            raise WrongInput(f"{larger}={fewer} is more than {smaller}={more}: keep ever fewer")
    prompts_of(flow)


def prompts_of(flow: SkillFlowSettings) -> dict[str, str | None]:
    """Return the user's prompts by purpose, None for the default; a blank or missing file is refused."""
    names = ("dense", "shallow", "deep", "relevant", "specific")
    return {name: _prompt(getattr(flow, f"{name}_prompt")) for name in names}


def _prompt(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        packaged = resources.files("tasks.retrieve").joinpath("data/flow_two_phase.txt")
        text = (packaged if path == TWO_PHASE else path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise WrongInput(f"prompt {path} cannot be read ({error}): give a file of UTF-8 text") from error
    if not text:
        raise WrongInput(f"prompt {path} is blank: write what the model is told, or leave the setting out")
    return text


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
    """Return methods and the variants of sweeps, each once; raises `WrongInput` if a sweep is not known."""
    if unknown := [sweep for sweep in sweeps if sweep not in SWEEPS]:
        raise WrongInput(f"--sweep {unknown[0]!r} is not known: choose some of {', '.join(SWEEPS)}")
    return list(dict.fromkeys([*names, *(name for sweep in sweeps for name in SWEEPS[sweep])]))


def base_of(name: str) -> str:
    """Return the method that a variant is one of."""
    return name.split(":", 1)[0]


def settings_of(name: str, kind: type[Model]) -> Model:
    """Return the settings of a variant: what its name says, the rest from the environment.

    Raises `WrongInput` if a setting is not known, or its value, or that of a variable, cannot be used.
    """
    given = _given(name, kind)
    try:
        return kind(**given)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0])
        where = f"{name}: {field}" if field in given else _variable(kind, field)
        raise WrongInput(f"{where}={first['input']!r}: {first['msg']}") from error


def llm_setting(name: str) -> str | None:
    """Return the first setting in a variant of SkillFlow's name that means nothing without an LLM."""
    for field, value in _given(name, SkillFlowSettings).items():
        several = field.endswith("_queries") and value != "1"
        listed = field == "listed" and value != "false"
        if several or listed or field.endswith(_OF_SEVERAL) or (field == "stages" and "select" in value):
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
