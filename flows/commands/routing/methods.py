"""Routing methods by name, over one corpus, the published pipelines among them.

Each loads what it needs at its first use.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from flows.commands.routing.settings import (
    VARIED,
    SkillFlowSettings,
    SkillRouterSettings,
    base_of,
    llm_setting,
    prompts_of,
    require_skillflow,
    settings_of,
)
from flows.settings import Settings, asked_llm, is_set_up, load
from storage.errors import WrongInput
from storage.root import Root
from tasks.evaluate.paging.bench import Remembering
from tasks.evaluate.routing.baselines import (
    ABLATIONS,
    BASELINES,
    LEXICAL,
    Ablations,
    Baselines,
    as_served,
    require_bm25,
)
from tasks.evaluate.routing.bench import RoutingMethod, whole
from tasks.models.adapted_encoder import is_base
from tasks.models.cached_encoder import KeptEncoder, load_kept_encoder
from tasks.models.encoder import OnnxEncoder
from tasks.models.hub import require_on_hub
from tasks.models.llm.ask import Llm, open_llm
from tasks.models.llm.embeddings import ApiEncoder
from tasks.models.onnx_export import exported_encoder, require_model
from tasks.models.protocols import Encoder, IndexEncoder
from tasks.models.tokens import first_tokens
from tasks.models.with_torch.bi_encoder import Prefixed, TorchEncoder, instructed
from tasks.models.with_torch.device import device_of
from tasks.models.with_torch.reranker import CausalReranker, CrossEncoder, LoadedReranker, load_reranker
from tasks.retrieve.baselines.skillflow import (
    DenseStage,
    LlmQueries,
    QueryWriter,
    RerankStage,
    SelectStage,
    TaskItself,
)
from tasks.retrieve.baselines.skillrouter import (
    FlatRerankStage,
    JudgeStage,
    RetrieveStage,
    RouteStage,
    flat_text,
)
from tasks.retrieve.baselines.stages import Stage, Staged
from tasks.retrieve.routing.fit import packaged_fit
from tasks.retrieve.routing.skill import TEMPLATE, Skill

JUDGE, API = "judge", "api:"
_KEPT_AT_ONCE = 1_024


def skillflow(
    skills: Sequence[Skill], flow: SkillFlowSettings, kept: Encoder, encoder: OnnxEncoder,
    models: RoutingModels,
) -> Staged:  # fmt: skip
    """Return SkillFlow's stages; without an LLM a task is its own query, and nothing is selected.

    `kept` encodes the skills and keeps their vectors; `encoder` encodes the queries. Settings that leave no
    stage raise `WrongInput`, and so do stages that keep more than the one before, and prompts that cannot be
    read.
    """
    rules, llm = prompts_of(flow), models.llm
    writer: QueryWriter = TaskItself() if llm is None else LlmQueries(llm, listed=flow.listed)
    stages: list[Stage] = []
    for name in flow.stages:
        if name == "dense":
            stages.append(_dense(skills, flow, kept, encoder, writer, rules[name]))
        elif name == "select":
            if llm is not None:
                selecting = flow.select_k, flow.select_specific, flow.select_characters
                stages.append(SelectStage(skills, llm, *selecting, rules["relevant"], rules["specific"]))
        else:
            stages.append(_reranking(name, skills, flow, writer, rules[name], models.device))
    return Staged(skills, stages)


def skillrouter(skills: Sequence[Skill], router: SkillRouterSettings, models: RoutingModels) -> Staged:
    """Return SkillRouter's stages; vectors of skills are kept below the root. Raises as `reranking`."""
    model = _bi_encoder(router, models)
    kept = KeptEncoder(model, models.root)
    encoded = router.encoder_description_tokens, router.encoder_body_tokens
    before = router.encoder_text_prefix
    texts = [f"{before}{flat_text(skill, encoded, model)}" for skill in skills]
    # What an endpoint was paid for is kept, whatever comes.
    parts = (texts[start : start + _KEPT_AT_ONCE] for start in range(0, len(texts) or 1, _KEPT_AT_ONCE))
    vectors = np.concatenate([kept.encode(part) for part in parts])
    prefix = router.encoder_query_prefix
    asking = Prefixed(model, instructed(router.encoder_instruction) if prefix is None else prefix)
    stages: list[Stage] = [RetrieveStage(vectors, asking, router.candidates)]
    if router.reranker:
        stages.append(reranking(router, models)(skills))
    return Staged(skills, stages)


def _bi_encoder(router: SkillRouterSettings, models: RoutingModels) -> IndexEncoder:
    if router.encoder.startswith(API):
        return models.api(router.encoder.removeprefix(API))
    return TorchEncoder(
        router.encoder, device=models.device, pooling=router.encoder_pooling, trusted=router.encoder_trusted
    )


