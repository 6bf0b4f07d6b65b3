from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from flows.cli.main import main
from flows.commands.operate import root_status
from flows.commands.queries import page_batch
from flows.settings import Settings, load_settings
from storage.errors import WrongInput
from storage.root import Root
from storage.served import LICENCES, require_licences
from storage.state import read_runs
from tasks.refine.filters import FilterLimits
from tasks.refine.licences.policy import EXPORT_POLICY, SERVE_POLICY, LicencePolicy
from tasks.retrieve.index.licence_classes import classify_licences
from tests.support.roots.skill_root import SkillRoot

BREAD = "local/market/bread"


@pytest.fixture
def kept_back(served_bakery: SkillRoot) -> Any:  # noqa: ANN401 (a generator of roots)
    """A root whose texts have no licence, under a policy that asks for one."""
    skills = served_bakery.served().skills
    classify_licences(served_bakery.root, skills, LicencePolicy())
    yield served_bakery
    classify_licences(served_bakery.root, skills, SERVE_POLICY)


def test_settings_left_alone_are_the_two_policies() -> None:
    policies = Settings().licence_policies()
    assert LicencePolicy(**policies["serve"]) == SERVE_POLICY
    assert LicencePolicy(**policies["export"]) == EXPORT_POLICY


def test_policies_are_read_from_the_environment_and_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKILLERY_LICENCES_DENY", '["gpl-3.0-only"]')
    monkeypatch.setenv("SKILLERY_LICENCES_UNKNOWN_EXPORT", "deny")
    policies = json.loads(json.dumps(load_settings().licence_policies()))
    assert policies["serve"]["deny"] == policies["export"]["deny"] == ["GPL-3.0-only"]
    assert (policies["serve"]["unknown"], policies["export"]["unknown"]) == ("allow", "deny")


def test_a_policy_refines_anew_only_where_classes_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKILLERY_LICENCES_DENY", '["MIT"]')
    assert load_settings().limits() == FilterLimits()
    monkeypatch.setenv("SKILLERY_DROP_LICENCES", '["deny"]')
    assert load_settings().limits().policy.deny == ("MIT",)


@pytest.mark.parametrize("lines", [[], ["--json"], ["--markdown"]])
def test_a_page_that_is_kept_back_is_wrong_use_and_prints_nothing(
    lines: list[str],
    kept_back: SkillRoot,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["page", BREAD, "how long to knead?", *lines, "--root", kept_back.root.uri]
    monkeypatch.setattr(sys, "argv", ["skillery", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (2, "")
    assert printed.err.startswith(
        f"skillery: {BREAD} is withheld: its licence, unknown, is of class metadata"
    )


def test_a_line_of_a_batch_that_is_kept_back_says_why(kept_back: SkillRoot, tmp_path: Path) -> None:
    line = {"query_id": 1, "doc_id": BREAD, "query": "how long to knead?"}
    batch, out = tmp_path / "q.jsonl", tmp_path / "r.jsonl"
    batch.write_text(json.dumps(line) + "\n", "utf-8")
    page_batch(kept_back.ask(), batch, out, budget=None, method="mmr")
    (answer,) = (json.loads(text) for text in out.read_text("utf-8").splitlines())
    assert {**line, "error": answer["error"]} == answer
    assert "SKILLERY_LICENCES_UNKNOWN_SERVE" in answer["error"]


def test_status_counts_documents_by_class(kept_back: SkillRoot, tmp_path: Path) -> None:
    assert root_status(kept_back.root)["licences"] == {"allow": 0, "metadata-only": 4, "deny": 0}
    kept_back.root.delete(LICENCES)
    found = root_status(kept_back.root)["licences"]
    assert found == {"allow": 0, "metadata-only": 0, "deny": 0, "unclassed": 4}
    assert root_status(Root(tmp_path))["licences"] == {"allow": 0, "metadata-only": 0, "deny": 0}


def _licences(api: str) -> list[dict[str, Any]]:
    wanted = {"artifacts": {"key": {"any_": ["skillery-licences"]}}, "sort": "UPDATED_DESC", "limit": 1}
    headers = {"Content-Type": "application/json"}
    request = Request(f"{api}/artifacts/filter", json.dumps(wanted).encode(), headers)  # noqa: S310
    with urlopen(request) as response:  # noqa: S310 (the harness' own server)
        rows: list[dict[str, Any]] = json.loads(json.load(response)[0]["data"])
    return rows


@pytest.mark.prefect
def test_a_night_in_which_only_the_policy_changed_changes_what_is_shown_and_makes_no_vector(
    prefect_server: str, root: str, skills: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.nightly import nightly

    first = nightly(root, [f"dir:{skills}"])
    assert require_licences(Root(root)).unknown == "allow"
    total = {"class": "allow", "licence": "all", "documents": 2}
    assert _licences(prefect_server)[0] == total

    monkeypatch.setenv("SKILLERY_LICENCES_UNKNOWN_SERVE", "deny")
    second = nightly(root)

    assert (second["published"], second["vectors_new"], second["served"]) == (False, 0, first["served"])
    assert require_licences(Root(root)).unknown == "deny"
    table = _licences(prefect_server)
    assert {**total, "class": "deny"} in table
    assert {"class": "deny", "licence": "unknown", "documents": 2} in table
    assert root_status(Root(root))["licences"] == {"allow": 0, "metadata-only": 0, "deny": 2}


@pytest.mark.prefect
def test_a_misspelt_licence_is_said_before_anything_is_crawled(
    prefect_server: str, root: str, skills: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.nightly import nightly

    monkeypatch.setenv("SKILLERY_LICENCES_ALLOW", '["Apache 2"]')
    with pytest.raises(WrongInput, match="licences_allow: 'Apache 2'"):
        nightly(root, [f"dir:{skills}"])
    assert read_runs(Root(root)) == []
    assert Root(root).files("raw") == []
