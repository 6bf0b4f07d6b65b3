"""A bench whose growing is killed, and begun again, ends as one that never was."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from storage.root import Root
from tasks.evaluate.generate.requests import read_requests
from tests.support.llm.bench_process import grow_all
from tests.support.llm.llm_server import Asked, LlmServer
from tests.support.llm.scripted import writes_five
from tests.support.paths import PROJECT

SKILLS, AT_ONCE = 24, 3


def fault(asked: Asked) -> str | None:
    """Answer some skills wrongly at first, and fail some requests once."""
    kind = int(asked.key[:8], 16) % 6
    return (
        "500" if asked.before == 0 and kind == 0 else "no-json" if kind == 1 and not asked.corrected else None
    )


@pytest.mark.slow
def test_a_killed_growing_goes_on_and_no_request_is_answered_twice(tmp_path: Path) -> None:
    def places(name: str) -> tuple[str, str]:
        return str(tmp_path / name / "root"), str(tmp_path / name / "bench")

    with LlmServer(fault, say=writes_five) as server:
        grow_all(*places("whole"), server.url, SKILLS)
        undisturbed = server.requests

    with LlmServer(fault, say=writes_five, delay=0.02) as server:
        command = [
            sys.executable,
            "-m",
            "tests.support.llm.bench_process",
            *places("killed"),
            server.url,
            str(SKILLS),
        ]
        process = subprocess.Popen(command, cwd=PROJECT)
        while server.requests < undisturbed // 2 and process.poll() is None:
            time.sleep(0.002)
        struck = process.poll() is None
        process.kill()
        process.wait()
        there = len(Root(places("killed")[1]).files("queries", ".json"))
        grow_all(*places("killed"), server.url, SKILLS)
        disturbed = server.requests

    assert struck
    assert 0 < there < SKILLS
    whole, again = (read_requests(Root(places(name)[1])) for name in ("whole", "killed"))
    assert again == whole
    assert len(whole) == SKILLS
    assert undisturbed <= disturbed <= undisturbed + AT_ONCE
