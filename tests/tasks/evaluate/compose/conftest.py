"""A served list of servers, asked by the methods that are measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks.evaluate.compose.methods import Asking
from tasks.evaluate.compose.requests import KnownRequest, read_requests
from tests.support.roots.kitchen_servers import REQUESTS, serve_kitchen
from tests.support.roots.skill_root import Export


@pytest.fixture(scope="session")
def asking(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> Asking:
    index = serve_kitchen(tmp_path_factory.mktemp("kitchen"), minilm_export).ask()
    return Asking(index)


@pytest.fixture
def requests(tmp_path: Path) -> list[KnownRequest]:
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in REQUESTS), "utf-8")
    return read_requests(path)
