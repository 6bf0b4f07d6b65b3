"""A root that several files ask."""

from __future__ import annotations

import json

import pytest

from tests.support.roots.kitchen_servers import REQUESTS, serve_kitchen
from tests.support.roots.skill_root import Export


@pytest.fixture(scope="session")
def kitchen(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> tuple[str, str]:
    """A root that serves servers in sections, and requests for several of them, as paths."""
    folder = tmp_path_factory.mktemp("kitchen")
    root = serve_kitchen(folder, minilm_export).root.folder
    queries = folder / "requests.jsonl"
    queries.write_text("".join(json.dumps(row) + "\n" for row in REQUESTS), "utf-8")
    return str(root), str(queries)
