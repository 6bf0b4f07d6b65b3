"""Settings of routing beyond the default: SkillFlow, SkillRouter, and the training of models."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from flows.settings import load
from storage.errors import WrongInput
from tasks.models.with_torch.training import TrainingSettings
from tasks.retrieve.baselines.skillflow import Aggregation, Gathering
from tasks.retrieve.train.false_negatives import FalseNegativeSettings
from tasks.retrieve.train.hard_negatives import MiningSettings
from tasks.retrieve.train.queries import QuerySettings

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
    select_characters: int = Field(12_000, ge=1, description="Characters of each skill that it reads.")
    relevant_prompt: Path | None = Field(None, description="File with another prompt for relevance.")
    specific_prompt: Path | None = Field(None, description="File with another prompt for specificity.")


class SkillRouterSettings(BaseSettings):
    """SkillRouter's two stages; the defaults are the paper's."""

    model_config = SettingsConfigDict(env_prefix="SKILLERY_SKILLROUTER_", extra="ignore", frozen=True)

    encoder: str = Field("pipizhao/SkillRouter-Embedding-0.6B", description="The bi-encoder.")
    encoder_instruction: str = Field(
        "Given a task description, retrieve the most relevant skill document that would help an agent "
        "complete the task",
        description="Before each task; the published encoder was trained with this one.",
    )
    encoder_description_tokens: int = Field(300, ge=1, description="Of the description that it reads.")
    encoder_body_tokens: int = Field(2500, ge=1, description="Of the body that it reads.")
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
    reranker_description_tokens: int = Field(500, ge=1, description="Of the description that it reads.")
    reranker_body_tokens: int = Field(3000, ge=1, description="Of the body that it reads.")


def load_skillflow() -> SkillFlowSettings:
    """Return the settings of SkillFlow's stages; raises `WrongInput` naming the variable that is wrong."""
    return load(SkillFlowSettings)


def load_skillrouter() -> SkillRouterSettings:
    """Return the settings of SkillRouter's stages; raises `WrongInput` naming the variable that is wrong."""
    return load(SkillRouterSettings)


def require_skillflow(flow: SkillFlowSettings) -> None:
    """Raise `WrongInput` if a stage keeps more than the one before, or a prompt cannot be read."""
    sizes = [(f"{name}_k", getattr(flow, f"{name}_k")) for name in flow.stages]
    for (before, more), (after, fewer) in pairwise(sizes):
        if fewer > more:
            msg = f"{_variable(after)}={fewer} is more than {_variable(before)}={more}: keep ever fewer"
            raise WrongInput(msg)
    prompts_of(flow)


def _variable(name: str) -> str:
    return f"{SkillFlowSettings.model_config.get('env_prefix')}{name.upper()}"


def prompts_of(flow: SkillFlowSettings) -> dict[str, str | None]:
    """Return the user's prompts by purpose, None for the default; a blank or missing file is refused."""
    names = ("dense", "shallow", "deep", "relevant", "specific")
    return {name: _prompt(getattr(flow, f"{name}_prompt")) for name in names}


def _prompt(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        msg = f"prompt {path} cannot be read ({error}): give a file of UTF-8 text"
        raise WrongInput(msg) from error
    if not text:
        msg = f"prompt {path} is blank: write what the model is told, or leave the setting out"
        raise WrongInput(msg)
    return text


class TrainingOptions(BaseSettings):
    """How queries are made, negatives are mined and models are trained; the defaults suit two cores."""

    model_config = SettingsConfigDict(env_prefix="SKILLERY_TRAINING_", extra="ignore", frozen=True)

    text: Literal["description", "flat"] = Field(
        "description", description="What the bi-encoder reads of a skill: name and description, or all."
    )
    held_out: float = Field(0.15, gt=0, lt=1, description="Share of the skills that it is measured on.")
    held_out_queries: int = Field(300, ge=1, description="Queries that are asked of them at most.")
    ranked: int = Field(
        3000, ge=2, description="Skills a side, about, that routers rank: each is encoded anew."
    )
    sentences: int = Field(3, ge=1, description="Sentences a query at most.")
    copied: float = Field(0.2, ge=0, le=1, description="Share of a sentence that the description may have.")
    clusters: int = Field(50, ge=1, description="Categories where no listing gives any.")
    depth: int = Field(50, ge=1, description="Nearest skills that hard negatives are drawn from.")
    semantic: int = Field(4, ge=0, description="Negatives a query out of the nearest.")
    lexical: int = Field(3, ge=0, description="Negatives of these with the most words in common.")
    category: int = Field(2, ge=0, description="Negatives of the same category.")
    random: int = Field(1, ge=0, description="Negatives of another.")
    false_body: float = Field(
        0.5, gt=0, le=1, description="Jaccard similarity of bodies' trigrams from which a negative is false."
    )
    false_embedding: float = Field(
        0.9, gt=0, le=1, description="Cosine of descriptions from which a negative is false."
    )
    drop_false: bool = Field(True, description="Whether false negatives are left out.")
    drawn: int = Field(2, ge=1, description="Of a query's negatives, how many a step reads.")
    epochs: int = Field(1, ge=1, description="How often each query is read.")
    batch: int = Field(16, ge=1, description="Queries an update.")
    learning_rate: float = Field(5e-5, gt=0, description="Its peak.")
    temperature: float = Field(0.05, gt=0, description="Divides the bi-encoder's cosines.")
    kept: float = Field(0.5, gt=0, le=1, description="Share of what the bi-encoder learned that is kept.")
    tokens: int = Field(128, ge=8, description="Read of each text.")
    lists: int = Field(300, ge=1, description="Queries that a reranker is trained with at most.")
    candidates: int = Field(20, ge=2, description="Skills that it puts in order for each.")
    reranker_tokens: int = Field(512, ge=8, description="Read of query and skill together.")
    reranker_batch: int = Field(16, ge=1, description="Lists an update.")
    reranker_loss: Literal["listwise", "pointwise"] = Field(
        "listwise", description="Of a list's candidates together, or of each by itself."
    )

    def queries(self) -> QuerySettings:
        """Return how queries are made."""
        return QuerySettings(self.sentences, copied=self.copied)

    def mining(self) -> MiningSettings:
        """Return how many negatives each source gives."""
        return MiningSettings(self.depth, self.semantic, self.lexical, self.category, self.random)

    def false(self) -> FalseNegativeSettings:
        """Return the thresholds of the filter of false negatives, and whether it is on."""
        return FalseNegativeSettings(self.false_body, self.false_embedding, drop=self.drop_false)

    def encoder_training(self, seed: int, device: str) -> TrainingSettings:
        """Return how the bi-encoder is trained."""
        how: dict[str, Any] = {"temperature": self.temperature, "tokens": self.tokens, "device": device}
        return TrainingSettings(self.batch, self.learning_rate, seed=seed, kept=self.kept, **how)

    def reranker_training(self, seed: int, device: str) -> TrainingSettings:
        """Return how the reranker is trained; its scores are no cosines and have no temperature."""
        how: dict[str, Any] = {"temperature": 1.0, "tokens": self.reranker_tokens, "device": device}
        return TrainingSettings(self.reranker_batch, self.learning_rate, seed=seed, **how)


def load_training() -> TrainingOptions:
    """Return the settings of training; raises `WrongInput` naming the variable that is wrong."""
    return load(TrainingOptions)
