from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from storage.blobs import BlobStore
from storage.jsonl import write_lines
from storage.root import Root
from storage.schemas import DOCUMENTS, SCHEMA_VERSION, RawDocument, to_frame
from storage.state import documents_table
from tasks.refine.document import refine_document
from tasks.retrieve.train.pairs.make import PAIRS
from tests.support.command import Ask
from tests.support.llm.llm_asking import settings_of
from tests.support.llm.llm_server import Asked, LlmServer
from tests.support.models.training_material import tools
from tests.support.roots.hand_written import BREAD


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "tools.jsonl"
    write_lines(path, tools())
    return path


def test_pairs_are_written_with_their_counts_and_what_a_bench_holds_stays_out(
    ask: Ask, corpus: Path, tmp_path: Path
) -> None:
    bench = tmp_path / "bench"
    bench.mkdir()
    (bench / "qrels.jsonl").write_text('{"query_id": "q", "doc_id": "guild/scythe-0/care", "relevance": 1}\n')
    out = tmp_path / "pairs"
    command = ["train", "pairs", "--corpus", str(corpus), "--bench", str(bench), "--out", str(out)]

    code, printed, told = ask(*command, "--json")

    assert code == 0, told
    found = json.loads(printed)
    assert json.loads((out / "pairs.json").read_text("utf-8")) == found
    pairs = pl.read_parquet(out / "pairs.parquet")
    assert pairs.schema == PAIRS
    assert pairs.height == found["pairs"] > 300
    assert "Clean a chisel1 with an amber1 whetstone" in set(pairs["query"])
    assert dict(pairs.select("doc_id", "repo").iter_rows())["guild/chisel-1/care"] == "guild/chisel-1"
    assert "guild/scythe-0/care" not in set(pairs["doc_id"])
    assert found["benches"]["bench"]["gold"] == 1
    written = (out / "pairs.parquet").read_bytes()

    code, shown, _ = ask(*command)

    assert code == 0
    assert (out / "pairs.parquet").read_bytes() == written
    assert "kept out because of bench: gold 1" in shown
    assert "body_list" in shown


def test_a_copy_of_a_skill_that_a_bench_alone_has_stays_out_be_it_given_whole_or_as_a_body(
    ask: Ask, corpus: Path, tmp_path: Path
) -> None:
    lines = [json.loads(line) for line in corpus.read_text("utf-8").splitlines()[:2]]
    body = lines[1]["content"].partition("\n---\n")[2]
    held = {"whole": {"content": lines[0]["content"]}, "body": {"body": body}}
    for name, text in held.items():
        (tmp_path / "benches" / name).mkdir(parents=True)
        document = json.dumps({"doc_id": f"gone/{name}", **text})
        (tmp_path / "benches" / name / "documents.jsonl").write_text(document, "utf-8")
        qrel = json.dumps({"query_id": "q", "doc_id": f"gone/{name}"})
        (tmp_path / "benches" / name / "qrels.jsonl").write_text(qrel, "utf-8")
    out = tmp_path / "pairs"

    code, printed, told = ask(
        "train", "pairs", "--corpus", str(corpus), "--bench", str(tmp_path / "benches"), "--out", str(out),
        "--json",
    )  # fmt: skip

    assert code == 0, told
    assert {name: found["copies"] for name, found in json.loads(printed)["benches"].items()} == {
        "whole": 1, "body": 1,
    }  # fmt: skip
    left = set(pl.read_parquet(out / "pairs.parquet")["doc_id"])
    assert not left & {lines[0]["doc_id"], lines[1]["doc_id"]}


def test_repositories_and_folders_are_those_of_the_first_corpus_else_of_the_ids(
    ask: Ask, corpus: Path, tmp_path: Path
) -> None:
    lines = [json.loads(line) for line in corpus.read_text("utf-8").splitlines()]
    held = pl.DataFrame(lines).with_columns(
        doc_id=pl.col("doc_id").str.replace_all("/", "--"),
        owner=pl.Series([None if n % 2 else "guild" for n in range(len(lines))]),
        repo=pl.Series([f"tools-{n}" if n % 3 else None for n in range(len(lines))]),
        path=pl.Series(["x/amber1-whetstone/SKILL.md" if n == 1 else None for n in range(len(lines))]),
    )
    first, second, out = (tmp_path / name for name in ("first.parquet", "second.parquet", "pairs"))
    held.write_parquet(first)
    held.with_columns(repo=pl.lit("other")).write_parquet(second)

    command = ["train", "pairs", "--corpus", str(first), "--corpus", str(second), "--out", str(out)]
    code, _, told = ask(*command, "--seed", "1")
    pairs = pl.read_parquet(out / "pairs.parquet")
    ask(*command)

    assert code == 0, told
    repos = dict(pairs.select("doc_id", "repo").iter_rows())
    assert repos["guild--sickle-3--care"] == "guild--sickle-3"
    assert repos["guild--gouge-4--care"] == "guild/tools-4"
    assert repos["guild--adze-5--care"] == "tools-5"
    # The folder's name stands in the one request of its skill.
    assert "guild--chisel-1--care" not in repos
    assert not pl.read_parquet(out / "pairs.parquet").equals(pairs)


