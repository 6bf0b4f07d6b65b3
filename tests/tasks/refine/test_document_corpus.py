from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime

import polars as pl
import pytest

from storage.schemas import Document, Dropped, RawDocument
from tasks.refine.document import refine_document
from tasks.refine.text.canonical import canonical
from tests.support.paths import SHARED

CORPUS = SHARED / "corpus/skills.parquet"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def outcomes() -> list[Document | Dropped]:
    if not CORPUS.exists():
        pytest.skip(f"needs the corpus of real skills at {CORPUS}")
    rows = pl.read_parquet(CORPUS, columns=["id", "content", "path"])
    refined = []
    started = time.process_time()
    for doc_id, content, path in rows.iter_rows():
        raw = RawDocument(
            doc_id=doc_id,
            source="parquet:corpus",
            content=content.encode(),
            size=len(content),
            raw_hash="raw",
            path=path,
        )
        refined.append(refine_document(raw, fetched_at=NOW, first_seen_at=NOW))
    # Ninety seconds for 20,000 is what refining may take in all.
    assert time.process_time() - started < 2e-3 * rows.height
    assert len(refined) == rows.height
    return refined


@pytest.mark.slow
def test_every_real_document_has_a_body_or_a_reason(outcomes: list[Document | Dropped]) -> None:
    documents = [d for d in outcomes if isinstance(d, Document)]
    dropped = [d for d in outcomes if isinstance(d, Dropped)]
    assert all(d.body.strip() and canonical(d.body)[0] == d.body for d in documents)
    assert all(d.reason and d.detail for d in dropped)
    assert len(dropped) < 0.002 * len(outcomes)


@pytest.mark.slow
def test_real_documents_have_a_name_and_a_description(outcomes: list[Document | Dropped]) -> None:
    complete = sum(isinstance(d, Dropped) or bool(d.name and d.description) for d in outcomes)
    assert complete >= 0.995 * len(outcomes)


@pytest.mark.slow
def test_the_rates_of_findings_are_those_known_of_the_wild(outcomes: list[Document | Dropped]) -> None:
    documents = [d for d in outcomes if isinstance(d, Document)]
    counts = Counter(code for d in documents for code in {f.code for f in d.findings})
    assert counts["frontmatter.requoted"] / len(documents) == pytest.approx(0.227, abs=0.005)
    assert counts["frontmatter.block-indicator"] / len(documents) == pytest.approx(0.147, abs=0.003)
    assert counts["frontmatter.lines"] < 10
    assert not any("TomeVault" in d.body[-300:] for d in documents)
