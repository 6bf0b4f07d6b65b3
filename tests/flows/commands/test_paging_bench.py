"""The options of `evaluate paging` by which people validate the judge, and SkillPager's settings."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from tests.support.command import Ask, lines_of
from tests.support.llm.llm_asking import llm_set_up
from tests.support.llm.llm_server import Asked, LlmServer, sorted_out
from tests.support.paging.paging_bench import workshop

THINGS = ("anvil", "bellows", "chisel", "drill", "easel", "funnel", "gimlet", "hammer")
METHODS = ["--method", "skillpager", "--method", "chunks"]


def wavers(asked: Asked) -> str:
    """Vote yes or no by the excerpt, and let one vote in three of every other case differ."""
    (record,) = asked.fragments
    bits = hashlib.sha256(record["excerpt"].encode()).digest()[0]
    differs = bits & 2 and asked.before == 0
    return json.dumps({"missing": "", "sufficient": bool(bits & 1) != bool(differs)})


@pytest.fixture
def llm(monkeypatch: pytest.MonkeyPatch) -> Iterator[LlmServer]:
    with llm_set_up(monkeypatch, say=wavers) as running:
        yield running


@pytest.fixture
def bench(tmp_path: Path, root: str) -> list[str]:
    """Write a workshop's guide with requests of it; return the arguments that measure paging on it."""
    documents, queries = tmp_path / "d.jsonl", tmp_path / "q.jsonl"
    documents.write_text(json.dumps({"doc_id": "w", "content": workshop("w", 8)}) + "\n", "utf-8")
    rows = [
        {
            "query_id": thing, "doc_id": "w", "query": f"how often to polish the {thing} handle?",
            "evidence": [{"any_of": [f"every 2 weeks with w{thing}0 wax"]}],
        }
        for thing in THINGS
    ]  # fmt: skip
    queries.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    files = ["--documents", str(documents), "--queries", str(queries)]
    return ["evaluate", "paging", *files, "--root", root]


def test_a_sample_is_drawn_filled_in_and_read_back(
    bench: list[str], llm: LlmServer, tmp_path: Path, ask: Ask
) -> None:
    form = tmp_path / "forms" / "labels.md"
    sample = ask.told(*bench, *METHODS, "--judge", "both", "--sample-labels", str(form))["judge"]["sample"]
    assert len(sample["cells"]) == 2 * 2 * 2
    assert sample["pairs"] == sum(cell["drawn"] for cell in sample["cells"]) > 0
    assert {cell["votes"] for cell in sample["cells"] if cell["drawn"]} == {"3-0", "2-1"}
    text = form.read_text("utf-8")
    assert len(re.findall("^## Pair", text, re.MULTILINE)) == sample["pairs"]
    assert "--documents ... --queries ... --method skillpager --method chunks" in text
    form.write_text(re.sub("^Sufficient: $", "Sufficient: yes", text, flags=re.MULTILINE), "utf-8")
    asked = llm.requests
    judge = ask.told(*bench, *METHODS, "--judge", "both", "--labels", str(form))["judge"]
    people = judge["agreement"]["people_llm"]
    said_yes = sum(cell["drawn"] for cell in sample["cells"] if cell["sufficient"])
    assert (people["cases"], people["raw"]) == (sample["pairs"], said_yes / sample["pairs"])
    assert set(people["by_pattern"]) == {"3-0", "2-1"}
    assert llm.requests == asked  # the votes are known


def test_a_form_is_read_only_with_the_contexts_that_it_shows(
    bench: list[str], llm: LlmServer, tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    form, options = tmp_path / "labels.md", [*METHODS, "--budget", "0.3", "--judge", "both"]
    assert ask(*bench, *options, "--sample-labels", str(form)).code == 0
    form.write_text(form.read_text("utf-8").replace("Sufficient: \n", "Sufficient: no\n"), "utf-8")
    asked = llm.requests
    monkeypatch.setenv("SKILLERY_SKILLPAGER_CHUNK_TOKENS", "64")
    told = ask.refused(*bench, *options, "--labels", str(form))
    assert "the context is another one than the form shows" in told
    assert llm.requests == asked


def test_a_sample_that_cannot_be_drawn_or_written_is_refused_at_once(
    bench: list[str], llm: LlmServer, tmp_path: Path, ask: Ask
) -> None:
    filled = tmp_path / "labels.md"
    filled.write_text("filled in\n", "utf-8")
    for options, said in (
        (["--sample-labels", str(tmp_path / "new.md")], "add --judge llm or --judge both"),
        (["--judge", "llm", "--sample-labels", str(filled)], "may be filled in"),
        (["--judge", "llm", "--sample-labels", str(tmp_path / "new.txt")], "end its name with .md"),
    ):
        assert said in ask.refused(*bench, *options)
    assert filled.read_text("utf-8") == "filled in\n"
    assert llm.requests == 0


def test_queries_without_evidence_are_judged_by_a_language_model_alone(
    bench: list[str], llm: LlmServer, tmp_path: Path, ask: Ask
) -> None:
    queries = Path(bench[bench.index("--queries") + 1])
    rows = [{**line, "evidence": []} for line in lines_of(queries)]
    queries.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    assert "--judge llm needs none" in ask.refused(*bench, *METHODS)
    options = ["--method", "skillpager", "--judge", "llm", "--report", str(tmp_path / "out")]
    (row,) = ask.told(*bench, *options)["methods"]
    assert (row["method"], row["coverage"], row["llm"]["queries"]) == ("skillpager", None, len(THINGS))
    run = pl.read_parquet(tmp_path / "out/paging.parquet")
    said = run.filter(pl.col("measure") == "verdict")
    assert set(said["method"]) == {"skillpager"}
    assert dict(zip(said["query"], said["value"], strict=True)).keys() == set(THINGS)
    assert said["value"].mean() == row["sufficient"]
    assert not run.filter(pl.col("measure").is_in(["sufficient", "coverage"])).height
    told = (tmp_path / "out/paging.md").read_text("utf-8")
    assert "k by size of the document" in told
    assert len({asked.fragments[0]["excerpt"] for asked in llm.asked}) <= len(THINGS)


def test_a_language_model_may_type_the_nodes(
    bench: list[str], llm: LlmServer, monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    llm.say = sorted_out
    command = [*bench, "--method", "concept-only", "--classifier", "llm"]
    found = ask.told(*command)
    asked = found["typing"]["llm"]
    assert (asked["asked"] >= 64, asked["fallbacks"], asked["requests"]) == (True, {}, llm.requests)
    assert found["typing"]["classifier"] in found["notes"][-1]
    [row] = ask.told(*command[:-2])["methods"]
    assert row["units"] != found["methods"][0]["units"]  # what is a concept is the model's word
    assert "local, llm, hybrid" in ask.refused(*bench, "--classifier", "oracle")


def test_settings_of_skillpager_are_named_and_reported(
    bench: list[str], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLERY_SKILLPAGER_CHUNK_TOKENS", "64")
    monkeypatch.setenv("SKILLERY_SKILLPAGER_CHUNK_OVERLAP", "16")
    found = ask.told(*bench, "--method", "chunks", "--budget", "1")
    [row] = found["methods"]
    assert (found["skillpager"]["chunk_tokens"], found["skillpager"]["chunk_overlap"]) == (64, 16)
    assert row["units"] > 12
    assert found["fitted"] == 0
    assert found["notes"] == ["Units are nodes; of the method that picks chunks, chunks."]
    monkeypatch.setenv("SKILLERY_SKILLPAGER_CHUNK_OVERLAP", "32")
    assert "less than half of chunk_tokens" in ask.refused(*bench, "--method", "chunks")
