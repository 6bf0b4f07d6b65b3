from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.errors import NotPublished, StorageError, WrongInput
from storage.lance.served import published_versions, read_served
from storage.lance.tables import SKILLS as TABLE
from tasks.retrieve.versions.forget import forget
from tasks.retrieve.versions.publish import roll_back
from tests.support.roots.hand_written import BEES, BIKE, BREAD, skill
from tests.support.roots.skill_root import SkillRoot
from tests.support.roots.vendor import connect

Make = Callable[[dict[str, str]], SkillRoot]
KILN = skill("kiln", "Fires clay pots in a kiln", "# Kiln\n\nLet the pots dry for a week before firing.\n")


def names(root: SkillRoot) -> set[str]:
    return {str(r["name"]) for r in root.ask().search("what can be done at home", 10)["results"]}


def page_of(root: SkillRoot) -> str:
    asked = root.ask().page("local/market/bread", "how long to knead the dough", budget=1, method="facets")
    return str(asked["context"])


@pytest.fixture
def two_nights(skill_root: Make) -> SkillRoot:
    """Bread and bees on the first night, the bike beside them on the second."""
    root = skill_root({"bread": BREAD, "bees": BEES})
    root.publish()
    root.write("bike", BIKE)
    root.publish()
    return root


def test_going_back_serves_what_was_served_before(two_nights: SkillRoot) -> None:
    last = two_nights.served()
    was, now = roll_back(two_nights.root)
    assert was == last
    assert read_served(two_nights.root) == now
    assert now.published_at < was.published_at
    assert names(two_nights) == {"bread", "bees"}


def test_going_forward_again_takes_the_name_of_the_later_version(two_nights: SkillRoot) -> None:
    last = two_nights.served()
    roll_back(two_nights.root)
    roll_back(two_nights.root, last.version)
    assert two_nights.served() == last
    assert names(two_nights) == {"bread", "bees", "bike"}


def test_a_page_of_the_earlier_version_shows_the_earlier_text(skill_root: Make) -> None:
    root = skill_root({"bread": BREAD})
    root.publish()
    root.write("bread", BREAD.replace("Knead the dough for ten minutes", "Knead the dough for an hour"))
    root.publish()
    assert "an hour" in page_of(root)
    roll_back(root.root)
    assert "ten minutes" in page_of(root)


def test_the_night_after_a_rollback_publishes_what_the_corpus_holds(two_nights: SkillRoot) -> None:
    roll_back(two_nights.root)
    two_nights.write("kiln", KILN)
    two_nights.publish()
    assert names(two_nights) == {"bread", "bees", "bike", "kiln"}
    assert len(published_versions(two_nights.root)) == 3


def test_a_version_that_is_not_kept_is_refused_with_those_that_are(two_nights: SkillRoot) -> None:
    kept = [v.version for v in published_versions(two_nights.root)]
    with pytest.raises(WrongInput, match=", ".join(kept)):
        roll_back(two_nights.root, "v-of-another-root")


def test_the_first_version_has_nothing_before_it(skill_root: Make) -> None:
    root = skill_root({"bread": BREAD})
    root.publish()
    with pytest.raises(WrongInput, match="nothing to go back to"):
        roll_back(root.root)


def test_without_a_publication_there_is_nothing_to_go_back_from(skill_root: Make) -> None:
    with pytest.raises(NotPublished):
        roll_back(skill_root({"bread": BREAD}).root)


def test_a_version_whose_table_is_gone_is_not_served(two_nights: SkillRoot) -> None:
    last = two_nights.served()
    connect(two_nights.root).drop_table(TABLE)
    with pytest.raises(StorageError, match=TABLE):
        roll_back(two_nights.root)
    assert two_nights.served() == last


def test_a_version_whose_encoder_is_gone_is_not_served(two_nights: SkillRoot) -> None:
    earlier = published_versions(two_nights.root)[1]
    moved = Path(two_nights.root.at(two_nights.model))
    shutil.move(moved, moved.with_name("elsewhere"))
    with pytest.raises(StorageError, match=f"{earlier.version} cannot be served: its encoder"):
        roll_back(two_nights.root)


def test_what_was_forgotten_cannot_be_brought_back(two_nights: SkillRoot) -> None:
    forget(two_nights.root, "local/market/bees", run_id="forgetting", now=two_nights.now)
    assert [v.version for v in published_versions(two_nights.root)] == ["v-forgetting"]
    with pytest.raises(WrongInput, match="nothing to go back to"):
        roll_back(two_nights.root)
