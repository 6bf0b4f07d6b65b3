from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from unittest.mock import Mock

import pytest

from storage.errors import NotPublished, StorageError
from storage.lance.served import Served, published_versions, write_served
from storage.lance.tables import NODES, SKILLS
from storage.lance.versions import tag, tagged
from tasks.retrieve.index.build import Built
from tasks.retrieve.versions import publish
from tasks.retrieve.versions.publish import roll_back
from tasks.retrieve.versions.retention import clean_tables, retain_versions
from tests.support.roots.hand_written import BEES, BREAD, skill
from tests.support.roots.hand_written import SKILLS as TEXTS
from tests.support.roots.skill_root import SkillRoot
from tests.support.roots.tables import in_step
from tests.support.roots.vendor import connect, open_at

Make = Callable[[dict[str, str]], SkillRoot]


def nights(root: SkillRoot, count: int) -> list[Served]:
    """Publish on so many nights, each with another number of minutes in it; return what was served."""
    found = []
    for night in range(count):
        root.write("bread", BREAD.replace("for ten minutes", f"for {night + 11} minutes"))
        root.publish()
        found.append(root.served())
    return found


def tags(root: SkillRoot, table: str) -> set[str]:
    return set(connect(root.root).open_table(table).tags.list())


def page_of(root: SkillRoot) -> str:
    asked = root.ask().page("local/market/bread", "how long to knead the dough", budget=1, method="facets")
    return str(asked["context"])


def test_what_is_served_stays_however_old_it_is(skill_root: Make) -> None:
    root = skill_root({"bread": BREAD})
    published = nights(root, 4)
    roll_back(root.root, published[0].version)
    gone = retain_versions(root.root, 1, now=root.now + timedelta(days=2))
    assert gone == [v.version for v in (published[2], published[1])]
    assert "11 minutes" in page_of(root)


def test_what_was_published_within_a_day_stays_for_readers_that_hold_it(skill_root: Make) -> None:
    root = skill_root({"bread": BREAD})
    published = nights(root, 3)
    gone = retain_versions(root.root, 1, now=published[1].published_at + timedelta(hours=23))
    assert gone == [published[0].version]
    gone = retain_versions(root.root, 1, now=published[1].published_at + timedelta(hours=25))
    assert gone == [published[1].version]


@pytest.mark.slow
def test_files_of_a_few_old_versions_wait_for_compaction_and_no_row_is_written_again(
    skill_root: Make,
) -> None:
    root, margin = skill_root({"bread": BREAD, "bees": BEES}), timedelta(seconds=0.4)
    nights(root, 3)
    time.sleep(2 * margin.total_seconds())
    nights(root, 2)
    tables = [connect(root.root).open_table(name) for name in (SKILLS, NODES)]
    before = [table.list_versions() for table in tables]
    assert len(retain_versions(root.root, 2, now=root.now + timedelta(days=2))) == 3
    assert [table.list_versions() for table in tables] == before
    clean_tables(root.root, margin)
    for table, versions in zip(tables, before, strict=True):
        assert len(table.list_versions()) < len(versions)


def test_fewer_versions_than_may_stay_are_left_alone(skill_root: Make) -> None:
    root = skill_root({"bread": BREAD})
    nights(root, 2)
    before = open_at(connect(root.root), SKILLS, root.served().skills).list_versions()
    assert retain_versions(root.root, 7, now=root.now + timedelta(days=9)) == []
    assert open_at(connect(root.root), SKILLS, root.served().skills).list_versions() == before


def test_a_prune_that_was_killed_is_finished_by_the_next(skill_root: Make) -> None:
    root = skill_root({"bread": BREAD})
    published = nights(root, 3)
    connect(root.root).open_table(SKILLS).tags.delete(published[0].version)
    gone = retain_versions(root.root, 2, now=root.now + timedelta(days=2))
    assert gone == [published[0].version]
    assert published[0].version not in tags(root, NODES)


def test_a_published_version_that_its_table_lacks_is_told_and_nothing_goes(skill_root: Make) -> None:
    root = skill_root({"bread": BREAD})
    nights(root, 3)
    record = f"state/published/{root.served().version}.json"
    root.root.write_json(record, {**(root.root.read_json(record) or {}), "skills": 999})
    with pytest.raises(StorageError, match="lacks version 999"):
        retain_versions(root.root, 1, now=root.now + timedelta(days=2))
    assert len(published_versions(root.root)) == 3


def test_without_a_publication_nothing_is_retained(skill_root: Make) -> None:
    root = skill_root({"bread": BREAD})
    with pytest.raises(NotPublished):
        retain_versions(root.root, 1, now=root.now)


def other_bread_and_back(root: SkillRoot, *, between: Callable[[], object]) -> Built:
    """Publish other bread, which `between` undoes one way or another, then the bread of before."""
    root.write("bread", skill("bread", "Bakes", "Buy a loaf."))
    between()
    root.write("bread", BREAD)
    return root.publish()


@pytest.fixture
def left_for_later(skill_root: Make) -> SkillRoot:
    """Serves skills, bees changed, whose nodes were left for later; before that it served nodes."""
    root = skill_root(TEXTS)
    root.publish()
    root.write("bees", skill("bees", "Keeps bees", "Open the hive in May."))
    root.publish(nodes=False)
    return root


@pytest.mark.slow
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


@pytest.mark.slow
def test_nodes_of_a_version_that_was_gone_back_from_are_not_gone_on_from(left_for_later: SkillRoot) -> None:
    before = left_for_later.served().version

    def published_and_rolled_back() -> None:
        left_for_later.publish()
        roll_back(left_for_later.root, before)

    built = other_bread_and_back(left_for_later, between=published_and_rolled_back)
    assert in_step(left_for_later, built)


@pytest.mark.parametrize("base", [None, 999])
def test_nodes_left_for_later_by_a_version_that_does_not_say_of_which_or_of_one_gone_are_made_anew(
    left_for_later: SkillRoot, base: int | None
) -> None:
    write_served(left_for_later.root, replace(left_for_later.served(), nodes_base=base))
    assert in_step(left_for_later, left_for_later.publish())


@pytest.mark.slow
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
    root = skill_root(TEXTS)
    root.publish()
    served = root.served()
    for name, version in ((SKILLS, served.skills), (NODES, served.nodes or 0)):
        tag(root.root, name, "v-killed", version)
    root.publish()
    assert [set(tagged(root.root, name)) for name in (SKILLS, NODES)] == [{served.version}] * 2