def reranking(router: SkillRouterSettings, models: RoutingModels) -> Callable[[Sequence[Skill]], Stage]:
    """Return what makes the stage that puts skills in order, by a model, loaded once, or the LLM as judge.

    Raises `WrongInput` if the LLM is to judge, and none is set up, and `ModelMismatch` if there is no such
    model.
    """
    if router.reranker == JUDGE:
        if (llm := models.llm) is None:
            msg = "the judge is a language model: set SKILLERY_LLM_BASE_URL and SKILLERY_LLM_MODEL"
            raise WrongInput(msg)
        return lambda skills: JudgeStage(skills, llm, k=router.candidates, characters=router.judge_characters)
    limits = router.reranker_description_tokens, router.reranker_body_tokens
    scorer = loaded(router, models.device)
    return lambda skills: FlatRerankStage(skills, scorer, scorer, k=router.candidates, limits=limits)


def loaded(router: SkillRouterSettings, device: str) -> LoadedReranker:
    """Return the model that the settings name as reranker; raises as `load_reranker`."""
    most = router.reranker_description_tokens + router.reranker_body_tokens
    return load_reranker(
        router.reranker, instruction=router.reranker_instruction, max_tokens=most, device=device
    )


def _dense(
    skills: Sequence[Skill], flow: SkillFlowSettings, kept: Encoder, encoder: OnnxEncoder,
    writer: QueryWriter, rules: str | None,
) -> DenseStage:  # fmt: skip
    texts = [_encoded_text(skill, flow.dense_text) for skill in skills]
    if flow.dense_tokens:
        texts = [first_tokens(text, flow.dense_tokens, encoder) for text in texts]
    texts = [f"{flow.dense_text_prefix}{text}" for text in texts]
    asking = Prefixed(encoder, flow.dense_query_prefix)
    return DenseStage(
        kept.encode(texts), asking, writer,
        flow.dense_k, flow.dense_queries, flow.dense_gathering, flow.dense_depth, rules,
    )  # fmt: skip


def _encoded_text(skill: Skill, form: str) -> str:
    """Return what the encoder gets of a skill, and cuts to what it reads."""
    if form == "content":
        return f"{skill.description}\n{skill.body}"
    return TEMPLATE.format(**skill._asdict()) if form == "name-description" else skill.description


def _reranking(
    name: str, skills: Sequence[Skill], flow: SkillFlowSettings, writer: QueryWriter, rules: str | None,
    device: str,
) -> RerankStage:  # fmt: skip
    if name == "shallow":
        scorer = CrossEncoder(flow.shallow_model, max_tokens=flow.shallow_tokens, device=device)
        made = flow.shallow_k, flow.shallow_queries, flow.shallow_aggregation
    else:
        scorer = CrossEncoder(flow.deep_model, max_tokens=flow.deep_tokens, batch=4, device=device)
        made = flow.deep_k, flow.deep_queries, flow.deep_aggregation
    return RerankStage(name, skills, scorer, writer, *made, rules)


METHODS = (*BASELINES, *ABLATIONS, *VARIED)


def require_names(names: Sequence[str]) -> None:
    """Raise `WrongInput` if a method is not known, or has no settings and is given some."""
    for name in names:
        base = base_of(name)
        if base not in METHODS:
            raise WrongInput(f"unknown routing method {base!r}; choose some of {', '.join(METHODS)}")
        if base != name and base not in VARIED:
            raise WrongInput(f"method {name}: {base} has no settings; {', '.join(VARIED)} have")


def require_methods(names: Sequence[str], settings: Settings, root: Root) -> None:
    """Raise an error if a method cannot be used, before others are measured for an hour.

    Raises `WrongInput` if its settings cannot be used, its library is not installed, or no LLM is set up that
    it is a variant of asking, and `TerminalError` if a model of it is no folder, and no hub has it.
    """
    if LEXICAL & set(names):
        require_bm25()
    varied = [name for name in names if base_of(name) in VARIED]
    for name in varied:
        _require_llm(name, settings)
    if varied:
        device_of(settings.device)
    for encoder in dict.fromkeys(model for name in varied for model in _dense_model(name)):
        require_model(root.folder / "models", encoder)
    for model in dict.fromkeys(model for name in varied for model in _models_with_torch(name)):
        if not Path(model).is_dir():
            require_on_hub(model)


def _require_llm(name: str, settings: Settings) -> None:
    if base_of(name) == "skillflow":
        require_skillflow(settings_of(name, SkillFlowSettings))
        if is_set_up(settings):
            asked_llm(settings)
        elif said := llm_setting(name):
            msg = f"method {name}: {said} needs an LLM: set SKILLERY_LLM_BASE_URL and SKILLERY_LLM_MODEL"
            raise WrongInput(msg)
    else:
        router = settings_of(name, SkillRouterSettings)
        if router.reranker == JUDGE or router.encoder.startswith(API):
            asked_llm(settings)


def _dense_model(name: str) -> list[str]:
    """Return the encoder that a variant of SkillFlow has beside that of the settings, if any."""
    if base_of(name) != "skillflow":
        return []
    flow = settings_of(name, SkillFlowSettings)
    return [flow.dense_model] if flow.dense_model and "dense" in flow.stages else []


