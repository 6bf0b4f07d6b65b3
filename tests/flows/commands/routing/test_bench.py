from __future__ import annotations

import json
import sys
from pathlib import Path

import polars as pl
import pytest

from flows.commands import console
from tests.support.command import Ask
from tests.support.llm.llm_asking import settings_of
from tests.support.llm.llm_server import LlmServer
from tests.support.llm.scripted import say, works, writes_distractors
from tests.support.models.routing_material import Set, Written, rows, untimed, write_bench, write_bench_folder
from tests.support.models.tiny_models import save_cross_encoder
from tests.support.roots.hand_written import skill

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
    ask: Ask, routing: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "report"
    found = ask.told(*routing, "--report", str(folder))
    measured = rows(found)
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
    ask: Ask, routing: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "report"
    command = [*routing, "--method", "bm25-full"]
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
    wrong: list[str], said: str, ask: Ask, routing: list[str], tmp_path: Path
) -> None:
    assert said in ask.refused(*routing, "--root", str(tmp_path / "new"), *wrong)
    assert not (tmp_path / "new").exists()


def test_a_model_that_is_nowhere_is_said_before_other_methods_are_measured(
    ask: Ask, routing: list[str], tmp_path: Path
) -> None:
    wanted = ["--method", "zsum", "--method", "skillflow:stages=deep,deep_model=x y"]
    code, _, told = ask(*routing, "--root", str(tmp_path / "new"), *wanted)
    assert (code, "model 'x y' is no folder" in told) == (1, True), told
    assert not (tmp_path / "new" / "models").exists()


@pytest.mark.parametrize("library", ["ir_measures", "bm25s"])
def test_a_library_that_is_missing_is_named_before_anything_is_encoded(
    library: str, ask: Ask, routing: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    assert "pip install '.[evaluate]'" in ask.refused(*routing, "--root", str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_four_stages_run_from_queries_to_selection_and_a_second_run_asks_nothing(
    ask: Ask, routing: list[str], environment: Set, tmp_path: Path
) -> None:
    command = [*routing, "--method", "skillflow"]
    environment(four_stages(tmp_path / "cross"))
    with LlmServer(say=say) as server:
        environment(settings_of(server))
        first = ask.told(*command)
        asked = server.requests
        second = ask.told(*command)
        assert server.requests == asked
    row = rows(first)["skillflow"]
    assert [(stage["stage"], stage["k"]) for stage in row["stages"]] == [
        ("dense", 6), ("shallow", 4), ("deep", 3), ("select", 2),
    ]  # fmt: skip
    # A task asks for several queries, for one, for two, and for a selection; another comes first, untimed.
    assert asked == (1 + 3) * 4
    assert first["llm"]["fallbacks"] == {}
    assert untimed(first) == untimed(second)
    assert second["llm"]["requests"] == 0
    assert row["stages"][0]["recall@10"] >= row["stages"][3]["recall@10"]


def test_without_a_language_model_the_task_is_the_query_and_nothing_is_selected(
    ask: Ask, routing: list[str], environment: Set, tmp_path: Path
) -> None:
    environment(four_stages(tmp_path / "cross"))
    found = ask.told(*routing, "--method", "skillflow")
    assert [stage["stage"] for stage in rows(found)["skillflow"]["stages"]] == ["dense", "shallow", "deep"]
    assert found["llm"] is None


def test_a_model_that_misbehaves_is_gone_without_and_what_was_missed_is_told(
    ask: Ask, routing: list[str], environment: Set
) -> None:
    environment({"SKILLERY_SKILLFLOW_STAGES": '["dense", "select"]', "SKILLERY_SKILLFLOW_DENSE_MODEL": ""})
    with LlmServer(lambda _: "no-json", say=say) as server:
        environment(settings_of(server))
        found = ask.told(*routing, "--method", "skillflow")
    assert found["llm"]["fallbacks"]["flow-relevant-1: malformed"] == 4


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
    variable: str, value: str, said: str, ask: Ask, routing: list[str], environment: Set
) -> None:
    environment({variable: value})
    assert said in ask.refused(*routing, "--method", "skillflow")


def test_a_hard_tier_is_made_kept_and_measured_beside_the_easy_one(
    ask: Ask, root: str, bench: Written, routing: list[str], environment: Set, tmp_path: Path
) -> None:
    out = tmp_path / "hard"
    command = ["bench", "distractors", "--documents", str(bench.corpus), "--queries", str(bench.queries)]
    command += ["--qrels", str(bench.qrels), "--out", str(out), "--root", root]
    with LlmServer(say=writes_distractors) as server:
        environment(settings_of(server))
        made = ask.told(*command)
        code, again, _ = ask(*command)
        assert server.requests == 4
    assert (made["wanted"], made["asked"], made["distractors"]) == (4, 4, 12)
    assert code == 0
    assert "12 distractors of 4 skills" in again
    options = ["--documents", str(out / "distractors.jsonl"), "--method", "bm25-full"]
    assert ask.told(*routing, *options)["skills"] == 7 + 12


def test_a_hard_tier_needs_a_language_model_and_the_relevant_skills(
    ask: Ask, root: str, bench: Written, environment: Set, tmp_path: Path
) -> None:
    command = ["bench", "distractors", "--queries", str(bench.queries), "--qrels", str(bench.qrels)]
    command += ["--out", str(tmp_path / "hard"), "--root", root, "--documents"]
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({"doc_id": "x", "content": "# Tea\n\nPour."}) + "\n", "utf-8")
    assert "SKILLERY_LLM" in ask.refused(*command, str(bench.corpus))
    environment({"SKILLERY_LLM_BASE_URL": "http://127.0.0.1:9/v1", "SKILLERY_LLM_MODEL": "none"})
    assert "holds no skill that" in ask.refused(*command, str(other))
    assert not (tmp_path / "hard").exists()


