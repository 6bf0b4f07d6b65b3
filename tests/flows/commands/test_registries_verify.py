"""Verifying installed skills: each tampering is found, offline, and what the locks say can be had again."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flows.commands.registries import publish_registry
from tasks.crawl.registries.discovery import digest_of, index_entry, index_json, pack
from tasks.retrieve.install.lock import LOCK_FILE
from tasks.retrieve.install.skills_lock import SKILLS_LOCK, folder_hash
from tests.support.command import Ask
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World
from tests.support.registry_client import files_in, hosted
from tests.support.roots.hand_written import skill
from tests.support.roots.skill_root import SkillRoot
from tests.support.roots.storied import KEY, RULE

HERE = ("--agent", "codex")
TEA = skill("tea", "Makes tea of loaf leaves in a pot", "# Tea\n\nWarm the pot, then let the leaves draw.\n")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storied: SkillRoot) -> Path:
    """Go to an empty project."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("SKILLERY_ROOT", storied.root.uri)
    monkeypatch.setenv("SKILLERY_REQUEST_DELAY", "0")
    return tmp_path / "project"


@pytest.fixture
def skills(project: Path, ask: Ask) -> Path:
    """Install two skills, one with files, and return their folder."""
    done = ask("install", "bread", "local/market/bees", "--accept-risk", RULE, *HERE)
    assert done.code == 0, done.stderr
    return project / ".agents/skills"


def verified(ask: Ask, code: int) -> set[tuple[str, str, str]]:
    told = ask.told("verify", *HERE, code=code)["skills"]
    return {(s["name"], one["change"], one["path"]) for s in told for one in s["differences"]}


def _edit(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text("utf-8").replace(old, new), "utf-8")


def _relink(folder: Path) -> None:
    folder.rename(folder.with_name("kept"))
    shutil.move(folder.with_name("kept"), folder.parents[3] / "kept")
    folder.symlink_to(folder.parents[3] / "kept")


def _lie(skills: Path) -> None:
    """Change a file, and its digest in the one lock."""
    (skills / "bees/SKILL.md").write_bytes(b"other\n")
    lock = json.loads((skills / LOCK_FILE).read_bytes())
    lock["skills"]["bees"]["files"] = {"SKILL.md": hashlib.sha256(b"other\n").hexdigest()}
    (skills / LOCK_FILE).write_text(json.dumps(lock), "utf-8")


def _unlock(skills: Path) -> None:
    (skills / LOCK_FILE).unlink()
    (skills.parents[1] / SKILLS_LOCK).unlink()


TAMPERING: dict[str, tuple[Callable[[Path], object], tuple[str, str, str]]] = {
    "edited": (lambda s: (s / "bees/SKILL.md").write_bytes(b"x"), ("bees", "edited", "SKILL.md")),
    "one byte": (lambda s: _edit(s / "bees/SKILL.md", "bees", "beeS"), ("bees", "edited", "SKILL.md")),
    "added": (lambda s: (s / "bees/run.sh").write_bytes(b"x"), ("bees", "added", "run.sh")),
    "missing": (lambda s: (s / "bread/notes.md").unlink(), ("bread", "missing", "notes.md")),
    "link": (
        lambda s: ((s / "bees/SKILL.md").unlink(), (s / "bees/SKILL.md").symlink_to("/etc/hostname")),
        ("bees", "edited", "SKILL.md"),
    ),
    "folder as link": (lambda s: _relink(s / "bees"), ("bees", "missing", "SKILL.md")),
    "folder gone": (lambda s: shutil.rmtree(s / "bees"), ("bees", "missing", "SKILL.md")),
    "executable": (lambda s: (s / "bees/SKILL.md").chmod(0o755), ("bees", "executable", "SKILL.md")),
    "compiled": (
        lambda s: ((s / "bees/__pycache__").mkdir(), (s / "bees/__pycache__/a.pyc").write_bytes(b"x")),
        ("bees", "added", "__pycache__/a.pyc"),
    ),
    "stranger": (lambda s: (s / "other").mkdir(), ("other", "unlisted", ".")),
    "renamed": (lambda s: (s / "bees").rename(s / "wasps"), ("wasps", "unlisted", ".")),
    "lock and file": (_lie, ("bees", "hash", SKILLS_LOCK)),
    "locks gone": (_unlock, ("bread", "unlisted", ".")),
}