def _models_with_torch(name: str) -> list[str]:
    """Return the models that a variant loads with torch: folders and hub ids."""
    if base_of(name) == "skillflow":
        flow = settings_of(name, SkillFlowSettings)
        found = [getattr(flow, f"{stage}_model") for stage in ("shallow", "deep") if stage in flow.stages]
    else:
        router = settings_of(name, SkillRouterSettings)
        found = [router.reranker, router.encoder if base_of(name) == "skillrouter" else ""]
    return [model for model in found if model not in ("", JUDGE) and not model.startswith(API)]


class RoutingModels:
    """The encoder and the LLM of routing methods, each loaded at its first use, and what both remember.

    The root keeps exports, vectors and answers; `held` closes at the end what methods open.
    """

    def __init__(self, root: Root, settings: Settings, held: ExitStack) -> None:
        self.root, self.rerank, self.device = root, settings.rerank, settings.device
        self._settings, self._held = settings, held

    def llm_report(self) -> dict[str, Any] | None:
        """Return what an LLM was asked, its cost, and its failures by reason; None if it was not asked."""
        llm = vars(self).get("llm")
        return llm.report() if llm else None

    @functools.cached_property
    def folder(self) -> str:
        """The folder of the encoder's export."""
        return self.export(self._settings.encoder)

    @functools.cached_property
    def kept(self) -> KeptEncoder:
        """Encodes skills, and keeps their vectors below the root."""
        return load_kept_encoder(self.root.uri, self.folder)

    @functools.cached_property
    def asking(self) -> Remembering:
        """Encodes tasks."""
        return Remembering(self.query_encoder(self.folder))

    @functools.cached_property
    def llm(self) -> Llm | None:
        """Writes queries and selects skills; None if no LLM is set up."""
        if not is_set_up(self._settings):
            return None
        return self._held.enter_context(open_llm(self.root, asked_llm(self._settings)))

    @property
    def attending(self) -> tuple[CausalReranker, tuple[int, int]]:
        """The causal reranker of the settings, and the tokens that it reads of description and body.

        Raises `WrongInput` if the settings name another kind of reranker, or none.
        """
        router = load(SkillRouterSettings)
        limits = router.reranker_description_tokens, router.reranker_body_tokens
        if router.reranker and router.reranker != JUDGE:
            found = loaded(router, self.device)
            if isinstance(found, CausalReranker):
                return found, limits
        msg = f"--attention is of a causal model, and SKILLERY_SKILLROUTER_RERANKER is {router.reranker!r}"
        raise WrongInput(msg)

    def api(self, model: str) -> ApiEncoder:
        """Return what encodes by a model of the endpoint that is set up, on the account of its LLM."""
        asked_llm(self._settings)  # says what is missing
        assert self.llm is not None  # noqa: S101 (for the types)
        return ApiEncoder(self.llm.cache.client.endpoint, model, self.llm.ledger)

    def export(self, model: str) -> str:
        """Return the folder of a model's export, made if it is not there."""
        return str(exported_encoder(self.root.folder / "models", model))

    def query_encoder(self, folder: str) -> OnnxEncoder:
        """Return the encoder of an export with as many threads as a task may use."""
        return OnnxEncoder(Path(folder), threads=self._settings.query_threads or 1)


class Methods:
    """The routing methods over one corpus; `skills` has the columns doc_id, name, description and body."""

    def __init__(self, models: RoutingModels, skills: pl.DataFrame) -> None:
        self._models = models
        # Sorted, so that skills of equal score are ranked by their ids.
        self._frame = skills.sort("doc_id")

    def method(self, name: str) -> RoutingMethod:
        """Return a method with its index built; raise an error if what it needs cannot be used."""
        if base_of(name) in VARIED:
            return staged(self.pipeline(name))
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
        kept, asking, rerank = self._models.kept, self._models.asking, self._models.rerank
        fit = (packaged_fit(rerank), rerank) if is_base(kept.card) else ()  # as served
        return Ablations(self._skills, kept, asking, *fit)

    def pipeline(self, name: str) -> Staged:
        """Return one of the methods of stages, or a variant of it; raises as `method`."""
        models, base = self._models, base_of(name)
        if base == "skillflow":
            flow = settings_of(name, SkillFlowSettings)
            own = flow.dense_model and "dense" in flow.stages
            folder = models.export(flow.dense_model) if own else models.folder
            # The stage's time is measured, so its queries must not come from a memory.
            encoder, kept = models.query_encoder(folder), load_kept_encoder(models.root.uri, folder)
            return skillflow(self._skills, flow, kept, encoder, models)
        router = settings_of(name, SkillRouterSettings)
        if base == "skillrouter":
            return skillrouter(self._skills, router, models)
        first = RouteStage(self._skills, self._ablations.router("default-rerank-none"), k=router.candidates)
        return Staged(self._skills, [first, reranking(router, models)(self._skills)])


def staged(pipeline: Staged) -> RoutingMethod:
    """Return a pipeline as a method; its stages decide how many skills they keep."""
    return lambda task, _depth: pipeline.run(task)
