from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from typer.main import get_command

from flows.cli.main import app
from flows.cli.options import presets, set_preset
from flows.commands.induction.induce import InductionSettings
from flows.commands.queries import SkillPagerSettings, load_skillpager
from flows.commands.routing.settings import SkillFlowSettings, SkillRouterSettings
from flows.commands.routing.training import TrainingEnvironment
from flows.settings import Settings, load_settings
from tests.support.command import Ask

KINDS = (
    Settings, SkillPagerSettings, SkillFlowSettings, SkillRouterSettings, TrainingEnvironment,
    InductionSettings,
)  # fmt: skip
# What the papers say, by preset and command: settings by who reads them, and options (None).
CONSTANTS: dict[tuple[str, str], list[tuple[Callable[[], Any] | None, dict[str, Any]]]] = {
    ("skillpager", "evaluate paging"): [
        (lambda: load_skillpager(load_settings()), {  # sections 3.1, 3.2, 4.3
            "relevance_weight": 0.7, "few": 20, "many": 60, "large": 100, "stop_below": 0,
            "chunk_tokens": 256, "printed": "nodes", "grouped": True,
        }),
        (load_settings, {"encoder": "BAAI/bge-m3", "llm_batch": 20, "edges": "rules"}),  # 4.4
        (None, {"judge": "llm", "classifier": "llm"}),
    ],
    ("skillflow", "search"): [
        (SkillFlowSettings, {  # section 4.2
            "dense_model": "BAAI/bge-base-en-v1.5", "dense_queries": 5, "dense_k": 1000, "dense_depth": 200,
            "dense_gathering": "union", "dense_text": "description",
            "shallow_model": "cross-encoder/ms-marco-MiniLM-L-6-v2", "shallow_tokens": 512,
            "shallow_queries": 1, "shallow_k": 100, "deep_model": "BAAI/bge-reranker-v2-m3",
            "deep_tokens": 4096, "deep_queries": 1, "deep_k": 10, "select_k": 5, "select_characters": 0,
        }),
        (load_settings, {"llm_max_tokens": 200, "llm_temperature": 0}),  # A.2
        (None, {"method": "skillflow"}),
    ],
    ("skillflow", "run"): [  # A.1
        (load_settings, {"request_delay": 1, "retry_wait_max": 10, "archive_bytes": 50_000_000}),
    ],
    ("skillrouter", "search"): [
        (SkillRouterSettings, {  # sections 4.1 to 4.3, appendix C
            "candidates": 20, "encoder_description_tokens": 300, "encoder_body_tokens": 2500,
            "reranker_description_tokens": 500, "reranker_body_tokens": 3000,
        }),
        (None, {"method": "skillrouter"}),
    ],
    ("skillrouter", "train routing"): [
        (TrainingEnvironment, {  # sections 4.2, 4.3, appendix C
            "batch": 8, "accumulation": 4, "learning_rate": 2e-5, "epochs": 1, "checkpointing": True,
            "semantic": 4, "lexical": 3, "category": 2, "random": 1, "negatives": 10, "depth": 50,
            "limits": (300, 2500), "reranker_limits": (500, 3000), "candidates": 20, "lists": 32_283,
            "lists_from": "encoder", "reranker_batch": 16, "reranker_bf16": True, "pooling": "last",
            "reranker_loss": "listwise", "drop_false": True, "mined": "flat",
        }),
        (load_settings, {"encoder": "Qwen/Qwen3-Embedding-0.6B"}),
        (None, {"pairs": 37_979, "reranker": "Qwen/Qwen3-Reranker-0.6B"}),
    ],
    ("skillweaver", "compose"): [  # section 6.1
        (load_settings, {
            "encoder": "sentence-transformers/all-MiniLM-L6-v2", "llm_temperature": 0.1, "llm_top_p": 0.9,
            "llm_max_tokens": 256,
        }),
        (None, {"decomposer": "paper", "hints": 15, "rounds": 1, "k": 10, "alpha": 0.5}),
    ],
    ("skillweaver", "bench compose"): [(None, {"queries": 300, "templates": True})],  # section 5.2
    ("skillpager", "bench paging"): [  # section 4.1
        (None, {"skills": 395}),
        (SkillPagerSettings, {"request_characters": 0, "request_categories": True, "request_exactly": True}),
    ],
    ("skillrouter", "bench requests"): [(None, {"pairs": 37_979})],  # section 4.2
    ("sgdr", "suggest"): [  # section 5.1
        (InductionSettings, {"summaries": "llm"}),
        (None, {"method": "sgdr", "alpha": 0.5, "relevance_weight": 0.7, "k": 5}),
    ],
    ("sgdr", "induce"): [(None, {"granularity": "window:2-5", "inducer": "llm", "judge": "llm"})],
}  # fmt: skip


@pytest.fixture(autouse=True)
def _own_environment() -> Iterator[None]:
    with patch.dict(os.environ):
        yield


@pytest.mark.parametrize(("name", "command"), CONSTANTS)
def test_a_preset_sets_what_its_paper_says(name: str, command: str) -> None:
    options = set_preset(name, command)
    for load, wanted in CONSTANTS[name, command]:
        found = options if load is None else load()
        held = {key: found[key] if load is None else getattr(found, key) for key in wanted}
        assert held == wanted


@pytest.mark.parametrize(("name", "command"), [(n, c) for n, told in presets().items() for c in told])
def test_all_that_presets_set_is_a_setting_or_an_option(name: str, command: str) -> None:
    known = {
        f"{kind.model_config['env_prefix']}{field.upper()}" for kind in KINDS for field in kind.model_fields
    }
    keys = set() if command == "asks" else set(presets()[name][command])
    assert {key for key in keys if not key.startswith("-")} <= known
    if command not in ("asks", "all"):
        node: Any = get_command(app)
        for part in command.split():
            node = node.commands[part]
        options = {option for parameter in node.params for option in parameter.opts}
        assert {"--preset", *(key for key in keys if key.startswith("-"))} <= options


def test_a_preset_is_printed_and_yields_to_what_the_user_has_set(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLERY_SKILLPAGER_FEW", "7")
    arguments = ["page", "a", "b", "--root", str(tmp_path), "--preset"]
    told = ask(*arguments, "skillpager", "--method", "best").stderr
    assert "  SKILLERY_SKILLPAGER_LARGE=100\n" in told
    assert "  SKILLERY_SKILLPAGER_FEW=7 (yours; the paper's is 20)\n" in told
    assert "says nothing of page: choose one of skillpager" in ask.refused(*arguments, "sgdr")


def test_only_the_preset_of_who_types_nodes_changes_how_a_run_types_them() -> None:
    for name, told in presets().items():
        if "run" in told and name != "skillpager":
            assert not [key for key in {**told["all"], **told["run"]} if key.startswith("SKILLERY_LLM_")]
