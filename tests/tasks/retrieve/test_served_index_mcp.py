from __future__ import annotations

from pathlib import Path

import pytest

from storage.schemas import DOCUMENTS
from storage.state import documents_table, nodes_table, parsed_table
from tasks.crawl.collect import collect
from tasks.crawl.mcp.awesome import AwesomeListSource
from tasks.crawl.source.base import CrawlContext
from tasks.evaluate.health.probes import probe_index, served_probes
from tasks.retrieve.page import METHODS
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import Export, Make, SkillRoot

SCALES = "ann/hive-scales"
SERVERS = """## Servers

### Farm

- [ann/hive-scales](https://github.com/ann/hive-scales) 🐍 🏠 - Weighs a hive. Reports it: every hour.
- [bob/oven](https://github.com/bob/oven) ☁️ - Sets the temperature of an oven
- [cat/oven](https://github.com/cat/oven) ☁️ - Sets the temperature of an oven
- [dan/unknown](https://github.com/dan/unknown)
"""


def list_servers(root: SkillRoot, text: str = SERVERS) -> None:
    path = Path(root.root.uri).parent / "servers.md"
    path.write_text(text, "utf-8")
    source = AwesomeListSource(str(path), CrawlContext(root.root, root.now))
    collect(source, root.root, run_id=f"{root.run_id}-servers", now=root.now)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> SkillRoot:
    """A root that serves skills and servers; only the last test changes it."""
    root = SkillRoot.below(tmp_path_factory.mktemp("skills-and-servers"), minilm_export, SKILLS)
    list_servers(root)
    root.publish()
    return root


def test_search_finds_servers_beside_skills_and_says_which_is_which(both: SkillRoot) -> None:
    results = both.ask().search("How heavy is the hive of my bees?", k=10)["results"]
    kinds = {result["doc_id"]: result["kind"] for result in results}
    assert kinds[SCALES] == "mcp-server"
    assert kinds["local/market/bees"] == "skill"
    assert results[0]["doc_id"] in {SCALES, "local/market/bees"}
    scales = next(result for result in results if result["doc_id"] == SCALES)
    assert scales["name"] == SCALES
    assert scales["url"] == "https://github.com/ann/hive-scales"


def test_every_server_is_a_document_with_its_description_as_body(both: SkillRoot) -> None:
    rows = documents_table(both.root).read(columns=list(DOCUMENTS))
    bodies = {r["doc_id"]: r["body"] for r in rows.iter_rows(named=True) if r["kind"] == "mcp-server"}
    # Two servers may be described in the same words and still be two; one without words has its name.
    assert bodies == {
        SCALES: "Weighs a hive. Reports it: every hour.",
        "bob/oven": "Sets the temperature of an oven",
        "cat/oven": "Sets the temperature of an oven",
        "dan/unknown": "dan/unknown",
    }
    skills = {f"local/market/{name}" for name in SKILLS}  # servers have no nodes
    assert set(nodes_table(both.root).read()["doc_id"]) == skills
    assert set(parsed_table(both.root).read()["doc_id"]) == skills


@pytest.mark.parametrize("method", METHODS)
def test_the_page_of_a_server_is_its_description(both: SkillRoot, method: str) -> None:
    for budget in (None, 1.0, 500, 2):
        answer = both.ask().page(SCALES, "hive weight", budget=budget, method=method)
        assert answer["context"] == "Weighs a hive. Reports it: every hour."
        assert (answer["kind"], answer["nodes"], answer["over_budget"]) == ("mcp-server", [], budget == 2)
        assert answer["tokens"] == answer["document_tokens"] > 0


def test_a_root_of_servers_alone_passes_the_gate_and_answers(skill_root: Make) -> None:
    root = skill_root({})
    root.market.mkdir()
    list_servers(root)
    root.publish()
    assert root.ask().search("oven")["results"][0]["doc_id"] in {"bob/oven", "cat/oven"}
    assert root.ask().page("bob/oven", "heat", budget=None, method="mmr")["context"].startswith("Sets")
    probes = served_probes(root.root, root.served(), count=10)
    assert probe_index(root.root, root.served(), probes, encoder=root.encoder) == []


def test_a_server_that_left_its_list_is_served_no_more_and_an_unchanged_night_builds_nothing(
    both: SkillRoot,
) -> None:
    list_servers(both)
    assert not both.publish().changed
    list_servers(both, "\n".join(line for line in SERVERS.splitlines() if "bob" not in line))
    assert both.publish().changed
    found = [result["doc_id"] for result in both.ask().search("oven temperature")["results"]]
    assert "cat/oven" in found
    assert "bob/oven" not in found
