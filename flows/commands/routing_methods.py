"""Routing methods by name, over one corpus; each loads what it needs at its first use."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl

from flows.commands.routing_settings import (
    SkillFlowSettings,
    SkillRouterSettings,
    load_skillflow,
    load_skillrouter,
    prompts_of,
    require_skillflow,
)
from flows.settings import Settings, llm_options
from storage.answers import Answers
from storage.errors import WrongInput
from storage.root import Root
from tasks.evaluate.paging.bench import Remembering
from tasks.evaluate.routing.ablation import ABLATIONS, Ablations, as_served
from tasks.evaluate.routing.baselines import BASELINES, LEXICAL, Baselines, require_bm25
from tasks.evaluate.routing.bench import RoutingMethod, whole
from tasks.evaluate.routing.measures import require_measures
from tasks.models.adapted_encoder import is_base
from tasks.models.cached_encoder import KeptEncoder, load_kept_encoder
from tasks.models.encoder import OnnxEncoder
from tasks.models.llm.answer_cache import open_book
from tasks.models.llm.budget import Ledger
from tasks.models.onnx_export import exported_encoder
from tasks.models.protocols import Encoder
from tasks.models.with_torch.bi_encoder import Instructed, LastTokenEncoder
from tasks.models.with_torch.causal_reranker import CausalReranker
from tasks.models.with_torch.cross_encoder import CrossEncoder
from tasks.retrieve.baselines.skillflow_asking import FlowLlm
from tasks.retrieve.baselines.skillflow_dense import DenseSettings, DenseStage
from tasks.retrieve.baselines.skillflow_queries import LlmQueries, QueryWriter, TaskItself
from tasks.retrieve.baselines.skillflow_rerank import RerankSettings, RerankStage
from tasks.retrieve.baselines.skillflow_select import SelectSettings, SelectStage
from tasks.retrieve.baselines.skillrouter import FlatRerankStage, RetrieveStage, flat_text
from tasks.retrieve.baselines.stages import Stage, Staged
from tasks.retrieve.routing.fit import packaged_fit
from tasks.retrieve.routing.skill import TEMPLATE, Skill


def skillflow(
    skills: Sequence[Skill], flow: SkillFlowSettings, kept: Encoder, encoder: Encoder, llm: FlowLlm | None
) -> Staged:
    """Return SkillFlow's stages; without an LLM a task is its own query, and nothing is selected.

    `kept` encodes the skills and keeps their vectors; `encoder` encodes the queries. Settings that leave no
    stage raise `WrongInput`, and so do stages that keep more than the one before, and prompts that cannot be
    read.
    """
    rules = prompts_of(flow)
    writer: QueryWriter = TaskItself() if llm is None else LlmQueries(llm)
    stages: list[Stage] = []
    for name in flow.stages:
        if name == "dense":
            stages.append(_dense(skills, flow, kept, encoder, writer, rules[name]))
        elif name == "select":
            if llm is not None:
                stages.append(SelectStage(skills, llm, _selecting(flow, rules)))
        else:
            stages.append(_reranking(name, skills, flow, writer, rules[name]))
    return Staged(skills, stages)


def skillrouter(skills: Sequence[Skill], router: SkillRouterSettings, root: Root) -> Staged:
    """Return SkillRouter's stages, and keep the vectors of skills below the root."""
    model = LastTokenEncoder(router.encoder)
    kept = KeptEncoder(model, root)
    encoded = router.encoder_description_tokens, router.encoder_body_tokens
    vectors = kept.encode([flat_text(skill, encoded, model) for skill in skills])
    asking = Instructed(model, router.encoder_instruction)
    stages: list[Stage] = [RetrieveStage(vectors, asking, router.candidates)]
    if router.reranker:
        scorer = CausalReranker(router.reranker, instruction=router.reranker_instruction)
        limits = router.reranker_description_tokens, router.reranker_body_tokens
        stages.append(FlatRerankStage(skills, scorer, scorer, k=router.candidates, limits=limits))
    return Staged(skills, stages)


def _dense(
    skills: Sequence[Skill],
    flow: SkillFlowSettings,
    kept: Encoder,
    encoder: Encoder,
    writer: QueryWriter,
    rules: str | None,
) -> DenseStage:
    with_name = flow.dense_text == "name-description"
    texts = [TEMPLATE.format(**skill._asdict()) if with_name else skill.description for skill in skills]
    made = DenseSettings(flow.dense_k, flow.dense_queries, flow.dense_gathering, flow.dense_depth, rules)
    return DenseStage(kept.encode(texts), encoder, writer, made)


def _reranking(
    name: str, skills: Sequence[Skill], flow: SkillFlowSettings, writer: QueryWriter, rules: str | None
) -> RerankStage:
    if name == "shallow":
        scorer = CrossEncoder(flow.shallow_model, max_tokens=flow.shallow_tokens)
        made = RerankSettings(flow.shallow_k, flow.shallow_queries, flow.shallow_aggregation, rules)
    else:
        scorer = CrossEncoder(flow.deep_model, max_tokens=flow.deep_tokens, batch=4)
        made = RerankSettings(flow.deep_k, flow.deep_queries, flow.deep_aggregation, rules)
    return RerankStage(name, skills, scorer, writer, made)


