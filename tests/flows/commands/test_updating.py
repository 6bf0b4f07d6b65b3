from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.commands.installing import InstallSettings, install_skills
from flows.commands.updating import outdated_skills, update_skills
from storage.lance.served import Licences, write_licences
from tasks.retrieve.install.lock import LOCK_FILE, InstallLock, Pending, read_lock, write_lock
from tasks.retrieve.install.skills_folder import open_skills_folder
from tests.support.installs import OLD, installed, put
from tests.support.roots.nights import HandSource, Nights, raw, skill, with_files
from tests.support.roots.storied import PIPED, RULE

COPY, BREAD = "local/copies/bread", "local/kitchen/bread"
SETTINGS = InstallSettings()


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    made = Nights(tmp_path / "root")
    write_licences(made.root, Licences({}, "allow"))
    return made


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "skills"


def update(nights: Nights, place: Path, *names: str) -> dict[str, dict[str, Any]]:
    found = update_skills(nights.root, place, names, [], SETTINGS, dry_run=False)
    assert json.loads(json.dumps(found)) == found
    return {told["name"]: told for told in found["skills"]}


def install(nights: Nights, place: Path, *ids: str) -> None:
    install_skills(nights.root, place, ids, None, [], SETTINGS)


def test_a_copy_that_was_folded_is_updated_to_its_survivor(nights: Nights, place: Path) -> None:
    nights.run(HandSource("dir:copies", skill(COPY)))
    install(nights, place, COPY)
    better = replace(with_files(skill(BREAD), {"notes.md": b"Use rye.\n"}), stars=100)
    nights.run(HandSource("dir:kitchen", better), HandSource("dir:copies", skill(COPY)))
    assert nights.aliases() == {COPY: (BREAD, "folded")}
    told = update(nights, place)["bread"]
    assert (told["state"], told["doc_id"], told["to"]["doc_id"]) == ("updated", COPY, BREAD)
    assert (place / "bread/notes.md").read_bytes() == b"Use rye.\n"
    assert update(nights, place)["bread"]["doc_id"] == BREAD


def test_a_skill_that_has_another_name_by_now_stays(nights: Nights, place: Path) -> None:
    nights.run(HandSource("dir:kitchen", skill(BREAD)))
    install(nights, place, BREAD)
    text = b"---\nname: loaf\ndescription: Bakes bread.\n---\nLet it rise.\n"
    nights.run(HandSource("dir:kitchen", raw(BREAD, text)))
    told = update(nights, place)["bread"]
    assert (told["state"], "it is called loaf by now" in told["reason"]) == ("refused", True)
    assert (place / "bread/SKILL.md").read_bytes() == skill(BREAD).content
    assert not (place / "loaf").exists()


def test_a_rule_that_was_accepted_stays_accepted(nights: Nights, place: Path) -> None:
    def source(text: str) -> HandSource:
        return HandSource("dir:kitchen", with_files(skill(BREAD, text), {"knead.sh": PIPED}))

    nights.run(source("Wait for it."))
    install_skills(nights.root, place, [BREAD], None, [RULE], SETTINGS)
    nights.run(source("Wait for two hours."))
    assert update(nights, place)["bread"]["state"] == "updated"
    assert read_lock(place).skills["bread"].accepted_risks == [RULE]


def test_only_what_is_named_is_updated(nights: Nights, place: Path) -> None:
    def source(text: str) -> HandSource:
        other = f"---\nname: tea\ndescription: Brews tea.\n---\n{text} in a warm pot.\n".encode()
        return HandSource("dir:kitchen", skill(BREAD, f"{text} with yeast."), raw("local/kitchen/tea", other))

    nights.run(source("Wait for it"))
    install(nights, place, BREAD, "tea")
    nights.run(source("Wait for two hours"))
    assert list(update(nights, place, "tea")) == ["tea"]
    states = {t["name"]: t["state"] for t in outdated_skills(nights.root, place)["skills"]}
    assert states == {"bread": "outdated", "tea": "current"}


def test_what_a_killed_command_left_is_mended_and_told(nights: Nights, place: Path) -> None:
    nights.run(HandSource("dir:kitchen", skill(BREAD)))
    with open_skills_folder(place, create=True) as skills:
        put(OLD, skills)
    write_lock(place, InstallLock(pending=Pending("bread", installed(OLD))))
    (place / ".skillery.tmp").mkdir()
    assert outdated_skills(nights.root, place)["mended"] == {"bread": "installed"}
    assert sorted(path.name for path in place.iterdir()) == ["bread", LOCK_FILE]
    assert outdated_skills(nights.root, place)["mended"] == {}
