from __future__ import annotations

import json
import sys
from pathlib import Path

import polars as pl
import pytest

from tests.support.command import Ask
from tests.support.llm.llm_asking import settings_of
from tests.support.llm.llm_server import LlmServer
from tests.support.llm.scripted import say, writes_distractors
from tests.support.models.routing_material import Set, Written, rows, untimed
from tests.support.models.tiny_models import save_cross_encoder

CONTRACT = ("hit@1", "mrr@10", "ndcg@10", "recall@10", "recall@20", "recall@50", "fc@10")


def four_stages(models: Path) -> dict[str, str]:
    """Return variables by which SkillFlow's stages keep 6, 4, 3 and 2 of the seven skills."""
    tiny = save_cross_encoder(models)
    settings = {
        "DENSE_MODEL": "", "DENSE_K": 6, "DENSE_QUERIES": 3, "DENSE_DEPTH": 4, "SHALLOW_MODEL": tiny,
        "SHALLOW_K": 4, "DEEP_MODEL": tiny, "DEEP_TOKENS": 64, "DEEP_K": 3, "DEEP_QUERIES": 2, "SELECT_K": 2,
    }  # fmt: skip
    return {f"SKILLERY_SKILLFLOW_{name}": str(value) for name, value in settings.items()}


def test_all_plain_methods_are_measured_reported_and_compared_with_the_frozen_sum(
    ask: Ask, root: str, bench: Written, tmp_path: Path
) -> None:
    folder = tmp_path / "report"
    code, printed, _ = ask(
        "evaluate", "routing", *bench.options(), "--root", root, "--report", str(folder), "--json"
    )
    assert code == 0
    found = json.loads(printed)
    measured = rows(printed)
    assert list(measured) == [
        "bm25-description", "bm25-full", "dense-description", "sentences", "rrf", "zsum", "default",
    ]  # fmt: skip
    for row in measured.values():
        assert set(CONTRACT) <= set(row) & set(row["ci95"]) & set(row["unfolded"])
        assert row["queries"] == 3
        assert row["p95_ms"] >= row["median_ms"] > 0
    assert measured["zsum"]["hit@1"] == measured["default"]["hit@1"] == 1.0
    assert found["skills"] == 7
    assert {c["baseline"] for c in found["contests"]} == {"zsum"}
    assert {c["method"] for c in found["contests"]} == set(measured) - {"zsum"}
    written = pl.read_parquet(folder / "routing.parquet")
    assert written.filter(measure="hit@1").height == 7 * 3 * 2
    assert "## Against zsum, task by task" in (folder / "routing.md").read_text("utf-8")
    assert (folder / "routing.png").read_bytes().startswith(b"\x89PNG")


def test_how_often_agents_would_pass_is_estimated_for_each_method(
    ask: Ask, root: str, bench: Written, tmp_path: Path
) -> None:
    folder = tmp_path / "report"
    command = ["evaluate", "routing", *bench.options(), "--root", root, "--method", "bm25-full"]
    code, printed, _ = ask(*command, "--agents", "skillsbench", "--report", str(folder))
    _, quiet, _ = ask(*command)
    assert code == 0
    assert "tasks that 7 agents would pass, an estimate" in printed
    assert "would pass" not in quiet
    assert "| bm25-full | Codex (GPT-5.2) | 30.6% | 44.7% |" in (folder / "routing.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--method", "magic"], "unknown routing method 'magic'"),
        (["--baseline", "magic"], "unknown routing method 'magic'"),
        (["--method", "zsum", "--baseline", "rrf"], "--baseline rrf is not measured: name it by --method"),
        (["--sweep", "skillflow-queries"], "listed=true needs an LLM: set SKILLERY_LLM_BASE_URL"),
        (["--sweep", "magic"], "--sweep 'magic' is not known: choose some of skillflow-first-stages"),
        (["--method", "rrf:k=60"], "method rrf:k=60: rrf has no settings"),
        (["--method", "skillflow:magic=1"], "'magic' is no setting of it; they are stages, dense_model"),
        (["--method", "skillflow:dense_k=0"], "skillflow:dense_k=0: dense_k='0': Input should be"),
        (["--copies", "nowhere.jsonl"], "nowhere.jsonl: cannot be read"),
    ],
)
def test_what_cannot_be_measured_is_said_before_anything_is_encoded(
    wrong: list[str], said: str, ask: Ask, tmp_path: Path, bench: Written
) -> None:
    code, _, told = ask("evaluate", "routing", *bench.options(), "--root", str(tmp_path / "new"), *wrong)
    assert code == 2
    assert said in told
    assert not (tmp_path / "new").exists()


def test_a_model_that_is_nowhere_is_said_before_other_methods_are_measured(
    ask: Ask, tmp_path: Path, bench: Written
) -> None:
    wanted = ["--method", "zsum", "--method", "skillflow:stages=deep,deep_model=x y"]
    code, _, told = ask("evaluate", "routing", *bench.options(), "--root", str(tmp_path / "new"), *wanted)
    assert (code, "model 'x y' is no folder" in told) == (1, True), told
    assert not (tmp_path / "new" / "models").exists()


