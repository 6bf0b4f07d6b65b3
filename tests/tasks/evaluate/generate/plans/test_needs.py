"""Needs: what a row's own text says that it does, for which product, and what is left of marketing."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.evaluate.generate.plans.needs import Need, needs_of
from tasks.evaluate.generate.plans.products import clean, product_of
from tasks.evaluate.generate.plans.served_rows import ServedRow
from tasks.evaluate.generate.plans.tables import packaged_tables


def needs(text: str, doc_id: str = "owner/thing") -> list[Need]:
    row = ServedRow(doc_id, doc_id, text, None, "", np.zeros(4, np.float32))
    return list(needs_of([row], packaged_tables()).needs)


@pytest.mark.parametrize(
    ("text", "role", "verb", "about"),
    [
        (
            "An MCP server that provides real-time apple prices to AI agents.",
            "find",
            "provide",
            "apple prices",
        ),
        ("A server for searching and retrieving bird sightings.", "find", "search", "bird sightings"),
        ("Provides read-only access to parish registers.", "find", "access", "parish registers"),
        ("Audits npm packages for holes using Lint.", "check", "audit", "npm packages for holes"),
        ("Bakes wheat bread with yeast at home", "act", "bake", "wheat bread"),
        ("Repairs a bicycle: punctures and brakes", "act", "repair", "a bicycle"),
    ],
)
def test_a_verb_and_what_it_is_about_are_read_off_the_text(
    text: str, role: str, verb: str, about: str
) -> None:
    [found] = needs(text)

    assert (found.role, found.verb, found.about) == (role, verb, about)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The most powerful MCP server 🚀 for your AI workflow!",
        "Search and manage context with MCP tools.",
        "Access various resources and capabilities.",
        "Dog search engine.",
    ],
)
def test_a_text_without_a_use_of_its_own_gives_none(text: str) -> None:
    assert needs(text) == []


def test_a_kind_stands_where_the_text_supports_it() -> None:
    [found] = needs("Pigeon integration for sending messages to groups.", "post/pigeon-mcp")

    assert (found.role, found.verb, found.product) == ("deliver", "message", "Pigeon")
    assert needs("Pigeon integration for groups.", "post/pigeon-mcp") == []


def test_markup_addresses_and_pictograms_are_cleaned_away() -> None:
    text = "🎯 **Search** [Heron](https://heron.example) (fast!) – see https://x.example/a?b=1 `now`."

    assert clean(text) == "Search Heron, see now."


@pytest.mark.parametrize(
    ("doc_id", "text", "product"),
    [
        ("post/pigeon-mcp", "Sends messages with Pigeon.", "Pigeon"),
        ("db/planet-scale", "Queries PlanetScale databases.", "PlanetScale"),
        ("x/keep-mcp", "Notes in Google Keep.", "Google Keep"),
        ("x/mcp-server", "The MCP Server.", None),
        ("owner/other", "Sends messages with Pigeon.", None),
    ],
)
def test_a_product_is_named_by_the_text_and_the_id(doc_id: str, text: str, product: str | None) -> None:
    assert product_of(doc_id, text, {}, packaged_tables().words["no_product"]) == product


def test_a_word_that_others_write_in_lower_case_is_no_product() -> None:
    assert product_of("x/memory", "Memory for notes.", {"memory": 3}, ()) is None
