from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from flows.serve.answers.service import Service, load_serving
from flows.serve.catalogue.routes import graph_page, revisions_page
from flows.serve.catalogue.search_page import SearchForm, search_page
from flows.serve.catalogue.skill_page import Block, Taken, skill_page
from flows.settings import load_settings
from storage.errors import TransientError, Withheld
from tasks.refine.licences.policy import LicencePolicy
from tasks.retrieve.skills.listing import FACETS
from tasks.retrieve.versions.publish import roll_back
from tests.support.roots.hand_written import BREAD, TEA, skill
from tests.support.roots.skill_root import SkillRoot

LATER = BREAD.replace("two hours", "three hours")
STOVE = skill(
    "stove",
    "Finds faults of a wood stove",
    "# Stove\n\nSign | Cause | Remedy\n-|-|-\n"
    + "".join(f"{sign} | {cause} | {remedy}\n" for sign, cause, remedy in (
        ("smoke in the room", "cold chimney", "warm the flue with paper first"),
        ("black glass", "too little air", "open the upper vent"),
        ("fire goes out", "wet wood", "dry the wood for two years"),
        ("burns too fast", "door leaks", "replace the rope seal"),
        ("ticking noise", "plates expand", "nothing, it is harmless"),
        ("smells of paint", "first firing", "air the room"),
    )),
)  # fmt: skip
ServiceOf = Callable[[SkillRoot], Service]


@pytest.fixture
def service_of() -> Iterator[ServiceOf]:
    services: list[Service] = []

    def of(root: SkillRoot) -> Service:
        services.append(Service(root.root, load_settings(), load_serving()))
        return services[-1]

    yield of
    for service in services:
        service.close()


@pytest.fixture
def twice(skill_root: Callable[[dict[str, str]], SkillRoot]) -> SkillRoot:
    """A root of two versions: of bread that rises two hours, then three, and with tea."""
    root = skill_root({"bread": BREAD})
    root.publish()
    root.write("bread", LATER)
    root.write("tea", TEA)
    root.publish()
    return root


def listed(task: str = "") -> SearchForm:
    return SearchForm(task, {facet: [] for facet in FACETS}, 1)


def test_a_skill_is_shown_as_one_version_has_it_whatever_is_published_between(
    twice: SkillRoot, service_of: ServiceOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, after = service_of(twice), iter([True])
    reading = service.skills.reading

    def read_then_rolled_back(*given: object, **named: object) -> object:
        found = reading(*given, **named)  # type: ignore[arg-type]
        if next(after, False):
            roll_back(twice.root)
        return found

    monkeypatch.setattr(service.skills, "reading", read_then_rolled_back)
    made = skill_page(service, "bread", "how long does it rise?", 100)
    assert (twice.served().version in made, "two hours" in made, "three hours" in made) == (True, True, False)


@pytest.mark.parametrize("task", ["", "bake bread"])
def test_a_list_and_its_counts_are_of_one_version(
    twice: SkillRoot, service_of: ServiceOf, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    service, after = service_of(twice), iter([True])
    known = service.listing.known

    def known_then_rolled_back() -> object:
        found = known()
        if next(after, False):
            roll_back(twice.root)
        return found

    monkeypatch.setattr(service.listing, "known", known_then_rolled_back)
    made = search_page(service, listed(task))
    assert twice.served().version in made
    assert ("<small>1</small>" in made, "<small>2</small>" in made) == (True, False)


def test_a_page_that_never_is_of_one_version_is_given_up(
    twice: SkillRoot, service_of: ServiceOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = service_of(twice)
    old = service.listing.known()
    roll_back(twice.root)
    monkeypatch.setattr(service.listing, "known", lambda: old)
    with pytest.raises(TransientError, match="faster than this page is made"):
        search_page(service, listed())


def test_revisions_later_than_the_served_one_are_not_told_and_one_that_is_not_there_leaves_the_list(
    twice: SkillRoot, service_of: ServiceOf
) -> None:
    service = service_of(twice)
    made = revisions_page(service, "bread", None, "ffffffff")
    assert ("has no revision" in made, made.count("since the one before")) == (True, 1)
    assert "three hours" in revisions_page(service, "bread", None, None)
    roll_back(twice.root)
    made = revisions_page(service, "bread", None, None)
    assert ("there is no other revision" in made, "three hours" in made) == (True, False)


def test_of_a_withheld_skill_no_revision_is_told(
    skill_root: Callable[[dict[str, str]], SkillRoot], service_of: ServiceOf
) -> None:
    root = skill_root({"bread": BREAD})
    root.policy = LicencePolicy(unknown="metadata-only")
    root.publish()
    with pytest.raises(Withheld):
        revisions_page(service_of(root), "bread", None, None)
    assert "Its text is withheld" in skill_page(service_of(root), "bread", "", 100)


def test_a_graph_that_takes_long_to_encode_has_no_semantic_edges(
    skill_root: Callable[[dict[str, str]], SkillRoot], service_of: ServiceOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = BREAD + "".join(f"\nKnead it for the {number}th time.\n" for number in range(3, 300))
    root = skill_root({"bread": long})
    root.publish(nodes=False)
    assert "Semantic edges are left out" not in graph_page(service_of(root), "bread")
    monkeypatch.setenv("SKILLERY_PAGE_SECONDS", "0.000001")
    made = graph_page(service_of(root), "bread")
    assert ("Semantic edges are left out" in made, made.count('class="node ') > 6) == (True, True)


def test_of_a_node_that_is_taken_in_part_that_part_is_shown(
    skill_root: Callable[[dict[str, str]], SkillRoot], service_of: ServiceOf
) -> None:
    root = skill_root({"stove": STOVE})
    root.publish()
    service = service_of(root)
    found = service.index.page("stove", "the fire goes out", budget=0.5, method="facets")
    assert [node["whole"] for node in found["nodes"]] == [False]
    made = skill_page(service, "stove", "the fire goes out", 50)
    node = made.partition('<div id="n0"')[2].partition("</div>")[0]
    assert "taken in part" in node
    assert ("dry the wood for two years" in node, "replace the rope seal" in node) == (True, False)


def test_a_heading_is_marked_only_above_a_node_that_is_taken() -> None:
    taken = Taken({"context": "## Notes\n\nBake.", "tokens": 4, "document_tokens": 8}, {3: None})
    above, other = (Block("heading", 4, title="Notes", inside={node}) for node in (3, 9))
    assert (taken.has(above), taken.has(other), taken.saved) == (True, False, 0.5)
