"""The sample marketplace, read as a git repository."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

from storage.root import Root
from storage.schemas import RawDocument
from tasks.crawl.git.source import SampleSource
from tests.support.paths import PROJECT

MARKETPLACE = PROJECT / "tasks" / "crawl" / "marketplace"
QUERIES = PROJECT / "tasks" / "evaluate" / "data" / "marketplace_queries.jsonl"
PREFIX = "local/marketplace/"

LARGE = ("devops/postgres-operations", "kitchen/sourdough-bread")
FOREIGN = {
    "garden/huerto-en-balcon": "es",
    "admin/kuendigung-schreiben": "de",
    "writing/business-mail-ja": "ja",
}
EXACT_COPIES = (
    ("kitchen/vegetable-stock", "community/vegetable-stock"),
    ("travel/weekend-packing", "community/weekend-bag"),
)
NEAR_COPIES = ("garden/composting", "community/compost-heap")
REFUSED_BY_YAML = ("devops/git-rescue", "data/chart-choice")
WITHOUT_TEXT = ("community/coming-soon", "community/empty")


def skill_files() -> dict[str, Path]:
    """Return every skill file by its folder, relative to the marketplace."""
    found = (p for p in MARKETPLACE.rglob("*") if p.name.lower() == "skill.md")
    return {p.parent.relative_to(MARKETPLACE).as_posix(): p for p in sorted(found)}


SKILLS = skill_files()


def content_of(folder: str) -> str:
    return SKILLS[folder].read_bytes().decode("utf-8-sig")


def split(folder: str) -> tuple[str, str]:
    """Return front matter and body; the front matter is empty where there is none."""
    match = re.match(r"---\r?\n(.*?)\r?\n---\r?\n(.*)", content_of(folder), flags=re.DOTALL)
    return (match[1], match[2]) if match else ("", content_of(folder))


def front_matter(folder: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(split(folder)[0])
    return loaded


def nodes_in(folder: str) -> int:
    """Count sentences outside lists and headings, list items, code blocks, tables and HTML blocks."""
    count = lists = 0
    skip = False
    for token in MarkdownIt("commonmark").enable("table").parse(split(folder)[1]):
        lists += token.nesting if token.type in ("bullet_list_open", "bullet_list_close") else 0
        lists += token.nesting if token.type in ("ordered_list_open", "ordered_list_close") else 0
        if token.type.startswith(("heading_", "table_")):
            skip = token.nesting == 1
        count += token.type in ("fence", "html_block", "table_open", "list_item_open")
        if token.type == "inline" and not skip and lists == 0:
            count += max(1, len(re.findall(r"[.!?](?=\s|$)|。", token.content)))
    return count


def shingles(text: str, size: int = 5) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}


def requests() -> list[dict[str, Any]]:
    return [json.loads(line) for line in QUERIES.read_text(encoding="utf-8").splitlines()]


REQUESTS = requests()
EACH_REQUEST = pytest.mark.parametrize("request_", REQUESTS, ids=[r["query_id"] for r in REQUESTS])


def test_it_holds_about_thirty_skills_of_a_dozen_domains() -> None:
    assert 28 <= len(SKILLS) <= 32
    assert len({folder.split("/")[0] for folder in SKILLS}) >= 12


def test_it_says_at_the_top_that_it_is_a_sample_and_under_which_licence() -> None:
    assert "sample" in (MARKETPLACE / "README.md").read_text(encoding="utf-8")
    assert "MIT License" in (MARKETPLACE / "LICENSE").read_text(encoding="utf-8")


def test_it_stays_small() -> None:
    sizes = [p.stat().st_size for p in MARKETPLACE.rglob("*") if p.is_file()]
    assert max(sizes) < 60_000
    assert sum(sizes) < 400_000


def test_a_clone_keeps_its_line_ends_as_written() -> None:
    assert "tasks/crawl/marketplace/** -text" in (PROJECT / ".gitattributes").read_text().splitlines()


@pytest.mark.parametrize("folder", LARGE)
def test_two_skills_have_well_over_a_hundred_nodes(folder: str) -> None:
    assert nodes_in(folder) > 120


def test_most_skills_are_of_middling_size_and_some_are_tiny() -> None:
    sizes = [nodes_in(folder) for folder in SKILLS]
    assert sum(15 <= size <= 60 for size in sizes) > len(SKILLS) / 2
    assert sum(5 <= size <= 10 for size in sizes) >= 2


def test_one_exact_copy_is_the_same_file_in_another_folder() -> None:
    original, copy = EXACT_COPIES[0]
    assert SKILLS[original].read_bytes() == SKILLS[copy].read_bytes()


def test_another_exact_copy_has_the_same_body_under_another_name_and_description() -> None:
    original, copy = EXACT_COPIES[1]
    assert split(original)[1] == split(copy)[1]
    assert front_matter(original)["name"] != front_matter(copy)["name"]
    assert front_matter(original)["description"] != front_matter(copy)["description"]


def test_no_other_two_bodies_are_the_same() -> None:
    bodies = Counter(split(folder)[1] for folder in SKILLS)
    assert sorted(bodies.values(), reverse=True)[:3] == [2, 2, 1]


def test_a_near_copy_differs_in_a_few_sentences_only() -> None:
    original, copy = (shingles(split(folder)[1]) for folder in NEAR_COPIES)
    assert 0.5 < len(original & copy) / len(original | copy) < 0.95


@pytest.mark.parametrize("folder", REFUSED_BY_YAML)
def test_a_strict_yaml_parser_refuses_two_front_matters(folder: str) -> None:
    assert "description:" in split(folder)[0]
    with pytest.raises(yaml.YAMLError):
        front_matter(folder)


def test_one_refused_description_has_a_bare_colon_and_the_other_a_bar_with_text() -> None:
    colon, bar = (split(folder)[0] for folder in REFUSED_BY_YAML)
    assert re.search(r"^description: \w[^\"'\n]*: ", colon, flags=re.MULTILINE)
    assert re.search(r"^description: \| \w", bar, flags=re.MULTILINE)


def test_all_other_front_matters_name_and_describe_their_skill() -> None:
    odd = {*REFUSED_BY_YAML, "music/practice-planner", "admin/records-request", "community/empty"}
    for folder in set(SKILLS) - odd:
        assert front_matter(folder)["name"] == folder.split("/")[-1]
        assert len(front_matter(folder)["description"]) > 30


def test_one_skill_has_no_description_and_one_no_front_matter() -> None:
    assert list(front_matter("music/practice-planner")) == ["name"]
    assert content_of("admin/records-request").startswith("# ")


def test_only_one_skill_ends_its_lines_with_crlf_and_does_so_throughout() -> None:
    assert [folder for folder, p in SKILLS.items() if b"\r" in p.read_bytes()] == ["writing/plain-language"]
    raw = SKILLS["writing/plain-language"].read_bytes()
    assert raw.count(b"\r\n") == raw.count(b"\n") == raw.count(b"\r")


def test_only_one_skill_begins_with_a_byte_order_mark() -> None:
    marked = [folder for folder, p in SKILLS.items() if p.read_bytes().startswith(b"\xef\xbb\xbf")]
    assert marked == ["finance/household-budget"]


def test_only_one_skill_leaves_its_last_code_fence_open() -> None:
    fences = {
        folder: len(re.findall(r"^\s*```", content_of(folder), flags=re.MULTILINE)) for folder in SKILLS
    }
    assert [folder for folder, count in fences.items() if count % 2] == ["devops/systemd-timers"]
    assert "\n## " not in content_of("devops/systemd-timers").rpartition("```")[2]


@pytest.mark.parametrize(("folder", "language"), FOREIGN.items())
def test_three_skills_are_in_other_languages(folder: str, language: str) -> None:
    marks = {
        "es": r"\b(?:el|la|las|los|una?|que)\b",
        "de": r"\b(?:der|die|das|und|mit|ein)\b",
        "ja": r"[\u3040-\u30ff]",
    }
    assert front_matter(folder)["language"] == language
    assert len(re.findall(marks[language], split(folder)[1])) > 30


def test_one_skill_lies_below_another() -> None:
    nested = [(a, b) for a in SKILLS for b in SKILLS if b.startswith(f"{a}/")]
    assert nested == [("devops/incident-response", "devops/incident-response/postmortem")]


def test_one_skill_file_is_written_in_lower_case() -> None:
    assert [f for f, p in SKILLS.items() if p.name != "SKILL.md"] == ["hardware/3d-print-faults"]


@pytest.mark.parametrize("kind", ["scripts", "references", "assets"])
def test_files_lie_beside_some_skills_and_their_texts_point_to_them(kind: str) -> None:
    beside = [p for p in MARKETPLACE.glob(f"**/{kind}/*") if p.is_file()]
    assert len(beside) >= 3
    for path in beside:
        skill = path.parent.parent.relative_to(MARKETPLACE).as_posix()
        assert f"{kind}/{path.name}" in content_of(skill)


def test_its_python_files_are_valid_and_need_no_package() -> None:
    scripts = list(MARKETPLACE.rglob("*.py"))
    assert len(scripts) >= 3
    for path in scripts:
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_folders_have_licences_of_their_own_and_they_differ() -> None:
    licences = {p.parent.name: p.read_text(encoding="utf-8") for p in MARKETPLACE.glob("*/*/LICENSE*")}
    assert licences["sourdough-bread"].startswith("MIT License")
    assert "CC0-1.0" in licences["choosing-a-test"]
    assert "CC-BY-NC-4.0" in licences["practice-planner"]


def test_one_text_gives_its_reader_orders_openly_and_in_a_hidden_comment() -> None:
    body = split("writing/haiku-helper")[1]
    hidden = "".join(re.findall(r"<!--.*?-->", body, flags=re.DOTALL))
    shown = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)
    assert "ignore previous instructions" in hidden
    assert "Ignore all previous instructions" in shown


def test_two_skills_hold_no_usable_text() -> None:
    assert SKILLS["community/empty"].read_bytes() == b""
    lines = split("community/coming-soon")[1].split("\n")
    assert lines
    assert all(line.startswith("#") for line in lines if line)
    assert [folder for folder in SKILLS if nodes_in(folder) == 0] == sorted(WITHOUT_TEXT)


def test_it_shows_tables_nested_lists_links_and_code_of_several_languages() -> None:
    everything = "\n".join(content_of(folder) for folder in SKILLS)
    languages = set(re.findall(r"^```(\w+)", everything, flags=re.MULTILINE))
    assert {"bash", "sql", "python", "ini", "text"} <= languages
    assert re.search(r"^\|[-|]+\|$", everything, flags=re.MULTILINE)
    assert re.search(r"^\d\. .*\n {3}- ", everything, flags=re.MULTILINE)
    assert re.search(r"\]\(references/[\w.-]+\)", everything)


def test_there_are_thirty_requests_numbered_in_order() -> None:
    assert [r["query_id"] for r in REQUESTS] == [f"market#{n}" for n in range(1, 31)]


def test_ten_requests_are_narrow_twelve_medium_and_eight_broad() -> None:
    assert Counter(r["breadth"] for r in REQUESTS) == {"narrow": 10, "medium": 12, "broad": 8}


@EACH_REQUEST
def test_a_request_needs_as_many_facts_as_its_breadth_says(request_: dict[str, Any]) -> None:
    allowed = {"narrow": (1,), "medium": (2, 3), "broad": (4, 5, 6)}
    assert len(request_["evidence"]) in allowed[request_["breadth"]]


@EACH_REQUEST
def test_evidence_stands_word_for_word_and_once_in_the_body_asked_about(request_: dict[str, Any]) -> None:
    body = split(request_["doc_id"].removeprefix(PREFIX))[1]
    for item in request_["evidence"]:
        assert list(item) == ["any_of"]
        for span in item["any_of"]:
            assert body.count(span) == 1
            assert "\n" not in span


@EACH_REQUEST
def test_a_request_neither_names_its_skill_nor_borrows_its_wording(request_: dict[str, Any]) -> None:
    folder = request_["doc_id"].removeprefix(PREFIX)
    assert folder.split("/")[-1].replace("-", " ") not in request_["query"].lower()
    assert not shingles(request_["query"]) & shingles(content_of(folder))


def test_requests_spread_over_the_skills_large_and_foreign_ones_included() -> None:
    asked = {r["doc_id"].removeprefix(PREFIX) for r in REQUESTS}
    assert asked <= set(SKILLS)
    assert len(asked) >= 18
    assert {*LARGE, *FOREIGN} <= asked


def test_no_request_asks_about_a_text_that_has_a_copy() -> None:
    asked = {r["doc_id"].removeprefix(PREFIX) for r in REQUESTS}
    assert not asked & {folder for pair in (*EXACT_COPIES, NEAR_COPIES) for folder in pair}


def test_the_sample_is_a_repository_below_the_root_the_same_below_any_root(tmp_path: Path) -> None:
    one, other = SampleSource(Root(tmp_path / "a")), SampleSource(Root(tmp_path / "b"))
    documents = [row for row in one.read() if isinstance(row, RawDocument)]
    assert 24 <= len(documents) <= 36
    assert {d.doc_id.partition("/marketplace")[0] for d in documents} == {"local"}
    assert documents == [row for row in other.read() if isinstance(row, RawDocument)]
    assert one.version() == other.version() == documents[0].commit


def test_no_row_of_the_sample_names_the_root_it_lies_in(tmp_path: Path) -> None:
    rows = list(SampleSource(Root(tmp_path)).read())
    assert {row.source for row in rows} == {"sample"}
    assert str(tmp_path) not in repr([r for r in rows if isinstance(r, RawDocument)])