METHODS = ("--method", "zsum", "--method", "bm25-full", "--baseline", "bm25-full")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_bench_folder(tmp_path / "authors")


@pytest.fixture
def others(tmp_path: Path) -> Written:
    return write_bench(tmp_path / "others")


@pytest.fixture
def pooled(folder: Path, root: str) -> list[str]:
    """Return the command that measures the bench in a folder."""
    return ["evaluate", "routing", "--bench", str(folder), "--root", root]


def test_the_language_model_that_is_set_up_is_measured_as_an_agent(
    ask: Ask, folder: Path, pooled: list[str], environment: Set
) -> None:
    command = [*pooled, "--method", "default", "--agents", "llm"]
    assert "--agents llm needs answers.jsonl" in ask.refused(*command)
    expected = {"query_id": "g1", "assertions": ["cut above a bud", "whistle"]}
    (folder / "answers.jsonl").write_text(f"{json.dumps(expected)}\n", "utf-8")
    assert "SKILLERY_LLM" in ask.refused(*command)
    with LlmServer(say=works) as server:
        environment(settings_of(server))
        found = ask.told(*command)
        (folder / "answers.jsonl").write_text('{"query_id": "g1"}\n', "utf-8")
        assert "no line says what an answer must do" in ask.refused(*command)
    assert server.requests == 4
    (agent,) = found["scenario"][0]["agents"]
    assert (agent["without"], agent["with"]) == (0.0, 0.5)
    assert agent["hit@1"] == 0.5 * found["methods"][0]["hit@1"]


def test_a_folder_is_a_bench_measured_in_three_pools(
    ask: Ask, pooled: list[str], others: Written, tmp_path: Path
) -> None:
    report = tmp_path / "report"
    found = ask.told(*pooled, "--corpus", str(others.corpus), *METHODS, "--report", str(report))
    assert [(pool["pool"], pool["skills"]) for pool in found["pools"]] == [
        ("all", 12), ("bench", 5), ("repository", 5),
    ]  # fmt: skip
    assert {key: found[key] for key in found["pools"][0]} == found["pools"][0]
    for pool in found["pools"]:
        for row in pool["methods"]:
            assert (row["queries"], row["interval_over"]) == (4, "repositories")
            assert {repo: part["queries"] for repo, part in row["by_repo"].items()} == {
                "home/garden": 2, "home/kitchen": 2,
            }  # fmt: skip
            rejection = row["rejection"]
            assert (rejection["queries"], rejection["negatives"], rejection["recall"]) == (4, 2, 0.95)
            assert set(rejection["score"]["by_repo"]) == {"home/garden", "home/kitchen"}
        assert {c["method"] for c in pool["contests"]} == {"zsum"}
    alone = {row["method"]: row for row in found["pools"][2]["methods"]}
    assert alone["zsum"]["hit@1"] == alone["bm25-full"]["hit@1"] == 1.0
    # No word of the negatives is in a skill but honey: the lexical scores tell them from the tasks.
    assert alone["bm25-full"]["rejection"]["score"]["auroc"] == 1.0
    assert alone["bm25-full"]["rejection"]["score"]["false_route_rate"] == 0.0
    run = pl.read_parquet(report / "routing.parquet")
    assert run["pool"].unique().sort().to_list() == ["all", "bench", "repository"]
    assert run.filter("negative", measure="score").height == 3 * 2 * 2
    text = (report / "routing.md").read_text("utf-8")
    assert text.count("## Tasks that no skill serves") == 3
    assert "repository: home/garden" in text


def test_copies_of_a_folder_are_folded_among_other_skills(
    ask: Ask, pooled: list[str], others: Written
) -> None:
    command = [*pooled, "--corpus", str(others.corpus), "--pool", "all", "--method", "bm25-full"]
    (row,) = ask.told(*command)["methods"]
    # Of the same text in two skills the one whose id comes first is first: of the bees, the copy.
    assert (row["hit@1"], row["unfolded"]["hit@1"]) == (1.0, 0.75)


