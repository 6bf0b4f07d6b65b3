from __future__ import annotations

import json
from pathlib import Path

from tests.support.command import Ask
from tests.support.llm.llm_asking import settings_of
from tests.support.llm.llm_server import LlmServer
from tests.support.models.routing_answers import Set, rows, untimed
from tests.support.models.routing_material import Written
from tests.support.models.tiny_models import save_cross_encoder, save_qwen3


def test_two_stages_retrieve_and_rerank_in_skillrouters_form(
    ask: Ask, root: str, bench: Written, environment: Set, tmp_path: Path
) -> None:
    tiny = str(save_qwen3(tmp_path / "qwen3"))
    environment({
        "SKILLERY_SKILLROUTER_ENCODER": tiny, "SKILLERY_SKILLROUTER_RERANKER": tiny,
        "SKILLERY_SKILLROUTER_CANDIDATES": "4",
    })  # fmt: skip
    command = ["evaluate", "routing", *bench.options(), "--root", root, "--method", "skillrouter", "--json"]
    code, first, _ = ask(*command)
    _, second, _ = ask(*command)
    assert code == 0
    row = rows(first)["skillrouter"]
    assert [(stage["stage"], stage["k"]) for stage in row["stages"]] == [("retrieve", 4), ("rerank", 4)]
    assert row["stages"][0]["recall@5"] == row["stages"][1]["recall@5"]
    assert untimed(json.loads(first)) == untimed(json.loads(second))


def test_variants_of_a_method_are_compared_with_the_first_of_a_sweep(
    ask: Ask, root: str, bench: Written, environment: Set, tmp_path: Path
) -> None:
    tiny = str(save_qwen3(tmp_path / "qwen3"))
    environment({"SKILLERY_SKILLROUTER_ENCODER": tiny, "SKILLERY_SKILLROUTER_RERANKER": tiny})
    command = ["evaluate", "routing", *bench.options(), "--root", root, "--sweep", "skillrouter-candidates"]
    code, printed, _ = ask(*command, "--json")
    assert code == 0
    measured = rows(printed)
    assert list(measured) == [f"skillrouter:candidates={k}" for k in (10, 20, 50)]
    assert [row["stages"][0]["k"] for row in measured.values()] == [10, 20, 50]
    contests = json.loads(printed)["contests"]
    assert {c["baseline"] for c in contests} == {"skillrouter:candidates=10"}
    assert all((c["effect"] is None) == (c["measure"] not in ("hit@1", "fc@10")) for c in contests)


def test_a_staged_method_tells_where_its_right_first_skills_come_from(
    ask: Ask, root: str, bench: Written, environment: Set, tmp_path: Path
) -> None:
    tiny = str(save_cross_encoder(tmp_path / "cross"))
    environment({"SKILLERY_SKILLROUTER_RERANKER": tiny})
    command = ["evaluate", "routing", *bench.options(), "--root", root, "--method", "reranked"]
    _, printed, _ = ask(*command, "--json")
    _, table, _ = ask(*command, "--report", str(tmp_path / "report"))
    row = rows(printed)["reranked"]
    parts = row["first_stage"]
    assert [stage["stage"] for stage in row["stages"]] == ["route", "rerank"]
    assert sum(parts.values()) == 3
    assert parts["both"] + parts["last"] == 3 * row["hit@1"]
    assert f"{parts['both']} by both its ends, {parts['last']} by the last alone" in table
    report = (tmp_path / "report" / "routing.md").read_text("utf-8")
    assert "| reranked |" in report.partition("and by the last")[2]


def test_where_a_causal_reranker_looks_is_told_by_layer(
    ask: Ask, root: str, bench: Written, environment: Set, tmp_path: Path
) -> None:
    environment({"SKILLERY_SKILLROUTER_RERANKER": str(save_qwen3(tmp_path / "qwen3"))})
    command = ["evaluate", "routing", *bench.options(), "--root", root, "--method", "default", "--attention"]
    code, printed, _ = ask(*command, "--json")
    _, shown, _ = ask(*command, "--report", str(tmp_path / "report"))
    assert code == 0
    found = {row["layers"]: row for row in json.loads(printed)["attention"]}
    assert list(found) == ["middle", "0", "1", "all"]
    assert all(abs(row["name"] + row["description"] + row["body"] - 1) < 1e-6 for row in found.values())
    assert "where the reranker looks" in shown
    report = (tmp_path / "report" / "routing.md").read_text("utf-8")
    assert f"| all | {found['all']['name']:.1%} |" in report.partition("# Where the reranker looks")[2]


def test_the_attention_of_what_is_no_causal_model_is_wrong_use(
    ask: Ask, root: str, bench: Written, environment: Set, tmp_path: Path
) -> None:
    environment({"SKILLERY_SKILLROUTER_RERANKER": str(save_cross_encoder(tmp_path / "cross"))})
    command = ["evaluate", "routing", *bench.options(), "--root", root, "--method", "default", "--attention"]
    code, _, told = ask(*command)
    assert (code, "SKILLERY_SKILLROUTER_RERANKER" in told) == (2, True)


def test_a_language_model_judges_what_the_default_ranks_first(
    ask: Ask, root: str, bench: Written, environment: Set
) -> None:
    method = "reranked:reranker=judge,candidates=3"
    command = ["evaluate", "routing", *bench.options(), "--root", root, "--method", method, "--json"]
    with LlmServer(say=lambda _: '{"selected": [3]}') as server:
        environment(settings_of(server))
        code, printed, _ = ask(*command)
        assert (code, server.requests) == (0, 3)
    assert rows(printed)[method]["first_stage"]["last"] == 0 == rows(printed)[method]["first_stage"]["both"]


def test_a_language_model_that_no_stage_needs_is_not_opened(
    ask: Ask, root: str, bench: Written, environment: Set, tmp_path: Path
) -> None:
    environment({
        "SKILLERY_SKILLROUTER_RERANKER": str(save_cross_encoder(tmp_path / "cross")),
        "SKILLERY_LLM_BASE_URL": "http://127.0.0.1:9/v1", "SKILLERY_LLM_MODEL": "none",
    })  # fmt: skip
    _, printed, _ = ask(
        "evaluate", "routing", *bench.options(), "--root", root, "--method", "reranked", "--json"
    )
    assert json.loads(printed)["llm"] is None


def test_a_judge_needs_a_language_model(ask: Ask, root: str, bench: Written) -> None:
    code, _, told = ask(
        "evaluate", "routing", *bench.options(), "--root", root, "--method", "reranked:reranker=judge"
    )
    assert (code, "SKILLERY_LLM" in told) == (2, True)


def test_a_device_that_is_not_there_is_named_before_anything_is_encoded(
    ask: Ask, bench: Written, environment: Set, tmp_path: Path
) -> None:
    environment({"SKILLERY_DEVICE": "cuda:7"})
    code, _, told = ask(
        "evaluate", "routing", *bench.options(), "--root", str(tmp_path / "new"), "--method", "skillflow"
    )
    assert (code, "SKILLERY_DEVICE='cuda:7' cannot be used here" in told) == (2, True)
    assert not (tmp_path / "new").exists()
