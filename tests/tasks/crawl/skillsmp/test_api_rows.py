from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.schemas import DROPPED, LISTINGS, Dropped, Listing, to_frame
from tasks.crawl.skillsmp.api import listing_of
from tasks.models.fields import count_of, time_of

SOURCE = "skillsmp"
ROW: dict[str, Any] = {
    "id": "ada-tools-skills-sort-skill-md",
    "name": "sort",
    "author": "ada",
    "description": "Sorts lists.\n列を並べ替える",
    "githubUrl": "https://github.com/ada/Tools/tree/trunk/skills/sort",
    "stars": 41,
    "forks": 3,
    "updatedAt": "1772000000",
    "branch": "main",
    "path": "SKILL.md",
}
MOMENT = datetime.fromtimestamp(1_772_000_000, UTC)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)
# Half of a surrogate pair too: JSON may write one as an escape.
texts = st.text(st.characters(categories=("L", "N", "P", "Z", "C", "S")), max_size=20)


def listed(**fields: object) -> Listing:
    row = listing_of(ROW | fields, SOURCE)
    assert isinstance(row, Listing)
    return row


def dropped(record: object) -> Dropped:
    row = listing_of(record, SOURCE)
    assert isinstance(row, Dropped)
    return row


def test_a_row_of_the_sites_listing_keeps_what_it_says() -> None:
    assert listed() == Listing(
        source=SOURCE, source_id="ada-tools-skills-sort-skill-md", name="sort",
        description="Sorts lists.\n列を並べ替える", author="ada",
        url="https://github.com/ada/Tools/tree/trunk/skills/sort", stars=41, updated_at=MOMENT,
    )  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [
        "1772000000", 1772000000, 1772000000.0, "1772000000.0", 1772000000000, "1772000000000",
        "2026-02-25T06:13:20Z", "2026-02-25T06:13:20", "2026-02-25T07:13:20+01:00",
        " 2026-02-25 06:13:20+00:00 ",
    ],
)  # fmt: skip
def test_every_form_of_a_time_is_the_same_moment(value: object) -> None:
    assert time_of(value) == MOMENT


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "yesterday",
        True,
        0,
        "0",
        -5,
        float("nan"),
        "inf",
        10**400,
        1e300,
        {},
        [1],
        "0001-01-01T00:00+09:00",
    ],
)
def test_a_time_that_cannot_be_told_is_unknown(value: object) -> None:
    assert time_of(value) is None


@pytest.mark.parametrize(
    ("value", "stars"),
    [
        (0, 0),
        (1241, 1241),
        ("1241", 1241),
        ("1,241", 1241),
        ("137.1k", 137_100),
        ("1.2M", 1_200_000),
        (12.0, 12),
        (None, None),
        ("many", None),
        ("-3", None),
        (-3, None),
        (True, None),
        (float("inf"), None),
        (10**400, None),
        (2**63, None),
        ([5], None),
    ],
)
def test_stars_are_a_count_or_unknown(value: object, stars: int | None) -> None:
    assert count_of(value) == stars


def test_null_and_missing_fields_are_unknown() -> None:
    row = listed(description=None, author=None, stars=None, updatedAt=None, name="  ")
    assert (row.description, row.author, row.stars, row.updated_at, row.name) == (None,) * 5
    bare = listing_of({"githubUrl": ROW["githubUrl"]}, SOURCE)
    assert isinstance(bare, Listing)
    assert bare.source_id == bare.url == ROW["githubUrl"]


def test_the_branch_the_path_and_the_route_do_not_change_where_a_skill_is() -> None:
    route = {"ownerSlug": "ada", "repoSlug": "tools", "sourceSkillPath": "elsewhere/SKILL.md"}
    assert listed(branch="other", path="x/SKILL.md", route=route) == listed()


def test_tags_and_category_are_taken_where_they_are_texts() -> None:
    row = listed(tags=["lists", "", None, {"x": 1}, "sorting"], category="data")
    assert (row.tags, row.category) == (("lists", "sorting"), "data")
    assert listed(tags="lists", category=["data"]).tags == ()


def test_a_token_in_a_url_is_not_kept() -> None:
    assert listed(githubUrl="https://ada:s3cret@github.com/ada/Tools").url == "https://github.com/ada/Tools"


@pytest.mark.parametrize("url", ["", "   ", None, [], {}])
def test_a_row_without_a_url_is_dropped_by_its_id(url: object) -> None:
    row = dropped(ROW | {"githubUrl": url})
    assert (row.doc_id, row.reason) == (ROW["id"], "no-url")
    assert "sort" in row.detail


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (None, "null"),
        (["row"], "a list"),
        ("row", "text"),
        (7, "a number"),
        ({"name": "sort"}, "sort lacks id and githubUrl"),
        ({}, "lacks id and githubUrl"),
    ],
)
def test_what_is_no_row_is_dropped_with_what_it_lacks(record: object, said: str) -> None:
    row = dropped(record)
    assert row.reason == "malformed"
    assert said in row.detail


@given(json_values)
def test_no_json_raises(value: object) -> None:
    assert isinstance(listing_of(value, SOURCE), Listing | Dropped)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys((*ROW, "tags", "category"), json_values | texts)))
def test_a_row_of_any_values_can_be_written_down(record: dict[str, object]) -> None:
    row = listing_of(record, SOURCE)
    schema = LISTINGS if isinstance(row, Listing) else DROPPED
    assert to_frame([row], schema).write_ndjson()
