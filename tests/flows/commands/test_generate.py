"""The commands that grow a bench, and that measure paging: who judges, what people label, what is set."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from tasks.evaluate.generate.plans import DIFFICULTIES, plan_words
from tests.support.command import Ask, lines_of
from tests.support.llm.llm_asking import llm_set_up
from tests.support.llm.llm_server import Asked, LlmServer, sorted_out
from tests.support.llm.scripted import judges_by_length, requests_about
from tests.support.paging.paging_bench import workshop
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.kitchen_servers import serve_kitchen
from tests.support.roots.skill_root import Export, SkillRoot

_GUIDE = "\n".join(f"Turn the mill crank {n} times before step {n}." for n in range(1, 15))
_DOC = {"doc_id": "market/mill", "content": f"---\nname: mill\n---\n# Mill\n\n{_GUIDE}\n"}


def one_request(asked: Asked) -> str:
    """Write five requests where the body is long enough, else one alone."""
    (record,) = asked.fragments
    if len(record["body"]) > 600:
        return json.dumps({"queries": requests_about(record["body"], record["name"])})
    line = max(record["body"].splitlines(), key=len)
    entry = {"breadth": "narrow", "query": f"And {record['name']}?", "evidence": [{"any_of": [line]}]}
    return json.dumps({"queries": [entry]})


@pytest.fixture
def llm(monkeypatch: pytest.MonkeyPatch) -> Iterator[LlmServer]:
    with llm_set_up(monkeypatch, say=one_request, PROMPT_PRICE=10) as running:
        yield running


@pytest.fixture
def mill(tmp_path: Path, root: str) -> list[str]:
    """Write a bench of one guide; return the arguments that measure paging on it."""
    documents, queries = tmp_path / "d.jsonl", tmp_path / "q.jsonl"
    documents.write_text(json.dumps(_DOC) + "\n", "utf-8")
    lines = [
        {"query_id": f"q{n}", "doc_id": "market/mill", **request}
        for n, request in enumerate(requests_about(_GUIDE, "mill")[1:3])
    ]
    queries.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return ["evaluate", "paging", "--documents", str(documents), "--queries", str(queries), "--root", root]


def test_a_bench_grows_from_what_is_served_and_can_be_measured(
    llm: LlmServer, served_bakery: SkillRoot, tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, root = tmp_path / "bench", served_bakery.root.uri
    arguments = ["bench", "paging", "--skills", "3", "--out", str(out), "--root", root]
    found = ask.told(*arguments)
    assert (found["wanted"], found["skills"], found["asked"], found["kept"]) == (3, 3, 3, 0)
    assert found["queries"] == len(lines_of(out / "queries.jsonl")) == sum(found["by_breadth"].values())
    assert found["documents"] == len(lines_of(out / "documents.jsonl")) == 3
    assert found["llm"]["requests"] == llm.requests
    assert found["llm"]["cost"] > 0
    assert found["rejected"] == {"missing": 15 - found["queries"]}
    assert {asked.body["max_tokens"] for asked in llm.asked} == {4096}
    sent = llm.requests
    more = ask(*arguments, "--skills", "100")
    assert more.code == 0, more.stderr
    assert f"asked about {len(SKILLS) - 3} skills, 3 kept from before" in more.stdout
    assert "100 were wanted" in more.stdout
    assert llm.requests > sent
    files = ["--documents", str(out / "documents.jsonl"), "--queries", str(out / "queries.jsonl")]
    measured = ask.told("evaluate", "paging", *files, "--method", "full", "--root", root)
    assert measured["methods"][0]["sufficient"] == 1.0
    whole = sum(json.loads(file.read_text())["rejected"] == {} for file in out.glob("queries/*"))
    monkeypatch.setenv("SKILLERY_SKILLPAGER_REQUEST_EXACTLY", "true")
    assert ask.told(*arguments)["documents"] == whole < len(SKILLS)


def test_by_default_evidence_judges_and_the_report_says_so(mill: list[str], ask: Ask) -> None:
    found = ask.told(*mill, "--method", "full")
    assert found["judge"] == {"spoke": "evidence"}
    assert ask(*mill, "--method", "full").stdout.startswith("paging judged by evidence, 2 queries")


def test_both_judges_speak_side_by_side_and_none_is_asked_twice(
    llm: LlmServer, mill: list[str], tmp_path: Path, ask: Ask
) -> None:
    llm.say = judges_by_length
    labels = tmp_path / "labels.jsonl"
    label = {"query_id": "q0", "method": "full", "sufficient": True}
    labels.write_text(json.dumps(label) + "\n", "utf-8")
    arguments = [*mill, "--method", "full", "--method", "mmr", "--judge", "both"]
    found = ask.told(*arguments, "--labels", str(labels))
    full, _ = found["methods"]
    assert (full["sufficient"], full["llm"]["sufficient"], full["llm"]["patterns"]) == (1.0, 1.0, {"3-0": 2})
    judge = found["judge"]
    assert (judge["spoke"], judge["model"], judge["prompt"]) == ("both", "small-model", "judge-1")
    assert set(judge["agreement"]) == {"evidence_llm", "people_evidence", "people_llm"}
    assert judge["agreement"]["people_llm"]["by_pattern"]["3-0"]["raw"] == 1.0
    assert set(Counter(asked.key for asked in llm.asked).values()) == {3}
    sent = llm.requests
    printed = ask(*arguments).stdout
    assert llm.requests == sent
    assert "small-model by judge-1, 3 votes a context" in printed
    assert "evidence, llm" in printed


def test_where_the_model_judges_alone_its_verdict_is_the_row(
    llm: LlmServer, mill: list[str], ask: Ask
) -> None:
    llm.say = lambda _: '{"missing": "all of it", "sufficient": false}'
    found = ask.told(*mill, "--method", "full", "--judge", "llm")
    [row] = found["methods"]
    assert (row["sufficient"], row["coverage"], found["judge"]["spoke"]) == (0.0, 1.0, "llm")
    assert "agreement" not in found["judge"]


def test_a_label_of_what_is_not_measured_is_named_before_any_work(
    mill: list[str], tmp_path: Path, ask: Ask
) -> None:
    labels = tmp_path / "labels.jsonl"
    labels.write_text(json.dumps({"query_id": "q0", "method": "k-5", "sufficient": True}) + "\n", "utf-8")
    assert "labels.jsonl:1: 'k-5' with budget None is not measured" in ask.refused(
        *mill, "--method", "full", "--labels", str(labels)
    )


@pytest.mark.slow
def test_a_report_has_its_files_and_says_who_judged_what(
    llm: LlmServer, mill: list[str], tmp_path: Path, ask: Ask
) -> None:
    llm.say = judges_by_length
    corpus = tmp_path / "corpus.parquet"
    long = "\n".join(f"## Part {p}\n\n" + "\n".join(_lines(p)) for p in range(20))
    pl.DataFrame({"id": ["a/b/long"], "content": [long]}).write_parquet(corpus)
    out = tmp_path / "report"
    found = ask.told(*mill, "--all", "--report", str(out), "--judge", "llm", "--probes", str(corpus))
    assert [Path(f).name for f in found["report"]] == ["paging.md", "paging.parquet", "paging.png"]
    text = (out / "paging.md").read_text("utf-8")
    assert "Tables 1 to 7: judged by a language model, small-model by judge-1" in text
    assert "probes, no requests of people" in text
    assert {row["judge"] for row in found["methods"] if row["budget"] is None} == {"small-model"}
    assert {row["judge"] for row in found["methods"] if row["budget"] is not None} == {"evidence"}
    assert {row["queries"] for row in found["probes"]} == {3}
    rows = pl.read_parquet(out / "paging.parquet")
    assert rows.columns[-2:] == ["measure", "value"]
    assert rows.filter(pl.col("breadth") == "probe")["query"].n_unique() == 3
    assert (out / "paging.png").stat().st_size > 10_000


def _lines(part: int) -> list[str]:
    return [f"- Wind the clock{part} spring number{part}x{n} before noon." for n in range(9)]


@pytest.fixture
def bakery(served_bakery: SkillRoot) -> str:
    return served_bakery.root.uri


@pytest.fixture
def kitchen(tmp_path: Path, minilm_export: Export, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bakery of servers whose sections are taken for categories of the paper."""
    words = plan_words()
    kinds = {"databases": ("Baking", "Drinks"), "security": ("Shopping", "Messages")}
    words["categories"] = {name: kind for kind, names in kinds.items() for name in names}
    monkeypatch.setattr("flows.commands.generate.plan_words", lambda: words)
    monkeypatch.setattr("tasks.evaluate.generate.plans._FEWEST_ROWS", 4)
    monkeypatch.setattr("tasks.evaluate.generate.plans.DIFFICULTIES", dict.fromkeys(DIFFICULTIES, (2,)))
    return serve_kitchen(tmp_path / "kitchen", minilm_export).root.uri


