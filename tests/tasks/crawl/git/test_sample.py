"""The sample marketplace, read as a git repository: what others rely on in its texts and requests."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from storage.root import Root
from storage.schemas import RawDocument
from tasks.crawl.git.source import FOLDER, SampleSource
from tests.support.paths import PROJECT

QUERIES = PROJECT / "tasks" / "evaluate" / "data" / "marketplace_queries.jsonl"
FOREIGN = {
    "garden/huerto-en-balcon": r"\b(?:el|la|las|los|una?|que)\b",
    "admin/kuendigung-schreiben": r"\b(?:der|die|das|und|mit|ein)\b",
    "writing/business-mail-ja": r"[\u3040-\u30ff]",
}
COPIES = {
    "kitchen/vegetable-stock": "community/vegetable-stock",
    "travel/weekend-packing": "community/weekend-bag",
}
NEAR_COPY = ("garden/composting", "community/compost-heap")
REFUSED_BY_YAML = {"devops/git-rescue", "data/chart-choice"}
SKILLS = {
    path.parent.relative_to(FOLDER).as_posix(): path.read_bytes()
    for path in sorted(FOLDER.rglob("*"))
    if path.name.lower() == "skill.md"
}
REQUESTS = [json.loads(line) for line in QUERIES.read_text("utf-8").splitlines()]


def split(folder: str) -> tuple[str, str]:
    """Return front matter and body; the front matter is empty where there is none."""
    text = SKILLS[folder].decode("utf-8-sig")
    match = re.match(r"---\r?\n(.*?)\r?\n---\r?\n(.*)", text, flags=re.DOTALL)
    return (match[1], match[2]) if match else ("", text)


def shingles(text: str, size: int = 5) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}


def is_refused(folder: str) -> bool:
    try:
        return not isinstance(yaml.safe_load(split(folder)[0] or "{}"), dict)
    except yaml.YAMLError:
        return True


def test_it_is_small_a_sample_of_a_dozen_domains_and_free() -> None:
    sizes = [path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()]
    assert len(SKILLS) == 32
    assert len({folder.split("/")[0] for folder in SKILLS}) >= 12
    assert max(sizes) < 60_000
    assert sum(sizes) < 400_000
    assert "sample" in (FOLDER / "README.md").read_text("utf-8")
    assert "MIT License" in (FOLDER / "LICENSE").read_text("utf-8")
    assert "tasks/crawl/marketplace/** -text" in (PROJECT / ".gitattributes").read_text().splitlines()


@pytest.mark.parametrize(
    ("folders", "has"),
    [
        pytest.param(REFUSED_BY_YAML, is_refused, id="refused by a strict YAML parser"),
        pytest.param({"admin/records-request", "community/empty"}, lambda f: not split(f)[0], id="no header"),
        pytest.param({"writing/plain-language"}, lambda f: b"\r\n" in SKILLS[f], id="CRLF"),
        pytest.param({"finance/household-budget"}, lambda f: SKILLS[f][:3] == b"\xef\xbb\xbf", id="a BOM"),
        pytest.param(
            {"devops/systemd-timers"},
            lambda f: len(re.findall(rb"^\s*```", SKILLS[f], re.M)) % 2 == 1,
            id="an open code fence",
        ),
        pytest.param({"hardware/3d-print-faults"}, lambda f: (FOLDER / f / "skill.md").exists(), id="lower"),
        pytest.param({"community/empty"}, lambda f: not SKILLS[f], id="empty"),
        pytest.param(
            {"writing/haiku-helper"},
            lambda f: "ignore previous instructions" in "".join(re.findall(r"<!--.*?-->", split(f)[1], re.S)),
            id="orders in a hidden comment",
        ),
        pytest.param(
            {"devops/incident-response/postmortem"},
            lambda f: any(f.startswith(f"{other}/") for other in SKILLS),
            id="below another skill",
        ),
    ],
)  # fmt: skip
def test_these_skills_alone_are_odd_in_this_way(folders: set[str], has: Callable[[str], bool]) -> None:
    assert {folder for folder in SKILLS if has(folder)} == folders


@pytest.mark.parametrize("request_", REQUESTS, ids=[r["query_id"] for r in REQUESTS])
def test_the_evidence_of_a_request_stands_once_in_its_body_in_other_words(request_: dict[str, Any]) -> None:
    folder = request_["doc_id"].removeprefix("local/marketplace/")
    allowed = {"narrow": (1,), "medium": (2, 3), "broad": (4, 5, 6)}
    assert len(request_["evidence"]) in allowed[request_["breadth"]]
    for span in (span for item in request_["evidence"] for span in item["any_of"]):
        assert split(folder)[1].count(span) == 1
    assert folder.split("/")[-1].replace("-", " ") not in request_["query"].lower()
    assert not shingles(request_["query"]) & shingles("".join(split(folder)))


def test_thirty_requests_of_three_breadths_ask_about_skills_without_a_copy() -> None:
    asked = {r["doc_id"].removeprefix("local/marketplace/") for r in REQUESTS}
    assert [r["query_id"] for r in REQUESTS] == [f"market#{n}" for n in range(1, 31)]
    assert Counter(r["breadth"] for r in REQUESTS) == {"narrow": 10, "medium": 12, "broad": 8}
    assert len(asked) >= 18
    assert FOREIGN.keys() <= asked
    assert not asked & {*COPIES, *COPIES.values(), *NEAR_COPY}


def test_the_sample_is_the_same_below_any_root_and_names_none(tmp_path: Path) -> None:
    one, other = SampleSource(Root(tmp_path / "a")), SampleSource(Root(tmp_path / "b"))
    documents = [row for row in one.read() if isinstance(row, RawDocument)]
    assert {d.doc_id.partition("/marketplace")[0] for d in documents} == {"local"}
    assert documents == [row for row in other.read() if isinstance(row, RawDocument)]
    assert one.version() == other.version() == documents[0].commit
    assert {d.source for d in documents} == {"sample"}
    assert str(tmp_path) not in repr(documents)
