"""SkillFlow's and SkillRouter's pipelines, put together as their settings say."""

from __future__ import annotations

from collections.abc import Sequence

from flows.routing_settings import SkillFlowSettings, SkillRouterSettings, prompts_of
from storage.root import Root
from tasks.models.bi_encoder import Instructed, LastTokenEncoder
from tasks.models.causal_reranker import CausalReranker
from tasks.models.cross_encoder import CrossEncoder
from tasks.models.kept import KeptEncoder
from tasks.models.protocols import Encoder
from tasks.retrieve.flow_asking import FlowLlm
from tasks.retrieve.flow_dense import DenseSettings, DenseStage
from tasks.retrieve.flow_queries import LlmQueries, QueryWriter, TaskItself
from tasks.retrieve.flow_rerank import RerankSettings, RerankStage
from tasks.retrieve.flow_select import SelectSettings, SelectStage
from tasks.retrieve.rows import TEMPLATE
from tasks.retrieve.skill import Skill
from tasks.retrieve.staged import Stage, Staged
from tasks.retrieve.two_stage import FlatRerankStage, RetrieveStage, flat_text


def skillflow(
    skills: Sequence[Skill], flow: SkillFlowSettings, kept: Encoder, encoder: Encoder, llm: FlowLlm | None
) -> Staged:
    """Return SkillFlow's stages; without a language model a task is its own query, and nothing is selected.

    Args:
        skills: The corpus.
        flow: Which stages, and how.
        kept: Makes the skills' vectors.
        encoder: Makes the queries' vectors.
        llm: Writes queries and selects.

    Raises:
        WrongInput: No stage is left, one keeps more than the one before it, or a prompt cannot be read.
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
    """Return SkillRouter's stages; the skills' vectors are kept below the root.

    Args:
        skills: The corpus.
        router: Which models, and how much of a skill each reads.
        root: Where vectors are kept.

    Raises:
        ModelMismatch: A model cannot be loaded.
    """
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
