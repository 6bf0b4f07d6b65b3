from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.hand_written import SKILLS
from tests.skill_root import Export, SkillRoot

_DOC_ID = f"local/market/{next(iter(SKILLS))}"
_MAIN = [sys.executable, "-c", "from flows.cli import main; main()"]


def _skillery(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*_MAIN, *arguments], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


def _json(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--source", "ftp:nowhere"], "unknown source"),
        (["run", "--limit", "0"], "limit"),
        (["run", "--no-such-option"], "--no-such-option"),
        (["search"], "QUERY is missing"),
        (["search", "bread", "--batch", "only-one.jsonl"], "--batch"),
        (["page", "only-a-document"], "QUERY is missing"),
        (["classify", "nowhere.jsonl", "--out", "out.jsonl"], "nowhere.jsonl"),
        (["classify", "nowhere.jsonl", "--out", "out.jsonl", "--classifier", "oracle"], "oracle"),
        (["evaluate", "paging", "--documents", "nowhere.jsonl", "--queries", "q.jsonl"], "nowhere.jsonl"),
        (["no-such-command"], "no-such-command"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(arguments: list[str], said: str, tmp_path: Path) -> None:
    done = _skillery(*arguments, SKILLERY_ROOT=str(tmp_path / "root"))
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_setting_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    done = _skillery("status", SKILLERY_PROBES="many", SKILLERY_ROOT=str(tmp_path))
    assert done.returncode == 2
    assert "SKILLERY_PROBES='many'" in done.stderr


def test_asking_a_root_that_serves_nothing_says_what_to_do(tmp_path: Path) -> None:
    done = _skillery("search", "bread", "--root", str(tmp_path))
    assert done.returncode == 1
    assert "skillery run" in done.stderr


def test_status_of_an_empty_root_says_that_nothing_is_served(tmp_path: Path) -> None:
    found = _json(_skillery("status", "--root", str(tmp_path), "--json"))
    assert (found["served"], found["runs"], found["counts"]["documents"]) == (None, [], 0)


def test_status_fails_when_what_is_served_is_older_than_asked(served_bakery: SkillRoot) -> None:
    root = served_bakery.root.uri
    assert _skillery("status", "--root", root, "--max-age", "10000000").returncode == 0
    assert _skillery("status", "--root", root, "--max-age", "0").returncode == 1


def test_a_search_and_a_page_print_one_json_object(served_bakery: SkillRoot) -> None:
    root = served_bakery.root.uri
    found = _json(_skillery("search", "how do I bake bread", "-k", "1", "--root", root, "--json"))
    best = found["results"][0]
    assert {"rank", "doc_id", "name", "description", "score", "url", "index_version"} <= best.keys()
    page = _json(_skillery("page", best["doc_id"], "how hot is the oven", "--root", root, "--json"))
    assert {"context", "nodes", "tokens", "document_tokens", "took_ms", "licence", "stale"} <= page.keys()
    assert page["tokens"] <= page["document_tokens"]


def test_markdown_prints_the_context_alone(served_bakery: SkillRoot) -> None:
    root = served_bakery.root.uri
    doc_id = _DOC_ID
    arguments = ["page", doc_id, "what first", "--root", root, "--method", "full"]
    whole = _json(_skillery(*arguments, "--json"))["context"]
    assert _skillery(*arguments, "--markdown").stdout == whole + "\n"


def test_a_batch_answers_each_line_in_order_and_keeps_its_id(
    served_bakery: SkillRoot, tmp_path: Path
) -> None:
    root, doc_id = served_bakery.root.uri, _DOC_ID
    batch, out = tmp_path / "q.jsonl", tmp_path / "r.jsonl"
    queries = [
        {"query_id": f"q{n}", "doc_id": doc_id, "query": f"question {n}", "budget": 40} for n in (3, 1, 2)
    ]
    batch.write_text("".join(json.dumps(q) + "\n" for q in queries), "utf-8")
    for command in ("search", "page"):
        done = _skillery(command, "--batch", str(batch), "--out", str(out), "--root", root)
        assert done.returncode == 0, done.stderr
        assert [line["query_id"] for line in _lines(out)] == ["q3", "q1", "q2"]
    assert all(line["tokens"] <= 40 or line["over_budget"] for line in _lines(out))


def test_a_broken_batch_line_is_named(served_bakery: SkillRoot, tmp_path: Path) -> None:
    batch = tmp_path / "q.jsonl"
    batch.write_text('{"query_id": "a", "query": "x"}\n{"query_id": "b"}\n', "utf-8")
    out = tmp_path / "r.jsonl"
    done = _skillery("search", "--batch", str(batch), "--out", str(out), "--root", served_bakery.root.uri)
    assert done.returncode == 2
    assert "q.jsonl:2 lacks query" in done.stderr
    assert not out.exists()


def test_classify_types_every_fragment_in_order(tmp_path: Path) -> None:
    fragments, out = tmp_path / "f.jsonl", tmp_path / "t.jsonl"
    rows = [
        {"id": "a", "heading_path": ["Steps"], "block": "list_item", "previous": None,
         "text": "1. Run the formatter before you commit.", "next": None},
        {"id": "b", "heading_path": ["Options"], "block": "table", "previous": None,
         "text": "| option | default |\n|---|---|\n| depth | 3 |", "next": None},
    ]  # fmt: skip
    fragments.write_text("".join(json.dumps(r) + "\n" for r in rows), "utf-8")
    done = _skillery("classify", str(fragments), "--out", str(out))
    assert done.returncode == 0, done.stderr
    typed = _lines(out)
    assert [(t["id"], t["node_type"]) for t in typed] == [("a", "step"), ("b", "param")]
    assert all(0 < t["confidence"] <= 1 for t in typed)


def test_evaluate_paging_measures_the_whole_document_as_sufficient(
    tmp_path: Path, minilm_export: Export
) -> None:
    models = tmp_path / "root" / "models"
    models.mkdir(parents=True)
    (models / minilm_export.folder.name).symlink_to(minilm_export.folder)
    documents, queries = tmp_path / "d.jsonl", tmp_path / "q.jsonl"
    body = "# Loom\n\nThread the warp first. " + "Then weave a row. " * 12 + "Cut the ends last."
    documents.write_text(json.dumps({"doc_id": "loom", "content": body}) + "\n", "utf-8")
    query = {
        "query_id": "1", "doc_id": "loom", "query": "what comes last",
        "evidence": [{"any_of": ["Cut the ends"]}],
    }  # fmt: skip
    queries.write_text(json.dumps(query) + "\n", "utf-8")
    found = _json(
        _skillery(
            "evaluate", "paging", "--documents", str(documents), "--queries", str(queries),
            "--method", "full", "--method", "mmr", "--root", str(tmp_path / "root"), "--json",
        )
    )  # fmt: skip
    full, mmr = found["methods"]
    assert (full["method"], full["sufficient"], full["token_reduction"]) == ("full", 1.0, 0.0)
    assert mmr["queries"] == 1
    assert {"sufficient", "coverage", "token_reduction"} <= mmr["ci95"].keys()


@pytest.mark.prefect
def test_run_prints_the_record_as_json_on_stdout_and_everything_else_on_stderr(
    prefect_server: str, root: str, skills: Path
) -> None:
    source = f"dir:{skills}"
    arguments = ["run", "--source", source, "--root", root, "--json"]
    record = _json(_skillery(*arguments, PREFECT_API_URL=prefect_server))
    assert (record["state"], record["published"], record["documents"]) == ("complete", True, 2)
    contract = {
        "run_id",
        "served",
        "sources",
        "dropped",
        "nodes",
        "edges",
        "vectors_new",
        "checks",
        "seconds",
    }
    assert contract <= record.keys()


@pytest.mark.prefect
def test_run_exits_1_with_the_record_when_no_source_can_be_read(
    prefect_server: str, root: str, tmp_path: Path
) -> None:
    source = f"parquet:{tmp_path / 'nowhere.parquet'}"
    done = _skillery("run", "--source", source, "--root", root, "--json", PREFECT_API_URL=prefect_server)
    assert done.returncode == 1
    record = json.loads(done.stdout)
    assert record["state"] == "failed"
    assert "nowhere.parquet" in record["message"]


@pytest.mark.prefect
def test_ctrl_c_ends_cleanly_and_a_later_run_picks_up(prefect_server: str, root: str, skills: Path) -> None:
    command = [*_MAIN, "run", "--source", f"dir:{skills}", "--root", root]
    environment = {**os.environ, "PREFECT_API_URL": prefect_server}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "'refine'" in line:
                break
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
    assert process.returncode == 130, rest
    assert "interrupted" in rest
    record = _json(_skillery("run", "--root", root, "--json", PREFECT_API_URL=prefect_server))
    assert (record["state"], record["documents"], record["published"]) == ("complete", 2, True)
