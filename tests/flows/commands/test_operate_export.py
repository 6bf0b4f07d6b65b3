"""What the command does with a corpus besides asking it: export, forget, compare, count."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from flows.commands.corpus import compare_corpora, served_look_alikes
from flows.commands.operate import examine_root, export_root, forget_target, roll_back_root, root_status
from flows.settings import load_settings
from storage.errors import UnknownDocument, WrongInput
from storage.root import Root
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import SkillRoot

Make = Callable[[dict[str, str]], SkillRoot]
BREAD = f"{SKILLS['bread']}\nA loaf keeps for three days in a linen bag, away from the sun.\n" * 3


def test_a_near_copy_is_told_from_an_exact_one(skill_root: Make) -> None:
    near = BREAD.replace("three days", "four days", 1)
    root = skill_root({"a": BREAD, "b": BREAD, "c": near, "bees": SKILLS["bees"]})
    root.publish()
    assert root_status(root.root)["dropped"] == {"duplicate": 1, "near_duplicate": 1}


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


def test_what_is_forgotten_is_not_served_and_not_crawled_again(skill_root: Make) -> None:
    root = skill_root({"bread": SKILLS["bread"], "bees": SKILLS["bees"]})
    root.publish()
    found = forget_target(root.root, "local/market/bread")
    assert found["doc_ids"] == ("local/market/bread",)
    root.publish()
    with pytest.raises(UnknownDocument):
        root.ask().find("local/market/bread")
    assert root.ask().find("local/market/bees") == "local/market/bees"


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


def test_skills_that_say_the_same_of_themselves_are_reported_and_both_stay(
    skill_root: Make, tmp_path: Path
) -> None:
    other = BREAD.replace("knead", "work").replace("Knead", "Work").split("---", 2)
    twin = f"---{other[1]}---\n# Another way\n\n1. Buy a loaf.\n2. Slice it thinly.\n"
    root = skill_root({"bread": BREAD, "twin": twin, "bees": SKILLS["bees"]})
    root.publish()
    found = served_look_alikes(root.root, 0.95, tmp_path / "pairs.parquet")
    assert (found["documents"], found["pairs"], found["groups"]) == (3, 1, 1)
    assert found["largest"][0]["doc_ids"] == ["local/market/bread", "local/market/twin"]
    assert pl.read_parquet(tmp_path / "pairs.parquet").height == 1
    assert root_status(root.root)["dropped"] == {}


def test_a_threshold_no_two_skills_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match=r"--threshold is 1\.5"):
        served_look_alikes(Root(tmp_path), 1.5, None)


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


def test_a_sound_root_has_nothing_to_mend(skill_root: Make) -> None:
    root = skill_root({"bread": SKILLS["bread"]})
    root.publish()
    assert examine_root(root.root) == {"findings": [], "mended": True, "served": root.served().version}


def test_what_cannot_be_mended_is_told_with_the_file_and_what_to_do(skill_root: Make) -> None:
    root = skill_root({"bread": SKILLS["bread"]})
    root.publish()
    raw = root.root.files("raw/documents", ".parquet")[0]
    Path(root.root.at(raw)).write_bytes(b"")

    found = examine_root(root.root)

    assert not found["mended"]
    assert [f["where"] for f in found["findings"]] == [raw]
    assert "put a copy of it back" in found["findings"][0]["done"]
