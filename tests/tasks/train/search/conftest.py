from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from tasks.models.encoder import OnnxEncoder
from tasks.train.search.requests import NEAR, Requests, read_requests
from tests.support.models.routing_material import SKILLS
from tests.support.roots.hand_written import skill

_ASKED = {
    "sourdough": "the loaf is flat", "bees": "mites in the hive", "tyre": "my bicycle lost its air",
    "roses": "when do I cut the bush", "knife": "the blade is blunt", "candles": "what to do with old wax",
}  # fmt: skip
ID = "owner-of-{0}--{0}"  # each skill has an owner


@pytest.fixture(scope="session")
def request_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a file of requests, and one of skills."""
    folder = tmp_path_factory.mktemp("requests")
    texts = [(ID.format(s.doc_id.replace("/", "-")), s.name, s.description, s.body) for s in SKILLS]
    corpus = pl.DataFrame(
        [(doc_id, skill(name, told, body)) for doc_id, name, told, body in texts],
        schema=["id", "content"], orient="row",
    )  # fmt: skip
    corpus.write_parquet(folder / "skills.parquet")
    lines = [
        {"kind": kind, "text": f"{text}, {kind}", "doc_id": ID.format(f"home-{name}"), "alone": "one"}
        for name, text in _ASKED.items()
        for kind in ("short", NEAR)
    ]
    lines.append({"kind": "short", "text": "patch a tyre", "doc_id": ID.format("copy-tyre"), "alone": "many"})
    lines.append({"kind": "short", "text": "of another corpus", "doc_id": "gone--gone", "alone": "one"})
    (folder / "requests.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "requests.jsonl", folder / "skills.parquet"


@pytest.fixture(scope="session")
def held(request_files: tuple[Path, Path], minilm: OnnxEncoder) -> Requests:
    return read_requests(*request_files, minilm)[0]