def say(asked: Asked) -> str:
    (record,) = asked.fragments
    if "services" in record:
        names = [service["name"] for service in record["services"]]
        return json.dumps({"query": f"Use {' and '.join(names)}.", "needs": names})
    return json.dumps({"steps": ["one", "two"]})


def test_a_bench_that_a_model_writes_is_counted_and_can_be_measured(
    bakery: str, tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "b"
    given = ["bench", "compose", "--queries", "8", "--out", str(out), "--root", bakery]
    with llm_set_up(monkeypatch, say=say):
        found = ask.told(*given)
        printed = ask(*given)
    rows = lines_of(out / "requests.jsonl")
    held = json.loads((out / "bench.json").read_text("utf-8"))
    assert held == {key: found[key] for key in found if key not in ("out", "llm")}
    assert found["queries"] == len(rows) == 4  # of two steps, as many as the model lists
    assert found["discarded"] == {"steps": 3}  # no four skills make a request of five
    assert "discarded: steps 3" in printed.stdout
    assert printed.stdout.count("0 requests") == 1
    done = ask.told("evaluate", "compose", "--root", bakery, "--queries", str(out / "requests.jsonl"))
    assert done["queries"] == len(rows)


def test_the_papers_way_asks_a_model_for_paraphrases_alone(
    kitchen: str, tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "b"
    given = ["bench", "compose", "--queries", "6", "--templates", "--out", str(out), "--root", kitchen]
    found = ask.told(*given)
    assert (found["llm"], found["by_tag"]) == (None, {"chain": found["queries"]})
    with llm_set_up(monkeypatch, say=lambda _: '{"query": "In other words."}'):
        ask(*given, "--paraphrases", "2")
    rows = lines_of(out / "requests.jsonl")
    assert [row.get("paraphrase") for row in rows].count("In other words.") == 2
    options = ["--queries", str(out / "requests.jsonl"), "--categories", str(out / "categories.json")]
    done = ask.told("evaluate", "compose", "--root", kitchen, *options, "--method", "local-compose")
    assert done["queries"] == len(rows) == 6


THINGS = ("anvil", "bellows", "chisel", "drill", "easel", "funnel", "gimlet", "hammer")
METHODS = ["--method", "skillpager", "--method", "chunks"]


def wavers(asked: Asked) -> str:
    """Vote yes or no by the excerpt, and let one vote in three of every other case differ."""
    (record,) = asked.fragments
    bits = hashlib.sha256(record["excerpt"].encode()).digest()[0]
    differs = bits & 2 and asked.before == 0
    return json.dumps({"missing": "", "sufficient": bool(bits & 1) != bool(differs)})


@pytest.fixture
def wavering(monkeypatch: pytest.MonkeyPatch) -> Iterator[LlmServer]:
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
    bench: list[str], wavering: LlmServer, tmp_path: Path, ask: Ask
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
    asked = wavering.requests
    judge = ask.told(*bench, *METHODS, "--judge", "both", "--labels", str(form))["judge"]
    people = judge["agreement"]["people_llm"]
    said_yes = sum(cell["drawn"] for cell in sample["cells"] if cell["sufficient"])
    assert (people["cases"], people["raw"]) == (sample["pairs"], said_yes / sample["pairs"])
    assert set(people["by_pattern"]) == {"3-0", "2-1"}
    assert wavering.requests == asked  # the votes are known


def test_a_form_is_read_only_with_the_contexts_that_it_shows(
    bench: list[str], wavering: LlmServer, tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    form, options = tmp_path / "labels.md", [*METHODS, "--budget", "0.3", "--judge", "both"]
    assert ask(*bench, *options, "--sample-labels", str(form)).code == 0
    form.write_text(form.read_text("utf-8").replace("Sufficient: \n", "Sufficient: no\n"), "utf-8")
    asked = wavering.requests
    monkeypatch.setenv("SKILLERY_SKILLPAGER_CHUNK_TOKENS", "64")
    told = ask.refused(*bench, *options, "--labels", str(form))
    assert "the context is another one than the form shows" in told
    assert wavering.requests == asked


def test_a_sample_that_cannot_be_drawn_or_written_is_refused_at_once(
    bench: list[str], wavering: LlmServer, tmp_path: Path, ask: Ask
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
    assert wavering.requests == 0


def test_queries_without_evidence_are_judged_by_a_language_model_alone(
    bench: list[str], wavering: LlmServer, tmp_path: Path, ask: Ask
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
    assert len({asked.fragments[0]["excerpt"] for asked in wavering.asked}) <= len(THINGS)


def test_a_language_model_may_type_the_nodes(
    bench: list[str], wavering: LlmServer, monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    wavering.say = sorted_out
    command = [*bench, "--method", "concept-only", "--classifier", "llm"]
    found = ask.told(*command)
    asked = found["typing"]["llm"]
    assert (asked["asked"] >= 64, asked["fallbacks"], asked["requests"]) == (True, {}, wavering.requests)
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