def test_evals_of_a_bundle_that_a_root_keeps_are_requests(ask: Ask, corpus: Path, tmp_path: Path) -> None:
    root, night = Root(tmp_path / "root"), datetime(2026, 3, 1, tzinfo=UTC)
    evals = json.dumps(
        {"evals": [{"prompt": "My sourdough loaf collapsed while cooling, what now?"}]}
    ).encode()
    (digest,) = BlobStore(root).put([evals])
    raw = RawDocument("market/shop/bread", "by-hand", BREAD.encode(), len(BREAD), "")
    made = refine_document(raw, fetched_at=night, first_seen_at=night)
    rows = to_frame([made], DOCUMENTS, run_id="night", schema_version=SCHEMA_VERSION)
    blob = {"path": "evals/evals.json", "size": len(evals), "sha256": digest}
    rows = rows.with_columns(pl.Series("blobs", [[blob]], DOCUMENTS["blobs"]))
    documents_table(root).replace(["market/shop/bread"], rows)
    out = tmp_path / "pairs"

    code, _, told = ask(
        "train", "pairs", "--corpus", str(tmp_path / "root"), "--corpus", str(corpus), "--out", str(out)
    )

    assert code == 0, told
    asked = pl.read_parquet(out / "pairs.parquet").filter(pl.col("origin") == "evals")
    assert set(asked["query"]) == {"My sourdough loaf collapsed while cooling, what now?"}
    assert set(asked["doc_id"]) == {"market/shop/bread"}


def writes_a_task(asked: Asked) -> str:
    """Write of the village that the description names, and name the skill where its number is even."""
    (record,) = asked.fragments
    village = record["description"].rstrip(".").rpartition(" ")[2]
    name = f" with {record['name']}" if int(village) % 2 == 0 and not asked.corrected else ""
    return json.dumps(
        {"task": f"We bought rusty iron in village {village} and must sell it sharp by May{name}."}
    )


def test_a_language_model_writes_tasks_about_skills_of_no_bench_and_is_asked_once(
    ask: Ask, corpus: Path, tmp_path: Path, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, out = tmp_path / "bench", tmp_path / "pairs"
    bench.mkdir()
    (bench / "qrels.jsonl").write_text('{"query_id": "q", "doc_id": "guild/scythe-0/care", "relevance": 1}\n')
    command = ["train", "pairs", "--corpus", str(corpus), "--bench", str(bench), "--out", str(out)]
    command += ["--root", root]
    with LlmServer(say=writes_a_task) as server:
        for name, value in settings_of(server).items():
            monkeypatch.setenv(name, value)

        code, printed, told = ask(*command, "--llm", "400", "--json")

        assert code == 0, told
        found = json.loads(printed)
        assert (found["written"]["tasks"], found["written"]["asked"]) == (319, 319)
        assert server.requests > 319  # a task that names its skill is asked for again
        assert all("category" in asked.fragments[0] for asked in server.asked)
        pairs = pl.read_parquet(out / "pairs.parquet").filter(origin="written")
        assert "We bought rusty iron in village 7 and must sell it sharp by May." in set(pairs["query"])
        assert not any("care" in query for query in pairs["query"])
        assert "guild/scythe-0/care" not in set(pairs["doc_id"])

        code, shown, _ = ask(*command, "--llm", "400")
        assert code == 0
        assert "tasks written by a language model: 319" in shown
        assert "asked about 0 skills, 319 kept from before" in shown

    # What was written stays part of the pairs.
    code, printed, _ = ask(*command, "--json")
    assert (code, json.loads(printed)["written"]) == (0, None)
    assert pl.read_parquet(out / "pairs.parquet").filter(origin="written").equals(pairs)


def test_without_a_language_model_none_is_asked(ask: Ask, corpus: Path, tmp_path: Path, root: str) -> None:
    command = ["train", "pairs", "--corpus", str(corpus), "--out", str(tmp_path / "out"), "--root", root]

    code, _, told = ask(*command, "--llm", "3")

    assert (code, "SKILLERY_LLM_BASE_URL" in told) == (2, True), told


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--corpus", "nowhere.jsonl"], "nowhere.jsonl: cannot be read"), (["--bench", "nowhere"], "no bench")],
)
def test_what_cannot_be_read_is_said_and_nothing_is_left(
    options: list[str], said: str, ask: Ask, corpus: Path, tmp_path: Path
) -> None:
    code, _, told = ask("train", "pairs", "--corpus", str(corpus), "--out", str(tmp_path / "out"), *options)

    assert (code, said in told) == (2, True), told
    assert not (tmp_path / "out").exists()
