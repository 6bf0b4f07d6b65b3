"""A prepared document for the tests of facets."""

from __future__ import annotations

from dataclasses import replace

from tasks.retrieve.paging.facets import ready_for
from tasks.retrieve.paging.types import PagedDocument
from tests.support.models.word_models import WordEncoder, WordTokenizer
from tests.support.paging.paging_nodes import CODE, PROSE, TABLE, nodes_of

KITCHEN = f"""\
# Kitchen

{PROSE}

## Timer

Set the timer from code:

{CODE}

## Soups

{TABLE}

## Cleaning

- Scrub the **copper** pan with lemon and salt.
- Never put knives into the machine.
"""


DOCUMENT = PagedDocument("soup", KITCHEN, nodes_of(KITCHEN))


READY = replace(DOCUMENT, ready=ready_for(DOCUMENT, encoder=WordEncoder(), tokenizer=WordTokenizer()))
