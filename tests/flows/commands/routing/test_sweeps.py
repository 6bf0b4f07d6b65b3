"""Every sweep of the papers is measured once, by tiny models that a cache holds under the papers' names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flows.commands.routing.settings import SWEEPS
from tests.support.command import skillery
from tests.support.llm.llm_asking import settings_of
from tests.support.llm.llm_server import LlmServer
from tests.support.llm.routing_llm import say
from tests.support.models.routing_answers import Set
from tests.support.models.routing_material import Written
from tests.support.models.tiny_models import save_bi_encoder, save_cross_encoder, save_qwen3

MODELS = {
    "sentence": ["BAAI/bge-base-en-v1.5", "BAAI/bge-m3"],
    "cross": ["cross-encoder/ms-marco-MiniLM-L-6-v2", "BAAI/bge-reranker-v2-m3"],
    "qwen3": [
        "pipizhao/SkillRouter-Embedding-0.6B", "pipizhao/SkillRouter-Reranker-0.6B",
        "Qwen/Qwen3-Reranker-0.6B",
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def hub_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache in which stand-ins lie as if they had been fetched from the hub."""
    folder = tmp_path_factory.mktemp("cache")
    made = {"sentence": save_bi_encoder, "cross": save_cross_encoder, "qwen3": save_qwen3}
    for kind, names in MODELS.items():
        model = made[kind](folder / kind)
        for name in names:
            kept = folder / "hub" / f"models--{name.replace('/', '--')}"
            (kept / "refs").mkdir(parents=True)
            (kept / "refs" / "main").write_text("0123456789" * 4, "utf-8")
            shutil.copytree(model, kept / "snapshots" / ("0123456789" * 4))
    return folder / "hub"


@pytest.mark.slow
@pytest.mark.parametrize("sweep", sorted(SWEEPS))
def test_a_sweep_is_written_beside_its_paper(
    root: str, bench: Written, hub_cache: Path, environment: Set, tmp_path: Path, sweep: str
) -> None:
    report = tmp_path / "report"
    environment({"HF_HUB_CACHE": str(hub_cache), "HF_HUB_OFFLINE": "1"})
    command = ["evaluate", "routing", *bench.options(), "--root", root, "--sweep", sweep]
    with LlmServer(say=say) as server:
        done = skillery(*command, "--attention", "--report", str(report), **settings_of(server))
    assert done.returncode == 0, done.stderr
    written = (report / "routing.md").read_text("utf-8")
    for name in SWEEPS[sweep]:
        assert f"| {name} |" in written
    assert ("## Beside the papers" in written) == (sweep != "skillflow-number-of-queries")
    assert "Cohen's h" in written
    assert "# Where the reranker looks" in written
