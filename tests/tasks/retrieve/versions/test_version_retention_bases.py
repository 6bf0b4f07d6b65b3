"""Which nodes a build goes on from where those of the version served were left for later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from unittest.mock import Mock

import pytest

from storage.lance.served import write_served
from storage.lance.tables import NODES
from storage.lance.tables import SKILLS as SKILLS_TABLE
from storage.lance.versions import tag, tagged
from tasks.retrieve.index.build import Built
from tasks.retrieve.versions import publish
from tasks.retrieve.versions.publish import roll_back
from tasks.retrieve.versions.retention import clean_tables, retain_versions
from tests.support.roots.hand_written import BREAD, SKILLS, skill
from tests.support.roots.skill_root import SkillRoot
from tests.support.roots.tables import in_step
from tests.support.roots.vendor import connect

Make = Callable[[dict[str, str]], SkillRoot]


def other_bread_and_back(root: SkillRoot, *, between: Callable[[], object]) -> Built:
    """Publish other bread, which `between` undoes one way or another, then the bread of before."""
    root.write("bread", skill("bread", "Bakes", "Buy a loaf."))
    between()
    root.write("bread", BREAD)
    return root.publish()


@pytest.fixture
def left_for_later(skill_root: Make) -> SkillRoot:
    """Serves skills, bees changed, whose nodes were left for later; before that it served nodes."""
    root = skill_root(SKILLS)
    root.publish()
    root.write("bees", skill("bees", "Keeps bees", "Open the hive in May."))
    root.publish(nodes=False)
    return root


def test_nodes_of_a_publication_that_was_killed_are_not_gone_on_from(
    left_for_later: SkillRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed_after_its_tags() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(publish, "prepare_routing", Mock(side_effect=KeyboardInterrupt))
            left_for_later.crawl()
            left_for_later.parse()
            with pytest.raises(KeyboardInterrupt):
                left_for_later.index()

    built = other_bread_and_back(left_for_later, between=killed_after_its_tags)

    assert in_step(left_for_later, built)
    left_for_later.ask().page("local/market/bread", "when to bake", budget=1, method="facets")


def test_nodes_of_a_version_that_was_gone_back_from_are_not_gone_on_from(left_for_later: SkillRoot) -> None:
    before = left_for_later.served().version

    def published_and_rolled_back() -> None:
        left_for_later.publish()
        roll_back(left_for_later.root, before)

    built = other_bread_and_back(left_for_later, between=published_and_rolled_back)

    assert in_step(left_for_later, built)


def test_nodes_left_for_later_by_a_version_that_does_not_say_of_which_are_made_anew(
    left_for_later: SkillRoot,
) -> None:
    write_served(left_for_later.root, replace(left_for_later.served(), nodes_base=None))

    assert in_step(left_for_later, left_for_later.publish())


def test_nodes_left_for_later_whose_version_is_gone_are_made_anew(left_for_later: SkillRoot) -> None:
    write_served(left_for_later.root, replace(left_for_later.served(), nodes_base=999))

    assert in_step(left_for_later, left_for_later.publish())


def test_retention_keeps_the_nodes_that_were_left_for_later(left_for_later: SkillRoot) -> None:
    base = left_for_later.served().nodes_base
    for day in range(3):
        left_for_later.write("bees", skill("bees", "Keeps bees", f"Open the hive on day {day}."))
        left_for_later.publish(nodes=False)
    retain_versions(left_for_later.root, 1, now=left_for_later.now + timedelta(days=9))
    clean_tables(left_for_later.root, timedelta())
    assert left_for_later.served().nodes_base == base
    left_for_later.crawl()
    left_for_later.parse()
    left_for_later.encoder.encoded.clear()

    built = left_for_later.build()

    assert not any("dough" in text for text in left_for_later.encoder.encoded)
    assert in_step(left_for_later, built)


def test_the_next_build_takes_off_the_tag_of_a_publication_that_was_killed(skill_root: Make) -> None:
    root = skill_root(SKILLS)
    root.publish()
    db, served = connect(root.root), root.served()
    for name, version in ((SKILLS_TABLE, served.skills), (NODES, served.nodes or 0)):
        tag(db, name, "v-killed", version)

    root.publish()

    assert [set(tagged(db, name)) for name in (SKILLS_TABLE, NODES)] == [{served.version}] * 2
