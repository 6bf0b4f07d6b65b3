from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.schemas import DROPPED, LISTINGS, RAW_DOCUMENTS, Dropped, Listing, RawDocument, to_frame
from tasks.crawl.mcp.registry import items_of
from tasks.crawl.source.base import Gone

OFFICIAL = "io.modelcontextprotocol.registry/official"
SERVER: dict[str, Any] = {
    "name": "io.github.ann/kettle",
    "description": "Boils water",
    "version": "1.2.0",
    "repository": {
        "url": "https://github.com/ann/kettle",
        "source": "github",
        "id": "4711",
        "subfolder": "mcp",
    },
    "packages": [{"identifier": "kettle"}],
}


def entry(*, status: str = "active", latest: bool = True, **fields: object) -> dict[str, Any]:
    official = {"status": status, "isLatest": latest, "publishedAt": "2026-03-01T00:00:00Z"}
    return {"server": SERVER | fields, "_meta": {OFFICIAL: official}}


def items(value: object) -> list[Listing | RawDocument | Gone | Dropped]:
    return list(items_of(value, "mcp-registry"))


def test_a_server_is_a_listing_and_a_document() -> None:
    listing, document = items(entry())

    assert listing == Listing(
        source="mcp-registry",
        source_id="io.github.ann/kettle",
        kind="mcp-server",
        name="io.github.ann/kettle",
        description="Boils water",
        author="io.github.ann",
        url="https://github.com/ann/kettle",
        repo_id="4711",
        updated_at=datetime(2026, 3, 1, tzinfo=UTC),
    )
    assert isinstance(document, RawDocument)
    assert (document.doc_id, document.kind) == ("mcp/io.github.ann/kettle", "mcp-server")
    assert (document.repo, document.repo_id, document.path) == ("ann/kettle", "4711", "mcp")
    assert json.loads(document.content or b"") == SERVER


def test_the_same_server_written_otherwise_is_the_same_document() -> None:
    turned = {"server": dict(reversed(SERVER.items())), "_meta": entry()["_meta"]}

    assert items(turned) == items(entry())


@pytest.mark.parametrize("description", [None, "", 7])
def test_a_server_without_a_description_is_a_document_all_the_same(description: object) -> None:
    document = items(entry(description=description))[1]

    assert isinstance(document, RawDocument)
    assert json.loads(document.content or b"")["description"] == ("7" if description == 7 else "")


@pytest.mark.parametrize("repository", [None, {}, "x", {"url": ""}, {"url": "no url"}, {"url": 5}])
def test_a_server_without_a_repository_is_a_document_all_the_same(repository: object) -> None:
    document = items(entry(repository=repository))[1]

    assert isinstance(document, RawDocument)
    assert document.repo is None


def test_a_token_in_the_repositorys_url_is_shown_nowhere() -> None:
    listing, document = items(entry(repository={"url": "https://ann:s3cret@github.com/ann/kettle"}))

    assert isinstance(listing, Listing)
    assert isinstance(document, RawDocument)
    assert listing.url == document.url == "https://github.com/ann/kettle"
    assert document.repo == "ann/kettle"


def test_a_deleted_server_is_gone() -> None:
    assert items(entry(status="deleted")) == [
        Gone(("mcp/io.github.ann/kettle",), "retired", "the registry has marked it as deleted")
    ]


@pytest.mark.parametrize("status", ["active", "deleted"])
def test_an_older_version_says_nothing_of_the_latest(status: str) -> None:
    (found,) = items(entry(status=status, latest=False))

    assert isinstance(found, Dropped)
    assert (found.reason, found.lost_to) == ("older-version", "mcp/io.github.ann/kettle")


@pytest.mark.parametrize(
    "name",
    [
        *(None, "", 5, "kettle", "ann/", "/kettle", "../etc/passwd", "ann/..", "ann/a..b", "ann/./kettle"),
        *("ann/ket tle", "ann\\kettle/x", "ann/kettle\n", "ann/" + "k" * 200, "\ud800/kettle"),
    ],
)
def test_a_name_that_could_lead_elsewhere_is_malformed(name: object) -> None:
    (found,) = items(entry(name=name))

    assert isinstance(found, Dropped)
    assert found.reason == "malformed"
    assert to_frame([found], DROPPED).height == 1


@pytest.mark.parametrize("value", [None, [], "server", {}, {"server": None}, {"server": []}, {"name": "a/b"}])
def test_an_entry_without_a_server_is_malformed(value: object) -> None:
    (found,) = items(value)

    assert isinstance(found, Dropped)
    assert found.reason == "malformed"


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(categories=("L", "C", "P")), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys(("description", "repository", "version"), values)),
    values,
)
def test_any_values_can_be_written_down(fields: dict[str, object], meta: object) -> None:
    for item in items({"server": SERVER | fields, "_meta": {OFFICIAL: meta}}):
        schemas = {Listing: LISTINGS, RawDocument: RAW_DOCUMENTS, Dropped: DROPPED}
        if not isinstance(item, Gone):
            assert to_frame([item], schemas[type(item)]).height == 1
