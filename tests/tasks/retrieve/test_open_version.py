from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from storage.root import Root
from tasks.retrieve import open_version
from tasks.retrieve.open_version import OpenVersion
from tasks.retrieve.paging.facets import ready_for
from tasks.retrieve.paging.types import PagedDocument
from tests.support.models.word_models import WordEncoder, WordTokenizer
from tests.support.paging.prepared_documents import nodes_of

BODY = "# Hive\n\nLift the lid.\n\nCount the frames.\n"


@pytest.fixture
def version(tmp_path: Path) -> OpenVersion:
    unused: Any = SimpleNamespace()
    return OpenVersion(Root(tmp_path), unused, unused)


def ready(doc_id: str) -> PagedDocument:
    document = PagedDocument(doc_id, BODY, nodes_of(BODY))
    return replace(document, ready=ready_for(document, encoder=WordEncoder(), tokenizer=WordTokenizer()))


def kept(version: OpenVersion) -> list[str]:
    recent: OrderedDict[str, PagedDocument] = version.recent
    return list(recent)


def test_the_document_not_asked_for_the_longest_gives_way(
    version: OpenVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_version, "_RECENT", 2)
    for doc_id in ("bees", "bread"):
        version.keep(ready(doc_id))
    assert version.kept("bees") is not None
    version.keep(ready("soap"))
    assert kept(version) == ["bees", "soap"]


def test_documents_give_way_to_states_of_many_bytes_but_the_last_one_stays(
    version: OpenVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = ready("bees").ready
    assert each is not None
    size = each.states.rows.nbytes
    monkeypatch.setattr(open_version, "_RECENT_BYTES", 2 * size)
    for doc_id in ("bees", "bread", "soap"):
        version.keep(ready(doc_id))
    assert kept(version) == ["bread", "soap"]
    monkeypatch.setattr(open_version, "_RECENT_BYTES", size - 1)
    version.keep(ready("wax"))
    assert kept(version) == ["wax"]