def test_a_folder_alone_is_a_bench_of_its_own_skills_whose_text_counts(
    ask: Ask, folder: Path, pooled: list[str], tmp_path: Path
) -> None:
    (folder / "negatives.jsonl").unlink()
    other = json.dumps({"doc_id": "home/kitchen/knife", "content": skill("knife", "Sails boats", "# Sails")})
    (tmp_path / "other.jsonl").write_text(other, "utf-8")
    report, command = tmp_path / "report", [*pooled, "--method", "bm25-full"]
    alone = ask.told(*command, "--report", str(report))
    beside = ask.told(*command, "--corpus", str(tmp_path / "other.jsonl"), "--pool", "all", "--pool", "all")
    assert [pool["pool"] for pool in alone["pools"]] == ["all", "repository"]
    assert sorted(file.name for file in report.glob("*.parquet")) == ["routing.parquet"]
    assert [(pool["pool"], pool["skills"]) for pool in beside["pools"]] == [("all", 5)]
    assert beside["methods"][0]["hit@1"] == 1.0


def test_a_person_reads_pools_in_80_columns(
    ask: Ask, pooled: list[str], others: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_WIDE", 80)
    code, printed, _ = ask(*pooled, "--corpus", str(others.corpus), *METHODS)
    assert code == 0
    assert [line for line in printed.splitlines() if len(line) > 80] == []
    for said in (
        "routing, 4 tasks over 12 skills, copies folded",
        "routing, 4 tasks over 5 skills, copies folded",
        "skills: the bench's own alone",
        "skills: those of a task's repository alone",
        "zsum, by repository",
        "the same by repository",
        "2 tasks that their skill is not for: how many are routed where 0.95 of 4 are",
    ):
        assert said in printed


def test_a_pool_a_share_and_a_file_can_be_named_one_by_one(
    ask: Ask, root: str, folder: Path, others: Written
) -> None:
    files = [
        "--corpus", str(folder / "documents.parquet"), "--queries", str(folder / "queries.jsonl"),
        "--qrels", str(folder / "qrels.jsonl"), "--negatives", str(folder / "negatives.jsonl"),
    ]  # fmt: skip
    command = ["evaluate", "routing", "--root", root, "--method", "bm25-full"]
    plain = ask.told(*command, *files)
    within = ask.told(*command, *files, "--pool", "repository", "--recall", "0.5")
    without = ask.told(*command, *others.options())
    assert [pool["pool"] for pool in plain["pools"]] == ["all"]
    assert [pool["pool"] for pool in within["pools"]] == ["repository"]
    assert within["methods"][0]["rejection"]["recall"] == 0.5
    assert without["methods"][0]["rejection"] is None


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--pool", "pond"], "unknown pool 'pond'; choose some of all, bench, repository"),
        (["--recall", "0"], "--recall 0: give a share"),
        (["--recall", "1.1"], "--recall 1.1: give a share"),
        (["--recall", "nan"], "--recall nan: give a share"),
        (["--negatives", "nowhere.jsonl"], "nowhere.jsonl: cannot be read"),
    ],
)
def test_a_wish_that_cannot_be_measured_is_named_before_anything_is_encoded(
    wrong: list[str], said: str, ask: Ask, pooled: list[str], tmp_path: Path
) -> None:
    assert said in ask.refused(*pooled, "--root", str(tmp_path / "new"), *wrong)
    assert not (tmp_path / "new").exists()


def test_a_file_that_neither_an_option_nor_the_folder_gives_is_named(
    ask: Ask, folder: Path, others: Written, tmp_path: Path
) -> None:
    (folder / "documents.parquet").unlink()
    new = ["--root", str(tmp_path / "new")]
    told = [
        ask("evaluate", "routing", *new).stderr,
        ask("evaluate", "routing", "--queries", "q.jsonl", "--corpus", "c.parquet", *new).stderr,
        ask("evaluate", "routing", "--bench", str(folder), *new).stderr,
        ask("evaluate", "routing", *others.options(), "--pool", "bench", *new).stderr,
    ]
    assert "no --queries is given: name a file by it, or a folder with all files by --bench" in told[0]
    assert "no --qrels is given" in told[1]
    assert f"--bench {folder} holds no documents.parquet: add it, or name a file by --corpus" in told[2]
    assert "--pool bench: the bench has no skills of its own" in told[3]


def test_distractors_make_a_pool_hard_and_both_have_an_average(
    ask: Ask, pooled: list[str], others: Written, tmp_path: Path
) -> None:
    command, report = [*pooled, *METHODS], tmp_path / "report"
    found = ask.told(*command, "--distractors", str(others.corpus), "--report", str(report))
    pools = {pool["pool"]: pool for pool in found["pools"]}
    assert {name: pool["skills"] for name, pool in pools.items()} == {
        "repository": 5, "easy": 5, "hard": 12, "average": 12,
    }  # fmt: skip
    for number in range(2):
        easy, hard, both = (pools[name]["methods"][number] for name in ("easy", "hard", "average"))
        assert both["hit@1"] == pytest.approx((easy["hit@1"] + hard["hit@1"]) / 2)
        assert both["queries"] == easy["queries"]
        assert both["ci95"]["hit@1"][0] <= both["hit@1"] <= both["ci95"]["hit@1"][1]
    assert "the mean of easy and hard, task by task" in (report / "routing.md").read_text("utf-8")
    assert "name a file with them by --distractors" in ask.refused(*command, "--pool", "hard")
