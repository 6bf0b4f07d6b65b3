"""Refresh, rebuild, compaction and evaluation as an operator starts them."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from flows.commands.corpus import compare_corpora
from flows.commands.operate import examine_root, export_root, roll_back_root, root_status
from flows.settings import load_settings
from storage.blobs import BlobStore
from storage.errors import Locked, WrongInput
from storage.lance.served import require_served
from storage.root import Root
from storage.state import documents_table, read_runs
from tasks.crawl.local.directory import DirectorySource
from tasks.crawl.source_list import specs_to_read
from tasks.retrieve.versions.publish import publish
from tests.support.command import MAIN, Ask
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import Export, SkillRoot


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> SkillRoot:
    skills = {name: SKILLS[name] for name in ("tea", "bike")}
    made = SkillRoot.below(tmp_path_factory.mktemp("operated"), minilm_export, skills)
    made.source = DirectorySource  # a refresh reads the folder that the root names
    made.publish()
    return made


@pytest.fixture
def shelf(no_server: None, published: SkillRoot, tmp_path: Path) -> Iterator[SkillRoot]:
    """Yield a root that serves two skills, `local/market/tea` and `local/market/bike`, of one folder."""
    made = published.copied(tmp_path)
    kept, made.market = made.market, published.market
    yield made
    shutil.rmtree(made.market)
    shutil.copytree(kept, made.market)


@pytest.fixture
def filled(shelf: SkillRoot) -> str:
    return shelf.root.uri


def _served(root: str) -> str:
    return require_served(Root(root)).version


def test_a_full_rebuild_makes_a_new_version_of_all_that_is_there(filled: str) -> None:
    from flows.full_rebuild import full_rebuild

    before = _served(filled)
    record = full_rebuild(filled)
    assert (record["published"], record["documents"], record["sources"]) == (True, 2, [])
    assert record["vectors_new"] == record["nodes"] + 2
    assert _served(filled) == record["served"] != before


def test_a_wrong_setting_or_what_no_source_has_brought_ends_an_operators_run_before_it_reads_or_writes(
    filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.full_rebuild import full_rebuild
    from flows.refresh_one import refresh_one

    before = read_runs(Root(filled))
    with pytest.raises(WrongInput, match="no source has brought 'ann/garden'"):
        refresh_one("ann/garden", filled)
    monkeypatch.setenv("SKILLERY_EXPAND", "llm")
    for run in (partial(full_rebuild, filled), partial(refresh_one, "local/market/tea", filled)):
        with pytest.raises(WrongInput, match="SKILLERY_LLM_BASE_URL"):
            run()
    assert read_runs(Root(filled)) == before


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


def test_compacting_what_is_compact_publishes_nothing(filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from flows.compact import compact

    before = _served(filled)
    monkeypatch.setenv("SKILLERY_KEEP_RAW_DAYS", "30")
    found = compact(filled)
    assert found["raw"]["rows"] == 0
    assert found["raw"]["since"] <= f"{require_served(Root(filled)).published_at:%Y-%m-%d}"
    assert found["published"] is None
    assert _served(filled) == before
    assert [(t["table"], t["files_before"]) for t in found["tables"]] == [("skills", 1), ("nodes", 1)]


def test_a_compacted_version_is_as_old_as_what_it_was_made_of(
    shelf: SkillRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.compact import compact

    with monkeypatch.context() as patched:
        # Which compacts what it is called for.
        patched.setattr("storage.lance.tables.make_indices", lambda *_: None)
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


def test_the_commands_print_what_they_did(
    shelf: SkillRoot, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, specs = ["--root", shelf.root.uri], specs_to_read(shelf.root)
    for name in ("tea", "bike"):
        shelf.write(name, SKILLS[name] + "\nPut everything back afterwards.\n")

    record = ask.told("refresh", "market/tea", *root)
    assert (record["state"], record["published"], record["documents"]) == ("complete", True, 2)
    assert [(s["listed"], s["changed"], s["retired"]) for s in record["sources"]] == [(1, 1, 0)]
    assert record["checks"]
    assert all(check["passed"] for check in record["checks"])
    assert specs_to_read(shelf.root) == specs, "the next night would read what was refreshed alone"
    foreseen = ask.told("rebuild", "--keep-vectors", "--dry-run", *root)
    assert _served(shelf.root.uri) == record["served"]
    rebuilt = ask.told("rebuild", "--keep-vectors", *root)
    assert rebuilt["published"]
    assert 0.5 < foreseen["bytes_written"] / rebuilt["bytes_written"] < 2
    BlobStore(shelf.root).put([b"no document names this"])
    compacted = ask.told("compact", *root)
    assert (compacted["files_after"] > 0, compacted["blobs_gone"]) == (True, 1)
    assert ask("refresh", "nobody/here", *root).code == 2
    monkeypatch.setenv("SKILLERY_EVALUATION_MAX_MS", "0.000001")
    before = _served(shelf.root.uri)
    fell = ask("evaluate", "corpus", *root)
    assert fell.code == 1
    assert "worse than allowed: latency, search" in fell.stdout
    assert "may be at most 1e-06" in shelf.root.read("reports/evaluation.html").decode()
    assert _served(shelf.root.uri) == before


BREAD, LOAF = "local/market/bread", "local/market/loaf"


@pytest.fixture
def root(skill_root: Callable[[dict[str, str]], SkillRoot]) -> SkillRoot:
    """A root in which two skills hold the same text."""
    made = skill_root({**SKILLS, "loaf": SKILLS["bread"]})
    made.publish()
    return made


def held(root: SkillRoot) -> set[str]:
    return set(documents_table(root.root).read()["doc_id"])


def test_a_dry_run_lists_what_would_go_with_its_copies_and_removes_nothing(ask: Ask, root: SkillRoot) -> None:
    before = held(root)
    assert root_status(root.root)["dropped"] == {"duplicate": 1}
    shown = ask("forget", BREAD, "--dry-run", "--root", root.root.uri)
    found = ask.told("forget", BREAD, "--dry-run", "--root", root.root.uri)
    assert (found["doc_ids"], found["copies"]) in (([BREAD], [LOAF]), ([BREAD, LOAF], []))
    assert f"  {BREAD}\n" in shown.stdout
    assert LOAF in shown.stdout
    assert held(root) == before


def test_without_a_terminal_it_needs_yes(ask: Ask, root: SkillRoot) -> None:
    before = held(root)
    assert "2 documents would be gone for good: give --yes, or --dry-run" in ask.refused(
        "forget", BREAD, "--root", root.root.uri
    )
    assert held(root) == before
    assert ask("forget", BREAD, "--yes", "--root", root.root.uri).code in (0, None)
    assert BREAD not in held(root)
    (run,) = read_runs(root.root)
    assert (run["flow"], run["state"], run["published"]) == ("forget", "complete", True)
    assert run["served"] == root.served().version


def test_on_a_terminal_it_lists_and_asks(root: SkillRoot) -> None:
    for answer, code, there in (("n", 2, True), ("y", 0, False)):
        ours, its = pty.openpty()
        os.write(ours, f"{answer}\n".encode())
        command = [*MAIN, "forget", BREAD, "--root", root.root.uri]
        run = subprocess.run(command, stdin=its, capture_output=True, text=True, timeout=60, check=False)
        assert run.returncode == code
        assert f"  {BREAD}" in run.stderr
        assert "Remove them everywhere?" in run.stderr
        assert (BREAD in held(root)) == ("nothing was removed" in run.stderr) == there
        assert ("forgotten, the document" in run.stdout) != there


Make = Callable[[dict[str, str]], SkillRoot]


def test_an_export_goes_by_the_settings_policy(
    skill_root: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = skill_root({"bread": SKILLS["bread"]})
    root.publish()
    policy = load_settings().licence_policies()["export"]
    assert export_root(root.root, tmp_path / "none", "jsonl", ["allow"], policy)["documents"] == 0
    monkeypatch.setenv("SKILLERY_LICENCES_UNKNOWN_EXPORT", "allow")
    policy = load_settings().licence_policies()["export"]
    report = export_root(root.root, tmp_path / "all", "jsonl", ["allow"], policy)
    assert (report["documents"], report["with_text"]) == (1, 1)
    with pytest.raises(WrongInput, match="all"):
        export_root(root.root, tmp_path / "all", "jsonl", ["allow"], policy)


def test_two_corpora_are_compared_measure_by_measure(tmp_path: Path) -> None:
    files = []
    for name, text in (("steps", "1. Knead.\n2. Bake.\n"), ("code", "```sh\nbake\n```\n")):
        file = tmp_path / f"{name}.jsonl"
        lines = [{"doc_id": f"{name}-{n}", "content": SKILLS["bread"] + text * n} for n in range(1, 9)]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        files.append(str(file))
    found = compare_corpora(*files)
    assert (found["documents_a"], found["documents_b"]) == (8, 8)
    effects = {c["measure"]: c["effect"] for c in found["contrasts"]}
    assert effects["fenced_share"] == -1


def test_going_back_tells_what_is_served_what_was_and_what_there_is(skill_root: Make) -> None:
    root = skill_root({"bread": SKILLS["bread"]})
    root.publish()
    first = root.served()
    root.write("bees", SKILLS["bees"])
    root.publish()
    second = root.served()
    assert roll_back_root(root.root, None) == {
        "served": first.version,
        "was": second.version,
        "published_at": first.published_at.isoformat(),
        "versions": [second.version, first.version],
    }
    assert root_status(root.root)["served"] == first.version
    assert [(run["flow"], run["state"]) for run in read_runs(root.root)] == [("rollback", "complete")]


def test_a_sound_root_has_nothing_to_mend_and_else_the_file_is_told_and_what_to_do(skill_root: Make) -> None:
    root = skill_root({"bread": SKILLS["bread"]})
    root.publish()
    served = root.served().version
    assert examine_root(root.root) == {"findings": [], "mended": True, "served": served, "tuned": None}
    raw = root.root.files("raw/documents", ".parquet")[0]
    Path(root.root.at(raw)).write_bytes(b"")
    found = examine_root(root.root)
    assert not found["mended"]
    assert [f["where"] for f in found["findings"]] == [raw]
    assert "put a copy of it back" in found["findings"][0]["done"]


def test_a_command_waits_for_another_writer_as_long_as_it_is_asked_to_and_says_for_whom(
    tmp_path: Path, ask: Ask, other_writer: Callable[[str], AbstractContextManager[None]]
) -> None:
    root, held = str(tmp_path / "root"), ExitStack()
    held.enter_context(other_writer(root))
    add = ("sources", "add", f"dir:{tmp_path}", "--root", root)
    refused = ask(*add)
    assert (refused.code, refused.stderr.count("\n"), "give --wait MINUTES" in refused.stderr) == (1, 1, True)
    ending = threading.Timer(0.4, held.close)
    ending.start()
    added = ask(*add, "--wait", "5")
    ending.join()
    assert added.code == 0
    assert f"waiting: another run writes to {root} (-c, process" in " ".join(added.stderr.split())