def _selecting(flow: SkillFlowSettings, rules: dict[str, str | None]) -> SelectSettings:
    return SelectSettings(
        flow.select_k, flow.select_specific, flow.select_characters, rules["relevant"], rules["specific"]
    )


METHODS = (*BASELINES, *ABLATIONS, "skillflow", "skillrouter")


def require_names(names: Sequence[str]) -> None:
    """Raise `WrongInput` if a method is not known."""
    if unknown := [name for name in names if name not in METHODS]:
        msg = f"unknown routing method {unknown[0]!r}; choose some of {', '.join(METHODS)}"
        raise WrongInput(msg)


def require_methods(names: Sequence[str], settings: Settings) -> None:
    """Raise `WrongInput` if a method's settings cannot be used, or its library is not installed."""
    require_measures()
    if LEXICAL & set(names):
        require_bm25()
    if "skillflow" in names:
        require_skillflow(load_skillflow())
        if has_llm(settings):
            llm_options(settings, "llm")
    if "skillrouter" in names:
        load_skillrouter()


def has_llm(settings: Settings) -> bool:
    """Return whether an LLM is set up."""
    return bool(settings.llm_base_url or settings.llm_model)


class RoutingModels:
    """The encoder and the LLM of routing methods, each loaded at its first use, and what both remember.

    Args:
        root: The root that keeps exports, vectors and answers.
        settings: The encoder, the threads of a task, and the LLM.
        held: Closes at the end what methods open.
    """

    def __init__(self, root: Root, settings: Settings, held: ExitStack) -> None:
        self.root, self._settings, self._held = root, settings, held
        self._flow: FlowLlm | None = None

    def llm_report(self) -> dict[str, Any] | None:
        """Return what an LLM was asked, its cost, and its failures by reason; None if it was not asked."""
        flow = self._flow
        if flow is None:
            return None
        fallbacks = dict(sorted(flow.fallbacks.items()))
        return {"model": flow.book.model, **flow.book.ledger.report(), "fallbacks": fallbacks}

    @functools.cached_property
    def folder(self) -> str:
        """The folder of the encoder's export."""
        return self.export(self._settings.encoder, self._settings.encoder_precision)

    @functools.cached_property
    def kept(self) -> KeptEncoder:
        """Encodes skills, and keeps their vectors below the root."""
        return load_kept_encoder(self.root.uri, self.folder)

    @functools.cached_property
    def asking(self) -> Remembering:
        """Encodes tasks."""
        return Remembering(self.query_encoder(self.folder))

    @functools.cached_property
    def llm(self) -> FlowLlm | None:
        """Writes queries and selects skills; None if no LLM is set up."""
        if not has_llm(self._settings):
            return None
        options = llm_options(self._settings, "llm")
        if options is None:
            return None
        answers = self._held.enter_context(Answers(self.root))
        ledger = Ledger(options.prices, options.ceiling)
        self._flow = FlowLlm(open_book(options.endpoint, answers, ledger), options.sampling)
        return self._flow

    def export(self, model: str, precision: str = "float32") -> str:
        """Return the folder of a model's export, made if it is not there."""
        return str(exported_encoder(self.root.folder / "models", model, precision))

    def query_encoder(self, folder: str) -> OnnxEncoder:
        """Return the encoder of an export with as many threads as a task may use."""
        return OnnxEncoder(Path(folder), threads=self._settings.query_threads)


class Methods:
    """The routing methods over one corpus; `skills` has the columns doc_id, name, description and body."""

    def __init__(self, models: RoutingModels, skills: pl.DataFrame) -> None:
        self._models = models
        # Sorted, so that skills of equal score are ranked by their ids.
        self._frame = skills.sort("doc_id")

    def method(self, name: str) -> RoutingMethod:
        """Return a method with its index built; raise an error if what it needs cannot be used."""
        if name == "skillflow":
            return staged(self._skillflow())
        if name == "skillrouter":
            return staged(skillrouter(self._skills, load_skillrouter(), self._models.root))
        if name in ABLATIONS:
            return as_served(self._ablations.router(name), self._models.asking)
        self._baselines.prepare(name)
        return whole(functools.partial(self._baselines.answer, name), encoder=self._models.asking)

    @functools.cached_property
    def _baselines(self) -> Baselines:
        return Baselines(self._frame, self._models.kept, self._models.asking)

    @functools.cached_property
    def _skills(self) -> list[Skill]:
        return [Skill(*row) for row in self._frame.select(Skill._fields).iter_rows()]

    @functools.cached_property
    def _ablations(self) -> Ablations:
        kept, asking = self._models.kept, self._models.asking
        return Ablations(self._skills, kept, asking, packaged_fit() if is_base(kept.card) else None)

    def _skillflow(self) -> Staged:
        flow, models = load_skillflow(), self._models
        folder = models.export(flow.dense_model) if flow.dense_model else models.folder
        # The stage's time is measured, so its queries must not come from a memory.
        encoder, kept = models.query_encoder(folder), load_kept_encoder(models.root.uri, folder)
        return skillflow(self._skills, flow, kept, encoder, models.llm)


def staged(pipeline: Staged) -> RoutingMethod:
    """Return a pipeline as a method; its stages decide how many skills they keep."""
    return lambda task, _depth: pipeline.run(task)
