"""The recipe's compose file: what it starts makes nights and answers, each command a process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.compose import NAMESPACES
from tests.support.paths import PROJECT
from tests.support.roots.hand_written import BREAD


@pytest.mark.slow
@pytest.mark.prefect
@pytest.mark.timeout(900)
def test_the_commands_of_the_compose_file_make_a_night_on_postgresql_and_s3_and_answer(
    tmp_path: Path,
) -> None:
    needed = ("unshare", "setpriv", "ip", "initdb", "postgres", "psql")
    if missing := [name for name in needed if shutil.which(name) is None]:
        pytest.skip(f"{', '.join(missing)} not there (Debian: util-linux, iproute2, postgresql)")
    alone = ["unshare", *NAMESPACES]
    if os.getuid() or subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no network of its own: only root may make one, and not in every container")
    (tmp_path / "shelf/bread").mkdir(parents=True)
    (tmp_path / "shelf/bread/SKILL.md").write_text(BREAD, "utf-8")
    command = [*alone, sys.executable, "-m", "tests.support.compose", str(tmp_path)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    logs = {file.stem: file.read_text("utf-8")[-1500:] for file in tmp_path.glob("*.log")}
    assert done.returncode == 0, (done.stderr[-3000:], logs)
    found = json.loads(done.stdout)
    assert [one["name"] for one in found["found"]] == ["bread"]
    assert found["without token"] == 401
    (run,) = [one for one in found["status"]["runs"] if one["flow"] == "nightly"]
    assert (run["state"], found["status"]["served"]) == ("complete", f"v-{run['run_id']}")
    assert found["runs in PostgreSQL"] >= 1
    lines = [json.loads(line) for line in found["log"] if line.startswith("{")]
    assert run["run_id"] in {line["run"] for line in lines}