@pytest.mark.parametrize("library", ["ir_measures", "bm25s"])
def test_a_library_that_is_missing_is_named_before_anything_is_encoded(
    library: str, ask: Ask, tmp_path: Path, bench: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    code, _, told = ask("evaluate", "routing", *bench.options(), "--root", str(tmp_path / "new"))
    assert code == 2
    assert "pip install '.[evaluate]'" in told
    assert not (tmp_path / "new").exists()


def test_four_stages_run_from_queries_to_selection_and_a_second_run_asks_nothing(
    ask: Ask, root: str, bench: Written, environment: Set, tmp_path: Path
) -> None:
    command = ["evaluate", "routing", *bench.options(), "--root", root, "--method", "skillflow", "--json"]
    environment(four_stages(tmp_path / "cross"))
    with LlmServer(say=say) as server:
        environment(settings_of(server))
        code, first, _ = ask(*command)
        asked = server.requests
        _, second, _ = ask(*command)
        assert code == 0
        assert server.requests == asked
    row = rows(first)["skillflow"]
    assert [(stage["stage"], stage["k"]) for stage in row["stages"]] == [
        ("dense", 6), ("shallow", 4), ("deep", 3), ("select", 2),
    ]  # fmt: skip
    # A task asks for several queries, for one, for two, and for a selection; another comes first, untimed.
    assert asked == (1 + 3) * 4
    assert json.loads(first)["llm"]["fallbacks"] == {}
    assert untimed(json.loads(first)) == untimed(json.loads(second))
    assert json.loads(second)["llm"]["requests"] == 0
    assert row["stages"][0]["recall@10"] >= row["stages"][3]["recall@10"]


def test_without_a_language_model_the_task_is_the_query_and_nothing_is_selected(
    ask: Ask, root: str, bench: Written, environment: Set, tmp_path: Path
) -> None:
    environment(four_stages(tmp_path / "cross"))
    _, printed, _ = ask(
        "evaluate", "routing", *bench.options(), "--root", root, "--method", "skillflow", "--json"
    )
    assert [stage["stage"] for stage in rows(printed)["skillflow"]["stages"]] == ["dense", "shallow", "deep"]
    assert json.loads(printed)["llm"] is None


def test_a_model_that_misbehaves_is_gone_without_and_what_was_missed_is_told(
    ask: Ask, root: str, bench: Written, environment: Set
) -> None:
    environment({"SKILLERY_SKILLFLOW_STAGES": '["dense", "select"]', "SKILLERY_SKILLFLOW_DENSE_MODEL": ""})
    with LlmServer(lambda _: "no-json", say=say) as server:
        environment(settings_of(server))
        code, printed, _ = ask(
            "evaluate", "routing", *bench.options(), "--root", root, "--method", "skillflow", "--json"
        )
    assert code == 0
    assert json.loads(printed)["llm"]["fallbacks"]["flow-relevant-1: malformed"] == 4


def test_a_model_that_is_not_there_is_named_with_what_to_do(
    ask: Ask, root: str, bench: Written, environment: Set, tmp_path: Path
) -> None:
    environment(
        {"SKILLERY_SKILLFLOW_SHALLOW_MODEL": str(tmp_path), "SKILLERY_SKILLFLOW_STAGES": '["shallow"]'}
    )
    code, _, told = ask("evaluate", "routing", *bench.options(), "--root", root, "--method", "skillflow")
    assert code == 1
    assert f"model {tmp_path} cannot be loaded" in told
    assert "name a folder that holds it" in told


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("SKILLERY_SKILLFLOW_DENSE_K", "0", "SKILLERY_SKILLFLOW_DENSE_K='0'"),
        ("SKILLERY_SKILLFLOW_DENSE_PROMPT", "nowhere.txt", "prompt nowhere.txt cannot be read"),
        ("SKILLERY_SKILLFLOW_STAGES", '["dense", "magic"]', "SKILLERY_SKILLFLOW_STAGES="),
        ("SKILLERY_SKILLFLOW_DEEP_K", "101", "DEEP_K=101 is more than SKILLERY_SKILLFLOW_SHALLOW_K=100"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(
    variable: str, value: str, said: str, ask: Ask, root: str, bench: Written, environment: Set
) -> None:
    environment({variable: value})
    code, _, told = ask("evaluate", "routing", *bench.options(), "--root", root, "--method", "skillflow")
    assert code == 2
    assert said in told


def test_a_hard_tier_is_made_kept_and_measured_beside_the_easy_one(
    ask: Ask, root: str, bench: Written, environment: Set, tmp_path: Path
) -> None:
    out = tmp_path / "hard"
    command = ["bench", "distractors", "--documents", str(bench.corpus), "--queries", str(bench.queries)]
    command += ["--qrels", str(bench.qrels), "--out", str(out), "--root", root]
    with LlmServer(say=writes_distractors) as server:
        environment(settings_of(server))
        _, first, _ = ask(*command, "--json")
        code, again, _ = ask(*command)
        assert server.requests == 4
    made = json.loads(first)
    assert (made["wanted"], made["asked"], made["distractors"]) == (4, 4, 12)
    assert code == 0
    assert "12 distractors of 4 skills" in again
    options = ["--documents", str(out / "distractors.jsonl"), "--method", "bm25-full", "--json"]
    _, printed, _ = ask("evaluate", "routing", *bench.options(), "--root", root, *options)
    assert json.loads(printed)["skills"] == 7 + 12


def test_a_hard_tier_needs_a_language_model_and_the_relevant_skills(
    ask: Ask, root: str, bench: Written, environment: Set, tmp_path: Path
) -> None:
    command = ["bench", "distractors", "--queries", str(bench.queries), "--qrels", str(bench.qrels)]
    command += ["--out", str(tmp_path / "hard"), "--root", root, "--documents"]
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({"doc_id": "x", "content": "# Tea\n\nPour."}) + "\n", "utf-8")
    code, _, told = ask(*command, str(bench.corpus))
    assert (code, "SKILLERY_LLM" in told) == (2, True)
    environment({"SKILLERY_LLM_BASE_URL": "http://127.0.0.1:9/v1", "SKILLERY_LLM_MODEL": "none"})
    code, _, told = ask(*command, str(other))
    assert (code, "holds no skill that" in told) == (2, True)
    assert not (tmp_path / "hard").exists()
