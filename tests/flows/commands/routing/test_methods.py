"""Every sweep of the papers is measured once, by tiny models that a cache holds under the papers' names."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from flows.commands.routing.methods import RoutingModels, require_names, skillflow
from flows.commands.routing.settings import (
    SWEEPS,
    VARIED,
    SkillFlowSettings,
    SkillRouterSettings,
    base_of,
    expanded,
    llm_setting,
    require_skillflow,
    settings_of,
)
from flows.settings import Settings
from storage.errors import WrongInput
from storage.root import Root
from tasks.models.encoder import OnnxEncoder
from tasks.models.protocols import Vectors
from tasks.retrieve.routing.skill import Skill
from tests.support.command import Ask, skillery
from tests.support.llm.llm_asking import settings_of as llm_settings
from tests.support.llm.llm_server import LlmServer
from tests.support.llm.scripted import say
from tests.support.models.routing_material import Set, rows
from tests.support.models.tiny_models import save_bi_encoder, save_cross_encoder, save_qwen3


def test_variants_of_a_method_are_compared_with_the_first_of_a_sweep(
    ask: Ask, routing: list[str], environment: Set, tmp_path: Path
) -> None:
    tiny = str(save_qwen3(tmp_path / "qwen3"))
    environment({"SKILLERY_SKILLROUTER_ENCODER": tiny, "SKILLERY_SKILLROUTER_RERANKER": tiny})
    command = [*routing, "--sweep", "skillrouter-candidates"]
    found = ask.told(*command)
    measured = rows(found)
    assert list(measured) == [f"skillrouter:candidates={k}" for k in (10, 20, 50)]
    assert [row["stages"][0]["k"] for row in measured.values()] == [10, 20, 50]
    assert {c["baseline"] for c in found["contests"]} == {"skillrouter:candidates=10"}
    assert all((c["effect"] is None) == (c["measure"] not in ("hit@1", "fc@10")) for c in found["contests"])


def test_a_staged_method_tells_where_its_right_first_skills_come_from(
    ask: Ask, routing: list[str], environment: Set, tmp_path: Path
) -> None:
    tiny = str(save_cross_encoder(tmp_path / "cross"))
    environment({"SKILLERY_SKILLROUTER_RERANKER": tiny})
    command = [*routing, "--method", "reranked"]
    row = rows(ask.told(*command))["reranked"]
    _, table, _ = ask(*command, "--report", str(tmp_path / "report"))
    parts = row["first_stage"]
    assert [stage["stage"] for stage in row["stages"]] == ["route", "rerank"]
    assert sum(parts.values()) == 3
    assert parts["both"] + parts["last"] == 3 * row["hit@1"]
    assert f"{parts['both']} by both its ends, {parts['last']} by the last alone" in table
    report = (tmp_path / "report" / "routing.md").read_text("utf-8")
    assert "| reranked |" in report.partition("and by the last")[2]


def test_where_a_causal_reranker_looks_is_told_by_layer(
    ask: Ask, routing: list[str], environment: Set, tmp_path: Path
) -> None:
    environment({"SKILLERY_SKILLROUTER_RERANKER": str(save_qwen3(tmp_path / "qwen3"))})
    command = [*routing, "--method", "default", "--attention"]
    found = {row["layers"]: row for row in ask.told(*command)["attention"]}
    _, shown, _ = ask(*command, "--report", str(tmp_path / "report"))
    assert list(found) == ["middle", "0", "1", "all"]
    assert all(abs(row["name"] + row["description"] + row["body"] - 1) < 1e-6 for row in found.values())
    assert "where the reranker looks" in shown
    report = (tmp_path / "report" / "routing.md").read_text("utf-8")
    assert f"| all | {found['all']['name']:.1%} |" in report.partition("# Where the reranker looks")[2]


def test_the_attention_of_what_is_no_causal_model_is_wrong_use(
    ask: Ask, routing: list[str], environment: Set, tmp_path: Path
) -> None:
    environment({"SKILLERY_SKILLROUTER_RERANKER": str(save_cross_encoder(tmp_path / "cross"))})
    assert "SKILLERY_SKILLROUTER_RERANKER" in ask.refused(*routing, "--method", "default", "--attention")


def test_a_language_model_judges_what_the_default_ranks_first(
    ask: Ask, routing: list[str], environment: Set
) -> None:
    method = "reranked:reranker=judge,candidates=3"
    with LlmServer(say=lambda _: '{"selected": [3]}') as server:
        environment(llm_settings(server))
        stage = rows(ask.told(*routing, "--method", method))[method]["first_stage"]
        assert server.requests == 3 + 1  # with the one before what is timed
    assert stage["last"] == 0 == stage["both"]


def test_an_encoder_behind_an_endpoint_is_asked_about_each_skill_once(
    ask: Ask, routing: list[str], environment: Set
) -> None:
    method = "skillrouter:reranker=,encoder=api:letters,encoder_query_prefix=query: "
    method += ",encoder_text_prefix=text: "
    command = [*routing, "--method"]
    with LlmServer() as server:
        environment(llm_settings(server))
        found = ask.told(*command, method)
        asked = Counter(text.partition(": ")[0] for text in server.embedded)
        assert set(asked) == {"a", "query", "text"}
        assert (asked["a"], asked["query"]) == (1, 3 + 1)
        ask(*command, method)
        assert Counter(text.partition(": ")[0] for text in server.embedded)["text"] == asked["text"]
        code, _, told = ask(*command, method.replace("letters", "digits"))
        assert (code, "no such path or model" in told) == (1, True), told
    assert 0 < rows(found)[method]["hit@10"] <= 1


def test_prefixes_and_length_of_what_the_dense_stage_reads_can_be_set(
    minilm: OnnxEncoder, tmp_path: Path
) -> None:
    skills = [
        Skill("a/b", "bread", "make", "let the food rise"),
        Skill("a/c", "bees", "keep", "open the hive"),
    ]
    name = "skillflow:stages=dense,dense_queries=1,dense_text=content,dense_tokens=4"
    name += ",dense_text_prefix=passage: ,dense_query_prefix=query: "
    read: list[str] = []

    class Reading:
        def encode(self, texts: Sequence[str]) -> Vectors:
            read.extend(texts)
            return minilm.encode(texts)

    flow = settings_of(name, SkillFlowSettings)
    models = RoutingModels(Root(tmp_path), Settings(device="cpu"), ExitStack())
    pipeline = skillflow(skills, flow, Reading(), minilm, models)
    assert read == ["passage: make\nlet the food", "passage: keep\nopen the hive"]
    texts = minilm.encode(["query: open a hive", *read])
    cosines = dict(zip(("a/b", "a/c"), texts[1:] @ texts[0], strict=True))
    assert list(pipeline.run("open a hive")[-1].doc_ids) == sorted(cosines, key=lambda i: -cosines[i])


def test_a_language_model_that_no_stage_needs_is_not_opened(
    ask: Ask, routing: list[str], environment: Set, tmp_path: Path
) -> None:
    environment({
        "SKILLERY_SKILLROUTER_RERANKER": str(save_cross_encoder(tmp_path / "cross")),
        "SKILLERY_LLM_BASE_URL": "http://127.0.0.1:9/v1", "SKILLERY_LLM_MODEL": "none",
    })  # fmt: skip
    assert ask.told(*routing, "--method", "reranked")["llm"] is None


def test_a_device_that_is_not_there_is_named_before_anything_is_encoded(
    ask: Ask, routing: list[str], environment: Set, tmp_path: Path
) -> None:
    environment({"SKILLERY_DEVICE": "cuda:7"})
    assert "SKILLERY_DEVICE='cuda:7' cannot be used here" in ask.refused(
        *routing, "--root", str(tmp_path / "new"), "--method", "skillflow"
    )
    assert not (tmp_path / "new").exists()


def test_a_variant_has_the_settings_that_its_name_says_and_the_others_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SKILLERY_SKILLFLOW_DENSE_K", "70")
    monkeypatch.setenv("SKILLERY_SKILLFLOW_DEEP_TOKENS", "99")
    found = settings_of("skillflow:stages=dense+deep,deep_tokens=512,dense_model=", SkillFlowSettings)
    assert (found.stages, found.deep_tokens, found.dense_model) == (["dense", "deep"], 512, "")
    assert (found.dense_k, found.shallow_k) == (70, 100)
    assert settings_of("skillflow", SkillFlowSettings).deep_tokens == 99
    monkeypatch.setenv("SKILLERY_SKILLFLOW_DENSE_K", "many")
    with pytest.raises(WrongInput, match=r"^SKILLERY_SKILLFLOW_DENSE_K='many'"):
        settings_of("skillflow:deep_k=3", SkillFlowSettings)


@pytest.mark.parametrize("sweep", sorted(SWEEPS))
def test_all_variants_of_a_sweep_can_be_made(sweep: str) -> None:
    names = expanded((), [sweep])
    assert len(names) > 1
    require_names(names)
    for name in names:
        if base_of(name) == "skillflow":
            require_skillflow(settings_of(name, SkillFlowSettings))
        elif base_of(name) in VARIED:
            settings_of(name, SkillRouterSettings)
    assert expanded(["zsum", names[0]], [sweep]) == ["zsum", *names], "each is measured once"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("skillflow", None),
        ("skillflow:stages=dense+shallow,dense_queries=1", None),
        ("skillflow:deep_k=3,dense_queries=3", "dense_queries=3"),
        ("skillflow:shallow_aggregation=max", "shallow_aggregation=max"),
        ("skillflow:stages=dense+select", "stages=dense+select"),
        ("skillflow:stages=dense,dense_queries=1,listed=true", "listed=true"),
    ],
)
def test_a_variant_that_means_nothing_without_an_llm_is_told(name: str, said: str | None) -> None:
    assert llm_setting(name) == said


MODELS = {
    "sentence": [
        "BAAI/bge-base-en-v1.5", "BAAI/bge-m3", "intfloat/e5-base-v2", "intfloat/e5-large-v2",
        "BAAI/bge-large-en-v1.5", "Alibaba-NLP/gte-large-en-v1.5", "nvidia/NV-Embed-v2",
    ],
    "cross": ["cross-encoder/ms-marco-MiniLM-L-6-v2", "BAAI/bge-reranker-v2-m3"],
    "qwen3": [
        "pipizhao/SkillRouter-Embedding-0.6B", "pipizhao/SkillRouter-Reranker-0.6B",
        "Qwen/Qwen3-Reranker-0.6B", "Qwen/Qwen3-Embedding-0.6B", "Qwen/Qwen3-Embedding-8B",
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def hub_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache in which stand-ins lie as if they had been fetched from the hub."""
    folder = tmp_path_factory.mktemp("cache")
    made = {"sentence": save_bi_encoder, "cross": save_cross_encoder, "qwen3": save_qwen3}
    for kind, names in MODELS.items():
        model = made[kind](folder / kind)
        for name in names:
            kept = folder / "hub" / f"models--{name.replace('/', '--')}"
            (kept / "refs").mkdir(parents=True)
            (kept / "refs" / "main").write_text("0123456789" * 4, "utf-8")
            shutil.copytree(model, kept / "snapshots" / ("0123456789" * 4))
    return folder / "hub"


@pytest.mark.slow
@pytest.mark.parametrize("sweep", sorted(SWEEPS))
def test_a_sweep_is_written_beside_its_paper(
    routing: list[str], hub_cache: Path, environment: Set, tmp_path: Path, sweep: str
) -> None:
    report = tmp_path / "report"
    environment({"HF_HUB_CACHE": str(hub_cache), "HF_HUB_OFFLINE": "1"})
    command = [*routing, "--sweep", sweep]
    with LlmServer(say=say) as server:
        done = skillery(*command, "--attention", "--report", str(report), **llm_settings(server))
    assert done.returncode == 0, done.stderr
    written = (report / "routing.md").read_text("utf-8")
    for name in SWEEPS[sweep]:
        assert f"| {name} |" in written
    assert ("## Beside the papers" in written) == (sweep != "skillflow-number-of-queries")
    assert "Cohen's h" in written
    assert "# Where the reranker looks" in written
