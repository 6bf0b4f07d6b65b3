"""`skillery evaluate compose`: methods measured on requests whose steps are known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.evaluate.compose.methods import METHODS, NEED_BODIES, NEED_ENDPOINT
from tests.support.command import Ask
from tests.support.llm.llm_asking import llm_set_up
from tests.support.llm.llm_server import LlmServer
from tests.support.llm.scripted import plans
from tests.support.roots.kitchen_servers import LIST, serve_kitchen
from tests.support.roots.kitchen_servers import REQUESTS as KITCHEN
from tests.support.roots.skill_root import Export, SkillRoot

REQUESTS = [
    {
        "query_id": "1", "query": "Bake a loaf of bread, and then brew a pot of tea.", "difficulty": "easy",
        "steps": [
            {"description": "bake bread", "servers": ["local/market/bread"], "categories": []},
            {"description": "brew green tea", "servers": ["local/market/tea"], "categories": []},
        ],
        "edges": [[1, 2]],
    },
    {
        "query_id": "2", "query": "Look after the bees.", "steps":
        [{"description": "keep bees", "servers": ["local/market/bees"]}], "edges": [],
    },
]  # fmt: skip


@pytest.fixture
def bench(tmp_path: Path) -> str:
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in REQUESTS), "utf-8")
    return str(path)


def test_each_method_has_means_intervals_and_differences(
    served_bakery: SkillRoot, bench: str, ask: Ask
) -> None:
    where = ["--corpus", str(served_bakery.root.folder), "--queries", bench]
    methods = [word for name in ("local-r1", "gold-steps", "commas") for word in ("--method", name)]
    found = ask.told("evaluate", "compose", *where, *methods)
    local, gold, commas = found["methods"]
    assert [row["method"] for row in found["methods"]] == ["local-r1", "gold-steps", "commas"]
    assert (gold["da"], gold["srvr@10"], gold["queries"]) == (1, 1, 2)
    assert commas["against"] is None
    assert set(local["against"]) == set(local["ci95"])
    for row in found["methods"]:
        assert all(low <= row[name] <= high for name, (low, high) in row["ci95"].items())


def test_a_person_reads_a_line_a_measure(served_bakery: SkillRoot, bench: str, ask: Ask) -> None:
    done = ask("evaluate", "compose", "--root", str(served_bakery.root.folder), "--queries", bench)
    assert done.code == 0, done.stderr
    assert "│ local-r1 " in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{}", "`query_id` is missing"),
        ('{"query_id": "1", "query": "x", "steps": [{}]}', "servers"),
        ("", "no request"),
    ],
)
def test_a_file_of_another_form_is_one_line(
    served_bakery: SkillRoot, tmp_path: Path, ask: Ask, line: str, said: str
) -> None:
    (tmp_path / "q.jsonl").write_text(line + "\n" if line else "", "utf-8")
    assert said in ask.refused(
        "evaluate", "compose", "--root", str(served_bakery.root.folder), "--queries",
        str(tmp_path / "q.jsonl"),
    )  # fmt: skip


def test_a_method_that_is_not_known_is_named(served_bakery: SkillRoot, bench: str, ask: Ask) -> None:
    where = ["--root", str(served_bakery.root.folder), "--queries", bench]
    assert "'best'" in ask("evaluate", "compose", *where, "--method", "best").stderr


def test_what_is_hidden_is_measured_beside(measure: list[str], ask: Ask) -> None:
    asked = [*measure, "--method", "gold-steps"]
    hidden = ["--without-gold", "--leave-out", "0.5", "--without-category", "drinks"]
    printed = ask(*asked, *hidden)
    found = ask.told(*asked, *hidden)
    assert printed.code == 0, printed.stderr
    assert all(len(line) <= 80 for line in printed.stdout.splitlines())
    assert "without Drinks: 2 rows" in printed.stdout
    assert "paraphrases beside their originals" in printed.stdout
    assert found["without_gold"]["gold-steps"]["steps"] == 3
    assert [(one["method"], one["kind"]) for one in found["transfer"]] == [
        ("gold-steps", "categories"), ("gold-steps", "share"),
    ]  # fmt: skip
    assert [row["method"] for row in found["methods"]] == ["gold-steps", "commas"]


def test_requests_with_categories_of_another_set_need_no_servers(
    kitchen: tuple[str, str], ask: Ask, tmp_path: Path
) -> None:
    mapping, queries, folder = tmp_path / "m.json", tmp_path / "q.jsonl", tmp_path / "report"
    mapping.write_text('{"Baking": "food", "Drinks": "food", "Messages": "talk"}', "utf-8")
    steps = ("food", "talk"), ("food", "food")
    rows = [
        {"query_id": str(n), "query": KITCHEN[n]["query"], "steps": [{"category24": name} for name in names]}
        for n, names in zip((1, 0), steps, strict=True)
    ]
    queries.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    asked = ["evaluate", "compose", "--corpus", kitchen[0], "--queries", str(queries)]
    found = ask.told(*asked, "--categories", str(mapping), "--report", str(folder))["methods"][0]
    assert "catr@1" in found
    assert not {"srvr@1", "stepf1", "chain", "edgef1", "plan"} & set(found)
    assert "It is not known what serves" in (folder / "compose.md").read_text("utf-8")
    for wrong, said in (
        ([], "give --categories"),
        (["--categories", str(mapping), "--without-gold"], "does not say which servers"),
        (["--categories", str(mapping), "--method", "gold-steps"], "no `description`"),
        (["--categories", str(mapping), "--without-category", "sports"], "there are food, talk"),
        (["--categories", str(mapping), "--leave-out", "2"], "--leave-out is 2"),
    ):
        assert said in ask.refused(*asked, *wrong)


def test_a_file_is_served_as_long_as_it_is_measured(
    kitchen: tuple[str, str], ask: Ask, tmp_path: Path
) -> None:
    root, queries = kitchen
    (tmp_path / "servers.md").write_text(LIST, "utf-8")
    asked = ["evaluate", "compose", "--queries", queries, "--method", "gold-steps", "--json", "--corpus"]
    of_root, of_file = ask(*asked, root), ask(*asked, str(tmp_path / "servers.md"), "--root", root)
    assert of_file.code == 0, of_file.stderr
    assert "is indexed for these measures" in of_file.stderr
    one, other = (json.loads(done.stdout)["methods"][0] for done in (of_root, of_file))
    for found in (one, other):
        del found["median_ms"], found["p95_ms"]
    assert one == other
    assert "a list of servers (.md)" in ask.refused(*asked, queries, "--root", root)


def test_bodies_are_read_where_there_are_skills(served_bakery: SkillRoot, bench: str, ask: Ask) -> None:
    where = ["--corpus", str(served_bakery.root.folder), "--queries", bench, "--json"]
    methods = [word for name in ("gold-body", "commas-body", "local-body") for word in ("--method", name)]
    rows = ask.told("evaluate", "compose", *where, *methods)["methods"]
    assert [row["method"] for row in rows] == ["gold-body", "commas-body", "local-body", "commas"]
    assert rows[0]["srvr@10"] == 1
    assert all("catr@1" not in row for row in rows)  # skills of a folder have no category


@pytest.fixture
def llm(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[LlmServer]:
    with llm_set_up(monkeypatch, say=plans, MODEL=request.node.name) as running:
        yield running


def test_methods_of_a_model_are_measured_and_its_questions_counted(
    llm: LlmServer, measure: list[str], ask: Ask
) -> None:
    chosen = [word for name in ("llm-r1", "llm-direct") for word in ("--method", name)]
    found = ask.told(*measure, *chosen)
    sent = llm.requests
    again = ask.told(*measure, *chosen)
    without = ask.told(*measure, "--method", "gold-steps")
    assert [row["method"] for row in found["methods"]] == ["llm-r1", "llm-direct", "commas"]
    assert found["methods"][0]["da"] == 1
    assert (found["llm"]["requests"], found["llm"]["fallbacks"]) == (sent, {})
    assert (again["llm"]["requests"], llm.requests) == (0, sent)
    assert without["llm"] is None


def test_answers_outlive_the_root_in_which_a_file_is_served(
    llm: LlmServer, kitchen: tuple[str, str], ask: Ask, tmp_path: Path
) -> None:
    root, queries = kitchen
    (tmp_path / "servers.md").write_text(LIST, "utf-8")
    asked = ["evaluate", "compose", "--corpus", str(tmp_path / "servers.md"), "--root", root]
    for _ in range(2):
        assert ask(*asked, "--queries", queries, "--method", "llm-r0", "--json").code == 0
    assert llm.requests == len(KITCHEN) + 1  # and one paraphrase


def test_what_the_model_did_not_answer_is_said(llm: LlmServer, measure: list[str], ask: Ask) -> None:
    llm.fault = lambda _: "refused"
    done = ask(*measure, "--method", "llm-r1", "--json")
    llm.fault = lambda _: "404"
    denied = ask(*measure, "--method", "llm-r1", "--method", "react")
    assert json.loads(done.stdout)["llm"]["fallbacks"] == {"compose-steps-1: refused": 6}
    assert "6 x compose-steps-1: refused" in done.stderr
    assert denied.code == 1
    assert "SKILLERY_LLM_MODEL" in denied.stderr


def test_a_report_measures_the_model_s_methods_beside_the_paper_s(
    llm: LlmServer, measure: list[str], ask: Ask, tmp_path: Path
) -> None:
    done = ask(*measure, "--report", str(tmp_path / "r"))
    assert done.code == 0, done.stderr
    found = json.loads((tmp_path / "r" / "compose.json").read_text("utf-8"))
    text = (tmp_path / "r" / "compose.md").read_text("utf-8")
    assert {row["method"] for row in found["methods"]} == {*METHODS, *NEED_ENDPOINT} - NEED_BODIES
    assert "The language model was test_a_report" in text
    assert "| no endpoint" not in text
    assert "| 15 | `paper` |" in text
    assert [row["method"] for row in found["rounds"]][4:] == ["paper-r0", "paper", "paper-r2", "paper-r3"]
    assert found["feedback_llm"]["tests"].keys() == found["feedback"]["tests"].keys()


@pytest.fixture(scope="session")
def kitchen(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> tuple[str, str]:
    """A root that serves servers in sections, and requests for several of them, as paths."""
    folder = tmp_path_factory.mktemp("kitchen")
    root = serve_kitchen(folder, minilm_export).root.folder
    queries = folder / "requests.jsonl"
    queries.write_text("".join(json.dumps(row) + "\n" for row in KITCHEN), "utf-8")
    return str(root), str(queries)


@pytest.fixture
def measure(kitchen: tuple[str, str]) -> list[str]:
    return ["evaluate", "compose", "--corpus", kitchen[0], "--queries", kitchen[1]]
