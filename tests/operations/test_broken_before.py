"""What broke under attack, in a new user's hands and under audit, tried again by one command.

It is `pytest -m slow tests/operations/test_broken_before.py`, and runs the faults' tests by their numbers.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.paths import PROJECT

REPRODUCTIONS = {
    "1 missing files": ["tests/tasks/retrieve/versions/test_doctor_missing.py"],
    "2 torn tags, flipped bits": [
        "tests/tasks/retrieve/versions/test_file_digests.py",
        "tests/tasks/retrieve/versions/test_doctor.py",
    ],
    "3 state files": ["tests/tasks/retrieve/versions/test_doctor.py", "tests/storage/test_state.py"],
    "4 a server left behind": ["tests/flows/server/test_server.py"],
    "5 values that no file holds": ["tests/tasks/crawl/test_ingestion.py"],
    "6 unbounded work": [
        "tests/tasks/parse/edges/test_rules.py",
        "tests/tasks/refine/test_document.py",
        "tests/tasks/retrieve/test_served_index_deadline.py",
        "tests/tasks/crawl/git",
        "tests/tasks/crawl/source",
    ],
    "7 names, quotas, rights": [
        "tests/flows/commands/test_console.py",
        "tests/tasks/models/test_visible.py",
        "tests/tasks/crawl/http",
        "tests/tasks/refine/export",
        "tests/storage/test_root.py",
    ],
    "8 forgetting unasked": ["tests/flows/commands/test_operate.py"],
    "9 Ctrl-C": ["tests/operations/test_ctrl_c.py"],
    "10 up": ["tests/flows/server/test_server.py"],
    "11 to 14 the command": ["tests/flows/cli", "tests/flows/commands/test_queries.py"],
    "15 Prefect's pages": ["tests/flows/test_run_page.py"],
    "16 the report and the graph": [
        "tests/tasks/evaluate/health",
        "tests/flows/commands/test_corpus_graph.py",
    ],
    "17, 18 figures": ["tests/tasks/evaluate/paging", "tests/tasks/retrieve/baselines"],
    "19 edges by a model": ["tests/tasks/parse/edges/test_linker.py", "tests/flows/test_nightly_models.py"],
    "20 retries": ["tests/flows/test_runners.py"],
}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", REPRODUCTIONS)
def test_what_was_broken_before_holds(number: str) -> None:
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-m", "slow or not slow"]

    done = subprocess.run(
        [*command, *REPRODUCTIONS[number]], cwd=PROJECT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout[-3000:]
