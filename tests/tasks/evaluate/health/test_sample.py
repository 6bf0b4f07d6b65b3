from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.crawl.git.source import FOLDER
from tasks.evaluate.health.as_served import METHODS, REQUESTS, page_sample, route_sample, sample_requests
from tasks.evaluate.measures.evidence import EvidenceQuery, fold_text, read_queries
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import SkillRoot

Make = Callable[[dict[str, str]], SkillRoot]

MITES = EvidenceQuery(
    "q1", "local/market/bees", "what helps against varroa mites", (("oxalic acid in December",),)
)
PATCH = EvidenceQuery(
    "q2", "local/market/bike", "mend a flat tyre", (("vulcanising glue",), ("sandpaper", "emery"))
)


def test_requests_come_with_evidence_that_stands_in_their_skill() -> None:
    requests = read_queries(REQUESTS)
    assert len(requests) == 30
    for request in requests:
        folder = FOLDER / Path(request.doc_id).relative_to("local/marketplace")
        files = [f for f in folder.iterdir() if f.name.lower() == "skill.md"]
        text = fold_text(files[0].read_text("utf-8", errors="replace"))
        assert all(any(fold_text(span) in text for span in item) for item in request.evidence), request
        assert not re.search(r"\W" + re.escape(folder.name) + r"\W", request.query)


def test_a_root_without_the_sample_has_no_requests(served_bakery: SkillRoot) -> None:
    assert sample_requests(served_bakery.ask()) == []


def test_requests_are_those_whose_skill_is_served(
    served_bakery: SkillRoot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        '{"query_id": "a", "doc_id": "local/market/bees", "query": "x", "evidence": [{"any_of": ["x"]}]}',
        '{"query_id": "b", "doc_id": "local/market/wasps", "query": "x", "evidence": [{"any_of": ["y"]}]}',
    ]
    (tmp_path / "q.jsonl").write_text("\n".join(lines), "utf-8")
    monkeypatch.setattr("tasks.evaluate.health.as_served.REQUESTS", tmp_path / "q.jsonl")
    assert [q.query_id for q in sample_requests(served_bakery.ask())] == ["a"]


def test_paging_is_measured_by_method(served_bakery: SkillRoot) -> None:
    rows = {r["method"]: r for r in page_sample(served_bakery.ask(), [MITES, PATCH])}
    assert set(rows) == set(METHODS)
    assert (rows["full"]["queries"], rows["full"]["sufficient"], rows["full"]["token_reduction"]) == (2, 1, 0)
    assert rows["mmr"]["coverage"] == 1.0
    assert 0 <= rows["mmr"]["token_reduction"] < 1


def test_routing_finds_the_skill_that_a_request_was_written_from(served_bakery: SkillRoot) -> None:
    rows = route_sample(served_bakery.ask(), [MITES, PATCH])
    assert {r["measure"]: r["value"] for r in rows} == {"hit@1": 1.0, "hit@10": 1.0, "mrr@10": 1.0}
    wrong = EvidenceQuery("q3", "local/market/bread", MITES.query, MITES.evidence)
    assert {r["measure"]: r["value"] for r in route_sample(served_bakery.ask(), [MITES, wrong])}[
        "hit@1"
    ] == 0.5


def test_a_request_about_a_folded_copy_counts_for_its_survivor(skill_root: Make) -> None:
    root = skill_root(SKILLS)
    root.publish(nodes=False)
    root.write("zz-copy", SKILLS["bees"])
    root.publish(nodes=False)
    request = EvidenceQuery("q1", "local/market/zz-copy", MITES.query, MITES.evidence)
    assert [r["value"] for r in route_sample(root.ask(), [request])] == [1.0, 1.0, 1.0]
