"""A typing that is killed at random, and begun again each time, ends as one that never was."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.llm.llm_process import type_all
from tests.support.llm.llm_server import Asked, LlmServer
from tests.support.paths import PROJECT

AT_ONCE = 3


def fault(asked: Asked) -> str | None:
    """Fail some batches once on the way, and answer some wrongly each time."""
    kind = int(asked.key[:8], 16) % 8
    if asked.before == 0 and kind == 0:
        return "500"
    return {1: "short", 2: "no-json", 3: "prose"}.get(kind)


def start(root: Path, server: LlmServer, size: tuple[int, int]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.support.llm.llm_process", str(root), server.url, *map(str, size)]
    return subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE)


def finish(root: Path, server: LlmServer, size: tuple[int, int]) -> dict[str, Any]:
    process = start(root, server, size)
    printed = process.communicate()[0]
    assert process.returncode == 0
    return dict(json.loads(printed))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kills", "size"),
    [(3, (5, 40)), pytest.param(10, (20, 50), marks=[pytest.mark.slow, pytest.mark.timeout(600)])],
)
def test_a_typing_killed_at_random_ends_as_an_undisturbed_one(
    kills: int, size: tuple[int, int], tmp_path: Path
) -> None:
    with LlmServer(fault) as server:
        whole = type_all(tmp_path / "whole", server.url, *size)
        undisturbed = server.requests
    chance = random.Random(5)  # noqa: S311 - no secret
    with LlmServer(fault, delay=0.02) as server:
        struck = 0
        for stop in sorted(chance.sample(range(1, undisturbed), kills)):
            process = start(tmp_path / "killed", server, size)
            while server.requests < stop + struck * AT_ONCE and process.poll() is None:
                time.sleep(0.002)
            struck += process.poll() is None
            process.kill()
            process.communicate()
        again = finish(tmp_path / "killed", server, size)
        disturbed = server.requests
    assert struck >= kills - 1
    assert again["rows"] == json.loads(json.dumps(whole["rows"]))
    assert undisturbed <= disturbed <= undisturbed + struck * AT_ONCE
    assert 0 < again["report"]["requests"] < undisturbed
