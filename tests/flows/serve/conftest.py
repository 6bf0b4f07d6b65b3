"""One server for the tests of a file that only ask it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.induce.learning import learned_root
from tests.support.roots.hand_written import BEES, BREAD
from tests.support.roots.skill_root import Export, SkillRoot
from tests.support.roots.storied import LOGO
from tests.support.serving import Serving, serving


@pytest.fixture(scope="session")
def server(storied: SkillRoot) -> Iterator[Serving]:
    with serving(storied.root.uri, SKILLERY_SERVE_METHODS='["bm25-full"]') as started:
        yield started


@pytest.fixture(scope="session")
def taught(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> SkillRoot:
    """A root that serves two skills, and what runs in a greenhouse and a harbour taught; only asked."""
    folder = tmp_path_factory.mktemp("taught")
    return learned_root(SkillRoot.below(folder, minilm_export, {"bread": BREAD, "bees": BEES}), folder)


@pytest.fixture(scope="session")
def served_with_logo(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> Iterator[Serving]:
    """A server of a skill with a file that is no text."""
    root = SkillRoot.below(tmp_path_factory.mktemp("logo"), minilm_export, {"bread": BREAD})
    root.write_file("bread", "logo.png", LOGO)
    root.publish()
    with serving(root.root.uri) as started:
        yield started