def test_each_tampering_is_found(
    skills: Path, project: Path, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was installed verifies; after a tampering it differs where that was done."""
    assert verified(ask, 0) == set()
    for number, (tamper, (work, found)) in enumerate(TAMPERING.items()):
        copy = shutil.copytree(project, tmp_path / str(number) / "project")
        monkeypatch.chdir(copy)
        work(copy / skills.relative_to(project))
        assert found in verified(ask, 1), tamper


def test_nothing_to_verify_is_no_success(ask: Ask) -> None:
    """A project without skills and locks has nothing that could be right."""
    assert "nothing is installed" in ask.refused("verify", *HERE)


def test_what_the_locks_say_is_had_again_and_nothing_else(skills: Path, ask: Ask) -> None:
    """A skill that is gone comes back from the root; one that was edited stays, and is a failure."""
    before = files_in(skills)
    shutil.rmtree(skills / "bees")
    assert states(ask, 0) == {"bees": "installed", "bread": "unchanged"}
    assert files_in(skills) == before
    (skills / "bread/notes.md").write_text("mine\n", "utf-8")
    assert states(ask, 1) == {"bees": "unchanged", "bread": "failed"}
    assert (skills / "bread/notes.md").read_text("utf-8") == "mine\n"
    assert ask("remove", "bread", "bees", "--yes", *HERE).code == 0
    assert not (skills.parents[1] / SKILLS_LOCK).exists()
    assert ask("install", "--frozen", *HERE).code == 2  # no lock says anything any more


def states(ask: Ask, code: int) -> dict[str, str]:
    told = ask.told("install", "--frozen", *HERE, code=code)["skills"]
    return {skill["name"]: skill["state"] for skill in told}


@pytest.fixture
def registry(storied: SkillRoot, tmp_path: Path) -> Iterator[str]:
    """Host a registry of files, and give its address."""
    publish_registry(storied.root, str(tmp_path / "site"))
    with hosted(tmp_path / "site") as url:
        yield url


def test_a_skill_of_a_registry_is_installed_locked_and_had_again(
    registry: str, project: Path, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs no root; other clients read the lock, and theirs is read."""
    monkeypatch.setenv("SKILLERY_ROOT", str(tmp_path / "none"))
    done = ask("install", "bees", "--from", registry, *HERE)
    assert done.code == 0, done.stderr
    held = files_in(project / ".agents/skills/bees")
    assert held == files_in(tmp_path / "site/.well-known/skills/bees")
    lock = json.loads((project / SKILLS_LOCK).read_bytes())
    index = json.loads((tmp_path / "site/.well-known/agent-skills/index.json").read_bytes())
    digest = next(entry["digest"] for entry in index["skills"] if entry["name"] == "bees")
    assert lock["skills"]["bees"] == {
        "source": "127.0.0.1", "sourceUrl": registry, "sourceType": "well-known",
        "computedHash": folder_hash(held), "wellKnownDigest": digest,
    }  # fmt: skip
    assert verified(ask, 0) == set()
    shutil.rmtree(project / ".agents")
    assert states(ask, 0) == {"bees": "installed"}  # of skills-lock.json alone, as other clients write it
    assert files_in(project / ".agents/skills/bees") == held


def test_what_an_update_that_was_killed_left_out_of_the_lock_is_written_by_the_next(
    skills: Path, project: Path, ask: Ask
) -> None:
    whole = (project / SKILLS_LOCK).read_bytes()
    lock = json.loads(whole)
    lock["skills"]["bees"]["computedHash"] = "0" * 64
    (project / SKILLS_LOCK).write_text(json.dumps(lock), "utf-8")
    assert ask("update", "--dry-run", *HERE).code == 0
    assert json.loads((project / SKILLS_LOCK).read_bytes()) == lock
    done = ask("update", *HERE)
    assert done.code == 0, done.stderr
    assert (project / SKILLS_LOCK).read_bytes() == whole


@pytest.mark.parametrize("kind", ["git", "local", "folder of skills"])
def test_what_another_client_locked_is_had_out_of_its_repository_or_folder(
    project: Path, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Exactly these bytes: at the commit that is named, although the branch went on."""
    monkeypatch.setenv("SKILLERY_ROOT", str(tmp_path / "none"))
    source = tmp_path / "garden"
    (source / "skills/tea").mkdir(parents=True)
    (source / "skills/tea/SKILL.md").write_text(TEA, "utf-8")
    entry = {
        "source": "../garden", "sourceType": kind.replace("folder of skills", "local"),
        "skillPath": "skills/tea/SKILL.md",
        "computedHash": folder_hash({"SKILL.md": TEA.encode()}),
    }  # fmt: skip
    if kind == "git":
        git = ("git", "-C", str(source), "-c", "user.name=Ann", "-c", "user.email=ann@example.org")
        for command in (("init", "-q"), ("add", "."), ("commit", "-qm", "Tea")):
            subprocess.run([*git, *command], check=True)
        commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
        entry |= {"source": f"file://{source}", "sourceUrl": f"file://{source}", "ref": commit.stdout.strip()}
        (source / "skills/tea/SKILL.md").write_text(f"{TEA}Then milk.\n", "utf-8")
        subprocess.run([*git, "commit", "-qam", "Milk"], check=True)
    gone = entry | {"skillPath": "skills/gone/SKILL.md"}
    if kind == "folder of skills":  # which of them is known by its hash alone
        del entry["skillPath"]
    lock = {"version": 1, "skills": {"tea": entry, "gone": gone}}
    (project / SKILLS_LOCK).write_text(json.dumps(lock), "utf-8")
    done = ask("install", "--frozen", *HERE)
    assert done.code == 1, done.stderr
    assert "installed: tea" in done.stdout
    assert "holds no skill in skills/gone" in done.stdout
    assert files_in(project / ".agents/skills/tea") == {"SKILL.md": TEA.encode()}
    shutil.rmtree(project / ".agents")
    secret = entry | {"sourceType": "git", "sourceUrl": f"https://bot:{KEY}@127.0.0.1:1/a/b", "ref": "main"}
    lock["skills"] |= {"other": entry | {"sourceType": ["git"]}, "secret": secret}
    (project / SKILLS_LOCK).write_text(json.dumps(lock), "utf-8")
    done = ask("install", "--frozen", *HERE)
    assert (done.code, "installed: tea" in done.stdout) == (1, True)
    assert KEY not in done.stdout + done.stderr
    shutil.rmtree(project / ".agents")
    entry["computedHash"] = "0" * 64
    (project / SKILLS_LOCK).write_text(json.dumps(lock), "utf-8")
    of_many = kind == "folder of skills"
    why = "holds no skill in its first folder" if of_many else "gives other bytes than the lock"
    assert why in ask("install", "--frozen", *HERE).stdout
    assert not (project / ".agents/skills/tea").exists()


def test_what_another_client_locked_of_github_is_had_at_its_ref_or_not_at_all(
    project: Path, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a ref it may have gone on: then it is not what the lock names."""
    monkeypatch.setenv("SKILLERY_ROOT", str(tmp_path / "none"))
    world, entries = World(), dict[str, dict[str, str]]()
    repository = world.repository("ann/garden")
    for name, text in (("tea", TEA), ("milk", f"{TEA}Then milk.\n")):
        ref = repository.commit({"skills/tea/SKILL.md": text.encode()}).sha
        entries[name] = {
            "source": "ann/garden", "sourceType": "github", "ref": ref, "skillPath": "skills/tea/SKILL.md",
            "computedHash": folder_hash({"SKILL.md": text.encode()}),
        }  # fmt: skip
    moved = {key: value for key, value in entries["tea"].items() if key != "ref"}
    lock = {"version": 1, "skills": entries | {"moved": moved}}
    (project / SKILLS_LOCK).write_text(json.dumps(lock), "utf-8")
    with Marketplace(world) as market:
        for variable, url in market.environment().items():
            monkeypatch.setenv(variable, url)
        assert states(ask, 1) == {"tea": "installed", "milk": "installed", "moved": "failed"}
    assert (project / ".agents/skills/tea/SKILL.md").read_text("utf-8") == TEA


def test_a_registry_that_lies_is_not_believed(registry: str, project: Path, ask: Ask, tmp_path: Path) -> None:
    """An archive with another digest than the index states is refused, by name; so is what is not listed."""
    for archive in (tmp_path / "site").rglob("*.zip"):
        archive.write_bytes(archive.read_bytes() + b"x")
    for name, said in (("bees", "digest"), ("wasps", "names no such skill")):
        assert said in ask.refused("install", name, "--from", registry, *HERE)
    assert list(project.iterdir()) == []


def test_what_is_nested_in_an_artifact_takes_no_other_skill_s_place(ask: Ask, tmp_path: Path) -> None:
    """A name of the index is that entry's root skill alone, whatever lies deeper in any archive."""
    aa, bb = (
        f"---\nname: {n}\ndescription: Reads {n} tables\n---\n# {n}\n\nRead it.\n".encode()
        for n in ("aa", "bb")
    )
    nested = {"skills/aa/SKILL.md": aa + b"other\n", "bb/SKILL.md": bb + b"other\n"}
    archives = {"aa": pack({"SKILL.md": aa, **nested}), "bb": pack({"SKILL.md": bb})}
    place = tmp_path / "lies/.well-known/agent-skills"
    place.mkdir(parents=True)
    for name, archive in archives.items():
        (place / f"{name}.zip").write_bytes(archive)
    entries = [index_entry(n, n, f"{n}.zip", digest_of(a), {}) for n, a in reversed(archives.items())]
    (place / "index.json").write_bytes(index_json(entries))
    with hosted(tmp_path / "lies") as url:
        assert ask("install", "aa", "bb", "--from", url, *HERE).code == 0
    assert [Path(f".agents/skills/{name}/SKILL.md").read_bytes() for name in archives] == [aa, bb]


@pytest.mark.parametrize(
    "lock",
    [{"version": 1, "skills": {n: {}}} for n in ("../out", "/out", ".git", "a/b")]
    + [{"version": 1, "skills": {"tea": 7}}, {"version": 2, "skills": {}}, {"version": 1}, []],
)
def test_a_shared_lock_that_leads_elsewhere_or_is_of_another_form_is_refused(
    lock: object, project: Path, ask: Ask
) -> None:
    (project / SKILLS_LOCK).write_text(json.dumps(lock), "utf-8")
    for command in ("verify", "install --frozen"):
        done = ask(*command.split(), *HERE)
        assert (done.code, SKILLS_LOCK in done.stderr, done.stderr.count("\n")) == (1, True, 1), done.stderr
    assert [path.name for path in project.iterdir()] == [SKILLS_LOCK]


def test_the_hash_of_the_shared_lock_is_that_of_other_clients() -> None:
    """Paths are ordered as JavaScript compares texts: by letters first, then accents, then letter case."""
    files = {
        "SKILL.md": b"A\n", "scripts/a.py": b"b\n", "references/B.md": b"c\n", "references/a-1.md": b"d\n",
        "references/a_1.md": b"e\n", "É.md": b"f\n",
    }  # fmt: skip
    assert folder_hash(files) == "5400bbcad8b4861696d91d8fd5f393eb93fb1be23007adb8468d8115e062df84"
