from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from storage.lance.served import Licences, read_licences, write_licences
from storage.state import documents_table
from tasks.retrieve.install.agents import FOLDERS
from tests.support.command import Ask
from tests.support.roots.skill_root import SkillRoot
from tests.support.roots.storied import BREAD_ID, KNEAD, LOGO, PIPED, RULE, SECOND

ACCEPT = ("--accept-risk", RULE)
FIRST = ("--revision", "2025-03-02")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storied: SkillRoot) -> Path:
    """Go to an empty project, with an empty home beside it."""
    for name in ("project", "home"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.setenv("SKILLERY_ROOT", storied.root.uri)
    return tmp_path / "project"


def files_in(folder: Path) -> dict[str, bytes]:
    return {f.relative_to(folder).as_posix(): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def require_true(lock: Path, root: SkillRoot) -> None:
    """Fail unless a lock says what lies beside it, and what the corpus says of that."""
    for name, said in json.loads(lock.read_text("utf-8"))["skills"].items():
        found = files_in(lock.parent / name)
        assert said["files"] == {p: hashlib.sha256(content).hexdigest() for p, content in found.items()}
        row = documents_table(root.root).of_document(said["doc_id"]).row(0, named=True)
        for field in ("commit", "content_hash", "licence", "source", "url"):
            assert said[field] == row[field]


@pytest.mark.parametrize("agent", ["claude", "codex", "copilot", "amp", "windsurf"])
@pytest.mark.parametrize("user", [False, True])
def test_each_agent_s_folder_holds_the_source_s_bytes_until_they_are_removed(
    ask: Ask, storied: SkillRoot, project: Path, agent: str, user: bool
) -> None:
    where = ["--agent", agent, *(["--user"] if user else [])]
    folder = (project.parent / "home" if user else project) / FOLDERS[agent][user]
    (installed,) = ask.told("install", "bread", *ACCEPT, *where)["skills"]
    assert installed["path"] == str(folder / "bread")
    source = files_in(storied.market / "bread")
    assert installed["redacted"] == ["keys.env"]
    assert files_in(folder / "bread") == source | {"keys.env": b"TOKEN=[redacted:github-token]\n"}
    require_true(folder / "skillery.lock", storied)
    assert ask.told("outdated", *where)["skills"][0]["state"] == "current"
    assert ask.told("update", *where)["skills"][0]["state"] == "current"
    assert ask.told("remove", "bread", *where)["skills"][0]["doc_id"] == BREAD_ID
    assert list(folder.iterdir()) == []


def test_a_home_that_was_moved_or_is_deprecated_is_known(
    ask: Ask, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(project / "moved"))
    bees = ("install", "local/market/bees")
    assert ask.told(*bees, "--agent", "claude", "--user")["folder"] == str(project / "moved/skills")
    assert ask.told(*bees, "--agent", "claude-code")["folder"] == str(project / ".claude/skills")
    codex, old = ("--agent", "codex", "--user"), project.parent / "home/.codex/skills"
    ask.told(*bees, "--to", str(old))
    assert ask.told("outdated", *codex)["folder"] == str(old)
    new = ask.told(*bees, *codex)["folder"]
    assert (new, ask.told("outdated", *codex)["folder"]) == (str(old.parents[1] / ".agents/skills"), new)


def test_a_risky_skill_is_refused_with_its_rule(ask: Ask, project: Path) -> None:
    said = ask.refused("install", "bread", "--to", "skills")
    for part in (f"error risk.{RULE}", "scripts/knead.sh, line 2", f"--accept-risk {RULE}"):
        assert part in said
    assert not (project / "skills").exists()
    assert "is no rule of risks" in ask.refused("install", "bread", "--to", "skills", "--accept-risk", "x")


def test_classes_of_risks_that_are_refused_are_a_setting(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKILLERY_INSTALL_REFUSE", "")
    risks = ask.told("install", "bread", "--to", "skills")["skills"][0]["risks"]
    assert [risk["code"] for risk in risks] == [f"risk.{RULE}"]
    for classes in ("remote,hidden", '["warning", "error"]'):
        monkeypatch.setenv("SKILLERY_INSTALL_REFUSE", classes)
        assert RULE in ask.refused("install", "bread", "--to", "skills")
    monkeypatch.setenv("SKILLERY_INSTALL_REFUSE", "grave")
    assert "'grave' is no class of risks" in ask.refused("install", "bread", "--to", "skills")


def test_an_older_revision_is_outdated_and_updated_with_the_differences(
    ask: Ask, storied: SkillRoot, project: Path
) -> None:
    where = ("--to", "skills")
    ask.told("install", "bread", *FIRST, *where)
    bread = project / "skills" / "bread"
    assert (bread / "logo.png").read_bytes() == LOGO
    assert ask.told("outdated", *where)["skills"][0]["state"] == "outdated"
    before = files_in(project)
    (left,) = ask.told("update", *where, code=1)["skills"]
    assert (left["state"], RULE in left["reason"]) == ("refused", True)
    foreseen = ask.told("update", "--dry-run", *ACCEPT, *where)
    assert files_in(project) == before
    done = ask.told("update", *ACCEPT, *where)
    assert [s["state"] for f in (foreseen, done) for s in f["skills"]] == ["outdated", "updated"]
    assert foreseen["skills"][0]["files"] == done["skills"][0]["files"]
    changes = {file["path"]: file["change"] for file in done["skills"][0]["files"]}
    assert changes == {
        "SKILL.md": "changed", "logo.png": "removed", "notes.md": "added", "scripts/knead.sh": "changed",
    }  # fmt: skip
    assert [risk["code"] for risk in done["skills"][0]["risks"]["added"]] == [f"risk.{RULE}"]
    assert (bread / "SKILL.md").read_bytes() == SECOND.encode()
    assert (bread / "scripts/knead.sh").read_bytes() == PIPED
    require_true(project / "skills" / "skillery.lock", storied)
    assert ask.told("update", *where)["skills"][0]["state"] == "current"


@pytest.mark.parametrize(("side", "script"), [("--ours", b"echo mine\n"), ("--theirs", PIPED)])
def test_what_was_edited_is_merged_and_stays_an_edit(
    ask: Ask, project: Path, side: str, script: bytes
) -> None:
    where = ("--to", "skills")
    ask.told("install", "bread", *FIRST, *where)
    bread = project / "skills/bread"
    text = (bread / "SKILL.md").read_text("utf-8")
    (bread / "SKILL.md").write_text(text.replace("If the crumb", "If my crumb"), "utf-8")
    (bread / "scripts/knead.sh").write_bytes(b"echo mine\n")
    (bread / "mine.md").write_bytes(b"mine\n")
    foreseen = ask.told("update", side, *ACCEPT, "--dry-run", *where)["skills"][0]
    (done,) = ask.told("update", side, *ACCEPT, *where)["skills"]
    assert (foreseen["state"], done["state"], foreseen["files"]) == ("outdated", "merged", done["files"])
    now = (bread / "SKILL.md").read_text("utf-8")
    assert ("If my crumb" in now, "three hours" in now) == (True, True)
    assert (bread / "scripts/knead.sh").read_bytes() == script
    assert (bread / "mine.md").read_bytes() == b"mine\n"
    (again,) = ask.told("outdated", *where)["skills"]
    edited = {"SKILL.md", "mine.md", *(["scripts/knead.sh"] if side == "--ours" else [])}
    assert (again["state"], {edit["path"] for edit in again["edited"]}) == ("current", edited)
    assert ask.told("update", *where)["skills"][0]["state"] == "current"
    assert (bread / "SKILL.md").read_text("utf-8") == now


def test_what_was_edited_by_hand_is_kept_by_every_command(ask: Ask, project: Path) -> None:
    where = ("--to", "skills")
    ask.told("install", "bread", *FIRST, *where)
    script = project / "skills/bread/scripts/knead.sh"
    assert script.read_bytes() == KNEAD
    script.write_bytes(b"echo mine\n")
    (found,) = ask.told("outdated", *where)["skills"]
    assert found["state"] == "outdated"
    assert found["edited"] == [{"path": "scripts/knead.sh", "change": "edited"}]
    (left,) = ask.told("update", *ACCEPT, *where, code=1)["skills"]
    assert left["state"] == "conflict"
    assert "scripts/knead.sh (both changed the same lines)" in left["reason"]
    listed = (project / "skills/bread.rej").read_text("utf-8")
    assert all(said in listed for said in ("echo mine", "<<<<<<< yours", ">>>>>>> corpus"))
    for command in (["install", "bread", *ACCEPT], ["remove", "bread"]):
        assert "knead.sh (edited)" in ask.refused(*command, *where)
    assert script.read_bytes() == b"echo mine\n"
    assert len(ask.told("remove", "bread", "--yes", *where)["skills"][0]["edited"]) == 1
    assert files_in(project / "skills") == {}


def test_a_person_reads_what_was_done(ask: Ask) -> None:
    def printed(*arguments: str) -> str:
        return ask(*arguments, "--to", "skills").stdout

    said = printed("install", "bread", "local/market/bees", *FIRST)
    for part in ("installed: ", "(4 files)", "(1 file)", "keys were redacted in keys.env", "skillery.lock"):
        assert part in said
    assert f"outdated: bread ({BREAD_ID}" in printed("outdated")
    said = printed("update", *ACCEPT)
    for part in ("updated: bread", "-echo knead", "+curl http", "risk added: error", "removed logo.png"):
        assert part in said
    (Path("skills/bread/notes.md")).unlink()
    assert "missing by hand: notes.md" in printed("outdated")
    assert "missing by hand: notes.md" in printed("update")
    assert "removed: " in printed("remove", "bees")


def test_nothing_is_installed_unless_all_that_was_named_can_be(ask: Ask, project: Path) -> None:
    Path("skills/bees").mkdir(parents=True)
    names = ["local/market/old/bees", "local/market/bees"]
    assert "not from Skillery" in ask.refused("install", *names, "--to", "skills")
    assert "no document has the id" in ask.refused("install", "bees", "nothing", "--to", "skills")
    assert files_in(project) == {}


@pytest.fixture
def withheld(storied: SkillRoot) -> Any:  # noqa: ANN401
    """The root, while its policy keeps back what has no known licence."""
    before = read_licences(storied.root)
    assert before is not None
    yield lambda: write_licences(storied.root, Licences(before.classes, "metadata-only"))
    write_licences(storied.root, before)


def test_what_is_withheld_is_not_installed_nor_updated(ask: Ask, withheld: Any) -> None:  # noqa: ANN401
    ask.told("install", "bread", *FIRST, "--to", "skills")
    withheld()
    assert "is withheld" in ask.refused("install", "local/market/bees", "--to", "skills")
    (left,) = ask.told("update", *ACCEPT, "--to", "skills", code=1)["skills"]
    assert (left["state"], "is withheld" in left["reason"]) == ("refused", True)


def test_what_the_corpus_holds_no_more_stays(ask: Ask, tmp_path: Path, project: Path) -> None:
    ask.told("install", "bread", *ACCEPT, "--to", "skills")
    other = ("--to", "skills", "--root", str(tmp_path / "empty"))
    assert ask.told("outdated", *other)["skills"][0]["state"] == "gone"
    (left,) = ask.told("update", *other, code=1)["skills"]
    assert (left["state"], "no more" in left["reason"]) == ("gone", True)
    assert (project / "skills/bread/SKILL.md").read_bytes() == SECOND.encode()


def test_the_folder_of_the_one_agent_that_has_one_is_taken(ask: Ask, project: Path) -> None:
    bees = ("install", "local/market/bees")
    assert "none of claude, codex, cursor, gemini, copilot has one" in ask.refused(*bees)
    (project / ".cursor/skills").mkdir(parents=True)
    assert ask.told(*bees)["folder"] == str(project / ".cursor/skills")
    (project / ".claude/skills").mkdir(parents=True)
    assert "claude, cursor have one" in ask.refused(*bees)
    assert ask.told("outdated")["folder"] == str(project / ".cursor/skills")
    ask.told("remove", "local/market/bees")
    assert "'bees' is not installed" in ask.refused("remove", "bees", "--agent", "claude")
