"""Refresh, rebuild, compaction and evaluation as an operator starts them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from storage.blobs import BlobStore
from storage.errors import EvaluationFell, Locked, WrongInput
from storage.root import Root
from storage.served import read_served
from storage.state import read_runs
from tasks.crawl.source.directory import DirectorySource
from tasks.crawl.source_list import specs_to_read
from tasks.retrieve.versions.publish import publish
from tests.support.command import Ask
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import SkillRoot

pytestmark = pytest.mark.prefect


@pytest.fixture
def shelf(prefect_server: str, skill_root: Callable[[dict[str, str]], SkillRoot]) -> SkillRoot:
    """Return a root that serves two skills, `local/market/tea` and `local/market/bike`."""
    made = skill_root({name: SKILLS[name] for name in ("tea", "bike")})
    made.source = DirectorySource  # a refresh reads the folder that the root names
    made.publish()
    return made


@pytest.fixture
def filled(shelf: SkillRoot) -> str:
    return shelf.root.uri


def _served(root: str) -> str:
    served = read_served(Root(root))
    assert served is not None
    return served.version


def test_refreshing_one_skill_serves_its_change_and_leaves_the_others(shelf: SkillRoot) -> None:
    from flows.refresh_one import refresh_one

    specs = specs_to_read(shelf.root)
    for name in ("tea", "bike"):
        shelf.write(name, SKILLS[name] + "\nPut everything back afterwards.\n")

    record = refresh_one("local/market/tea", shelf.root.uri)

    assert (record["state"], record["published"], record["documents"]) == ("complete", True, 2)
    assert [(s["listed"], s["changed"], s["retired"]) for s in record["sources"]] == [(1, 1, 0)]
    assert record["checks"]
    assert all(check["passed"] for check in record["checks"])
    assert specs_to_read(shelf.root) == specs, "the next night would read what was refreshed alone"


def test_what_no_source_has_brought_is_not_refreshed(filled: str) -> None:
    from flows.refresh_one import refresh_one

    with pytest.raises(WrongInput, match="no source has brought 'ann/garden'"):
        refresh_one("ann/garden", filled)
    assert read_runs(Root(filled)) == []


def test_a_full_rebuild_makes_a_new_version_of_all_that_is_there(filled: str) -> None:
    from flows.full_rebuild import full_rebuild

    before = _served(filled)

    record = full_rebuild(filled)

    assert (record["published"], record["documents"], record["sources"]) == (True, 2, [])
    assert record["vectors_new"] == record["nodes"] + 2
    assert _served(filled) == record["served"] != before


def test_an_operators_run_waits_for_another_writer_no_longer_than_asked(
    filled: str, other_writer: Callable[[str], AbstractContextManager[None]]
) -> None:
    from flows.compact import compact
    from flows.full_rebuild import full_rebuild

    with other_writer(filled):
        with pytest.raises(Locked):
            compact(filled, 0.001)
        with pytest.raises(Locked):
            full_rebuild(filled, wait_minutes=0)


def test_compacting_what_is_compact_publishes_nothing(filled: str) -> None:
    from flows.compact import compact

    before = _served(filled)

    found = compact(filled)

    assert found["published"] is None
    assert _served(filled) == before
    assert [(t["table"], t["files_before"]) for t in found["tables"]] == [("skills", 1), ("nodes", 1)]


def test_a_compacted_version_is_as_old_as_what_it_was_made_of(
    shelf: SkillRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.compact import compact

    with monkeypatch.context() as patched:
        patched.setattr(
            "storage.lance.tables.make_indices", lambda *_: None
        )  # which compacts what it is called for
        for name in ("tea", "bike"):
            shelf.write(name, SKILLS[name] + "\nWash your hands afterwards.\n")
            shelf.crawl()
            shelf.parse()
            built, card = shelf.build(), shelf.encoder.card
            publish(shelf.root, built, card=card, path=shelf.model, run_id=shelf.run_id, now=shelf.now)
    before = shelf.served()

    assert compact(shelf.root.uri)["published"] not in (None, before.version)

    assert shelf.served().published_at == before.published_at


def test_an_evaluation_is_kept_drawn_and_compared_with_the_one_before(filled: str) -> None:
    from flows.evaluate import evaluate

    first, second = evaluate(filled), evaluate(filled)

    history = pl.read_parquet(Path(filled) / "reports" / "evaluations")
    assert history["evaluated_at"].n_unique() == 2
    assert {row["verdict"] for row in first["drift"]} == {"new"}
    assert {row["before"] for row in second["drift"] if row["measure"] == "hit@10"} >= {1.0}
    assert set(history["probe"]) >= {"latency", "size", "node type mix", "sentence to skill"}
    page = (Path(filled) / second["report"]).read_text("utf-8")
    assert second["version"] in page
    assert page.count("data:image/svg+xml") >= 4


def test_an_evaluation_below_its_thresholds_fails_and_leaves_its_figures(
    filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.evaluate import evaluate

    monkeypatch.setenv("SKILLERY_EVALUATION_MAX_MS", "0.000001")
    before = _served(filled)

    with pytest.raises(
        EvaluationFell, match=r"worse than its thresholds allow: latency, search: p95_ms is"
    ) as error:
        evaluate(filled)

    assert error.value.found["fallen"]
    assert "may be at most 1e-06" in (Path(filled) / "reports" / "evaluation.html").read_text("utf-8")
    assert _served(filled) == before


def test_the_commands_print_what_they_did(
    shelf: SkillRoot, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = ["--root", shelf.root.uri]
    shelf.write("tea", SKILLS["tea"] + "\nRinse the pot.\n")

    def printed(*command: str) -> dict[str, Any]:
        done = ask(*command, *root, "--json")
        assert done.code == 0, done
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    assert printed("refresh", "market/tea")["published"]
    assert printed("rebuild", "--keep-vectors")["published"]
    BlobStore(shelf.root).put([b"no document names this"])
    compacted = printed("compact")
    assert (compacted["files_after"] > 0, compacted["blobs_gone"]) == (True, 1)
    assert ask("refresh", "nobody/here", *root).code == 2
    monkeypatch.setenv("SKILLERY_EVALUATION_MAX_MS", "0.000001")
    fell = ask("evaluate", "corpus", *root)
    assert fell.code == 1
    assert "worse than allowed: latency, search" in fell.stdout
