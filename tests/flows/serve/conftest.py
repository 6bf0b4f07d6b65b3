"""Servers of one root for all tests that only ask."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.induce.learning import learned_root
from tests.support.roots.hand_written import BEES, BREAD
from tests.support.roots.skill_root import Export, SkillRoot
from tests.support.serving import Here, Serving, serving, serving_here


@pytest.fixture(scope="session")
def server(storied: SkillRoot) -> Iterator[Here]:
    """A server with another method, which refuses no risk."""
    methods = {"SKILLERY_SERVE_METHODS": '["bm25-full"]', "SKILLERY_INSTALL_REFUSE": ""}
    with serving_here(storied.root.uri, **methods) as started:
        yield started


@pytest.fixture(scope="session")
def limited(storied: SkillRoot) -> Iterator[Serving]:
    """A server that a proxy shows as another, with limits that a test reaches: of bytes, of a client's
    connections, and of waiting.
    """
    limits = {"BODY_BYTES": "100000", "CLIENT_CONNECTIONS": "40", "READ_SECONDS": "0.5"}
    settings = {f"SKILLERY_SERVE_{name}": value for name, value in limits.items()}
    public = ("--public-url", "https://skills.example.org/hub/")
    with serving(storied.root.uri, *public, **settings) as started:
        yield started


@pytest.fixture(scope="session")
def taught(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> SkillRoot:
    """A root that serves two skills, and what runs in a greenhouse and a harbour taught; only asked."""
    folder = tmp_path_factory.mktemp("taught")
    return learned_root(SkillRoot.below(folder, minilm_export, {"bread": BREAD, "bees": BEES}), folder)
