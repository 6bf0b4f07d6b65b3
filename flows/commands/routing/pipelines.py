"""The published pipelines over one corpus: SkillFlow's stages, SkillRouter's two, and its reranker alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from flows.commands.routing.settings import SkillFlowSettings, SkillRouterSettings, prompts_of
from storage.errors import WrongInput
from storage.root import Root
from tasks.models.cached_encoder import KeptEncoder
from tasks.models.llm.ask import Llm
from tasks.models.protocols import Encoder
from tasks.models.with_torch.bi_encoder import Instructed, LastTokenEncoder
from tasks.models.with_torch.cross_encoder import CrossEncoder
from tasks.models.with_torch.reranker import LoadedReranker, load_reranker
from tasks.retrieve.baselines.skillflow import (
    DenseSettings,
    DenseStage,
    LlmQueries,
    QueryWriter,
    RerankSettings,
    RerankStage,
    SelectSettings,
    SelectStage,
    TaskItself,
)
from tasks.retrieve.baselines.skillrouter import FlatRerankStage, JudgeStage, RetrieveStage, flat_text
from tasks.retrieve.baselines.stages import Stage, Staged
from tasks.retrieve.routing.skill import TEMPLATE, Skill

JUDGE = "judge"


class Means(NamedTuple):
    """What stages run with: `llm` opens the LLM, if one is set up; the device of models."""

    llm: Callable[[], Llm | None]
    device: str


def skillflow(
    skills: Sequence[Skill], flow: SkillFlowSettings, kept: Encoder, encoder: Encoder, means: Means
) -> Staged:
    """Return SkillFlow's stages; without an LLM a task is its own query, and nothing is selected.

    `kept` encodes the skills and keeps their vectors; `encoder` encodes the queries. Settings that leave no
    stage raise `WrongInput`, and so do stages that keep more than the one before, and prompts that cannot be
    read.
    """
    rules, llm = prompts_of(flow), means.llm()
    writer: QueryWriter = TaskItself() if llm is None else LlmQueries(llm)
    stages: list[Stage] = []
    for name in flow.stages:
        if name == "dense":
            stages.append(_dense(skills, flow, kept, encoder, writer, rules[name]))
        elif name == "select":
            if llm is not None:
                stages.append(SelectStage(skills, llm, _selecting(flow, rules)))
        else:
            stages.append(_reranking(name, skills, flow, writer, rules[name], means.device))
    return Staged(skills, stages)


def skillrouter(skills: Sequence[Skill], router: SkillRouterSettings, root: Root, means: Means) -> Staged:
    """Return SkillRouter's stages; vectors of skills are kept below the root. Raises as `reranking`."""
    model = LastTokenEncoder(router.encoder, device=means.device)
    kept = KeptEncoder(model, root)
    encoded = router.encoder_description_tokens, router.encoder_body_tokens
    vectors = kept.encode([flat_text(skill, encoded, model) for skill in skills])
    asking = Instructed(model, router.encoder_instruction)
    stages: list[Stage] = [RetrieveStage(vectors, asking, router.candidates)]
    if router.reranker:
        stages.append(reranking(router, means)(skills))
    return Staged(skills, stages)


def reranking(router: SkillRouterSettings, means: Means) -> Callable[[Sequence[Skill]], Stage]:
    """Return what makes the stage that puts skills in order, by a model, loaded once, or the LLM as judge.

    Raises:
        WrongInput: The LLM is to judge, and none is set up.
        ModelMismatch: There is no such model.
    """
    if router.reranker == JUDGE:
        if (llm := means.llm()) is None:
            msg = "the judge is a language model: set SKILLERY_LLM_BASE_URL and SKILLERY_LLM_MODEL"
            raise WrongInput(msg)
        return lambda skills: JudgeStage(skills, llm, k=router.candidates)
    limits = router.reranker_description_tokens, router.reranker_body_tokens
    scorer = loaded(router, means.device)
    return lambda skills: FlatRerankStage(skills, scorer, scorer, k=router.candidates, limits=limits)


def loaded(router: SkillRouterSettings, device: str) -> LoadedReranker:
    """Return the model that the settings name as reranker; raises as `load_reranker`."""
    most = router.reranker_description_tokens + router.reranker_body_tokens
    return load_reranker(
        router.reranker, instruction=router.reranker_instruction, max_tokens=most, device=device
    )


def _dense(
    skills: Sequence[Skill],
    flow: SkillFlowSettings,
    kept: Encoder,
    encoder: Encoder,
    writer: QueryWriter,
    rules: str | None,
) -> DenseStage:
    texts = [_encoded_text(skill, flow.dense_text) for skill in skills]
    made = DenseSettings(flow.dense_k, flow.dense_queries, flow.dense_gathering, flow.dense_depth, rules)
    return DenseStage(kept.encode(texts), encoder, writer, made)


def _encoded_text(skill: Skill, form: str) -> str:
    """Return what the encoder gets of a skill, and cuts to what it reads."""
    if form == "content":
        return f"{skill.description}\n{skill.body}"
    return TEMPLATE.format(**skill._asdict()) if form == "name-description" else skill.description


def _reranking(
    name: str,
    skills: Sequence[Skill],
    flow: SkillFlowSettings,
    writer: QueryWriter,
    rules: str | None,
    device: str,
) -> RerankStage:
    if name == "shallow":
        scorer = CrossEncoder(flow.shallow_model, max_tokens=flow.shallow_tokens, device=device)
        made = RerankSettings(flow.shallow_k, flow.shallow_queries, flow.shallow_aggregation, rules)
    else:
        scorer = CrossEncoder(flow.deep_model, max_tokens=flow.deep_tokens, batch=4, device=device)
        made = RerankSettings(flow.deep_k, flow.deep_queries, flow.deep_aggregation, rules)
    return RerankStage(name, skills, scorer, writer, made)


def _selecting(flow: SkillFlowSettings, rules: dict[str, str | None]) -> SelectSettings:
    return SelectSettings(
        flow.select_k, flow.select_specific, flow.select_characters, rules["relevant"], rules["specific"]
    )
