"""Forgetting by the command: nothing goes unasked."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Callable

import pytest

from storage.state import documents_table
from tests.support.command import MAIN, Ask
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import SkillRoot

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

    shown = ask("forget", BREAD, "--dry-run", "--root", root.root.uri)
    found = json.loads(ask("forget", BREAD, "--dry-run", "--json", "--root", root.root.uri).stdout)

    assert (found["doc_ids"], found["copies"]) in (([BREAD], [LOAF]), ([BREAD, LOAF], []))
    assert f"  {BREAD}\n" in shown.stdout
    assert LOAF in shown.stdout
    assert held(root) == before


def test_without_a_terminal_it_needs_yes(ask: Ask, root: SkillRoot) -> None:
    before = held(root)

    refused = ask("forget", BREAD, "--root", root.root.uri)

    assert refused.code == 2
    assert "2 documents would be gone for good: give --yes, or --dry-run" in refused.stderr
    assert held(root) == before
    assert ask("forget", BREAD, "--yes", "--root", root.root.uri).code in (0, None)
    assert BREAD not in held(root)


@pytest.mark.parametrize(("answer", "code"), [("n", 2), ("y", 0)])
def test_on_a_terminal_it_lists_and_asks(root: SkillRoot, answer: str, code: int) -> None:
    ours, its = pty.openpty()
    command = [*MAIN, "forget", BREAD, "--root", root.root.uri]
    with subprocess.Popen(
        command, stdin=its, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        os.write(ours, f"{answer}\n".encode())
        out, asked = run.communicate(timeout=60)

    assert run.returncode == code
    assert f"  {BREAD}" in asked
    assert "Remove them everywhere?" in asked
    assert (BREAD in held(root)) == (answer == "n")
    assert ("nothing was removed" in asked) == (answer == "n")
    assert ("forgotten, the document" in out) == (answer == "y")
