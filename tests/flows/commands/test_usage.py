from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

import polars as pl
import pytest

from storage.usage import logged_searches, read_usage
from tests.support.command import Ask
from tests.support.roots.hand_written import BEES, BREAD
from tests.support.roots.skill_root import Export, SkillRoot
from tests.support.serving import ask_http, modern_call, serving_here

KEY = "ghp_" + "a8Kd02LmQz7Xw4Bn6Vt9Yc1Ue3Ri5Os8PjHf"


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> Iterator[SkillRoot]:
    """A root whose server, now ended, was asked in every way, texts kept."""
    root = SkillRoot.below(tmp_path_factory.mktemp("used"), minilm_export, {"bread": BREAD, "bees": BEES})
    root.publish()
    texts = {"SKILLERY_QUERY_LOG": "texts"}
    with patch.dict(os.environ, texts), serving_here(root.root.uri) as server:
        for words in ("knead bread dough", "knead the bread dough", f"zzz {KEY}", "zzz qqq"):
            assert ask_http(server, f"/api/search?q={words.replace(' ', '%20')}").status == 200
        ask_http(server, "/api/page?doc_id=local/market/bread&q=knead")
        ask_http(server, "/?q=bees")
        headers, body = modern_call(1, "search_skills", {"task": "bees and mites"})
        ask_http(server, "/mcp", body, **headers)
        asked = ask_http(server, "/metrics").body.decode()
        assert 'skillery_asked_total{action="search",fits="no",via="http"} 2.0' in asked
        assert "Never found" in ask_http(server, "/usage").body.decode()
    return root


def test_usage_tells_what_was_asked_found_and_used(used: SkillRoot, ask: Ask, tmp_path: Path) -> None:
    done = ask("install", "bread", "--to", str(tmp_path), "--root", used.root.uri)
    assert done.code == 0, done.stderr
    found = ask.told("usage", "--root", used.root.uri)
    (day,) = found["days"]
    assert (day["searches"], day["nothing_fits"], day["page"], day["install"]) == (6, 2, 1, 1)
    assert found["via"] == {"http": 5, "browser": 1, "mcp": 1, "command": 1}
    assert {group["times"] for group in found["not_found"]} == {1}
    assert found["skills"][0] == {"doc_id": "local/market/bread", "found": 4, "paged": 1, "installed": 1}
    assert found["never_found"]["of"] == 2
    printed = ask("usage", "--root", used.root.uri).stdout
    assert KEY not in printed
    assert "local/market/bread" in printed
    assert max(map(len, printed.splitlines())) < 100


def test_what_people_ask_becomes_probes(used: SkillRoot) -> None:
    logged = dict(logged_searches(used.root, datetime.now(UTC)))
    assert logged["knead bread dough"] == "local/market/bread"
    assert "zzz qqq" not in logged


def test_without_texts_usage_says_what_it_needs(tmp_path: Path, ask: Ask) -> None:
    found = ask.told("usage", "--root", str(tmp_path))
    assert (found["not_found"], "SKILLERY_QUERY_LOG=texts" in found["needs"]) == (None, True)
    assert "nothing was asked" in ask("usage", "--root", str(tmp_path)).stdout


def test_a_forgotten_skill_is_in_no_row(tmp_path: Path, minilm_export: Export, ask: Ask) -> None:
    root = SkillRoot.below(tmp_path, minilm_export, {"bread": BREAD, "bees": BEES})
    root.publish()
    ask("install", "bread", "--to", str(tmp_path / "skills"), "--root", root.root.uri)
    assert ask("forget", "local/market/bread", "--yes", "--root", root.root.uri).code == 0
    rows = read_usage(root.root, datetime.now(UTC))
    assert rows["action"].to_list() == ["install"]
    assert rows.filter(pl.col("doc_id").is_not_null()).is_empty()


def test_off_means_no_file(
    tmp_path: Path, minilm_export: Export, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLERY_QUERY_LOG", "off")
    root = SkillRoot.below(tmp_path, minilm_export, {"bread": BREAD})
    root.publish()
    ask("install", "bread", "--to", str(tmp_path / "skills"), "--root", root.root.uri)
    assert not (Path(root.root.uri) / "usage").exists()
