"""Commands killed at random moments: no process stays, what is served answers, no row is lost or doubled."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from storage.root import Root
from storage.state import documents_table, nodes_table, parsed_table
from tasks.retrieve.versions.doctor import examine
from tests.support.command import MAIN, skillery
from tests.support.processes import marked, marked_environment
from tests.support.roots.many_skills import many_skills
from tests.support.roots.skill_root import Export

_COUNT, _SKILLS = 60, 40


def killed(arguments: list[str], after: float) -> tuple[int, float]:
    """Start a command and kill it; return its code, and how many seconds the last of its processes stayed."""
    mark = f"killed-{time.monotonic_ns()}"
    with subprocess.Popen(
        [*MAIN, *arguments], env=marked_environment(mark), start_new_session=True, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as running:  # fmt: skip
        time.sleep(after)
        running.kill()
        code = running.wait()
    ended = time.monotonic()
    while marked(mark) and time.monotonic() - ended < 30:
        time.sleep(0.05)
    assert marked(mark) == []
    return code, time.monotonic() - ended


@pytest.mark.slow
@pytest.mark.prefect
@pytest.mark.timeout(3600)
def test_sixty_kills_of_commands_leave_no_process_and_lose_no_row(
    tmp_path: Path, minilm_export: Export
) -> None:
    root, market, draw = tmp_path / "root", tmp_path / "market", random.Random(60)  # noqa: S311
    (root / "models").mkdir(parents=True)
    (root / "models" / minilm_export.folder.name).symlink_to(minilm_export.folder)
    texts = many_skills(_SKILLS)
    for name, text in texts.items():
        (market / name).mkdir(parents=True)
        (market / name / "SKILL.md").write_text(text, "utf-8")
    night = ["run", "--root", str(root), "--source", f"dir:{market}"]
    assert skillery(*night).returncode == 0
    struck, longest, forgotten = 0, 0.0, 0

    for k in range(_COUNT):
        changed = market / draw.choice(sorted(texts)) / "SKILL.md"
        if changed.exists():
            changed.write_text(f"{changed.read_text('utf-8')}\n- Knob {k} is new.\n", "utf-8")
        victim = f"local/market/{sorted(texts)[k // 5]}"
        arguments, seconds = [
            (night, 12.0),
            (["rollback", "--root", str(root)], 3.0),
            (["compact", "--root", str(root)], 8.0),
            (night, 12.0),
            (["forget", victim, "--yes", "--root", str(root)], 6.0),
        ][k % 5]
        code, stayed = killed(arguments, draw.uniform(0.3, seconds))
        struck, longest = struck + (code == -signal.SIGKILL), max(longest, stayed)
        answer = skillery("search", "knob", "--root", str(root), "--json")
        assert answer.returncode == 0, (k, arguments, answer.stderr)
        assert json.loads(answer.stdout)["results"], (k, arguments)

    for k in range(4, _COUNT, 5):  # what was to be forgotten is, however often it was killed
        skillery("forget", f"local/market/{sorted(texts)[k // 5]}", "--yes", "--root", str(root))
        forgotten += 1
    assert skillery(*night).returncode == 0
    documents = documents_table(Root(root)).read()
    assert documents.height == documents["doc_id"].n_unique() == _SKILLS - forgotten
    nodes = nodes_table(Root(root)).read()
    assert nodes.height == nodes["node_id"].n_unique() == parsed_table(Root(root)).read()["n_nodes"].sum()
    assert examine(Root(root)) == []
    print(f"{struck} of {_COUNT} were killed at work; processes stayed {longest:.1f} s at most")  # noqa: T201
