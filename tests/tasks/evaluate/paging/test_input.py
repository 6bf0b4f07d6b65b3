from __future__ import annotations

import json
from pathlib import Path

import pytest

from storage.errors import WrongInput
from tasks.evaluate.paging.input import read_paging_bench

TEXT = "---\nname: kiln\n---\n# Kiln\n\nStack the *shelves* first; then\nclose the lid."
ASKED = {
    "query_id": "q1", "doc_id": "market/kiln", "query": "How?",
    "evidence": [{"any_of": ["Never said.", "shelves first"]}, {"any_of": ["then\nclose the lid"]}],
}  # fmt: skip


def bench(folder: Path, *queries: object) -> tuple[Path, Path]:
    documents, asked = folder / "documents.jsonl", folder / "queries.jsonl"
    documents.write_text(json.dumps({"doc_id": "market/kiln", "content": TEXT}) + "\n", "utf-8")
    asked.write_text("".join(f"{json.dumps(query)}\n" for query in queries), "utf-8")
    return documents, asked


def test_evidence_is_looked_for_as_it_will_be_compared_and_one_of_an_items_spans_is_enough(
    tmp_path: Path,
) -> None:
    texts, [query] = read_paging_bench(*bench(tmp_path, ASKED))
    assert texts == {"market/kiln": TEXT}
    assert query.evidence == (("Never said.", "shelves first"), ("then\nclose the lid",))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"doc_id": "market/klin"}, r"has no document 'market/klin'; near it are market/kiln; add it"),
        ({"doc_id": "elsewhere"}, r"has no document 'elsewhere'; add it"),
        ({"evidence": [{"any_of": ["close the lid"]}, {"any_of": ["Open it."]}]}, r"item 2 .*'Open it.'"),
        ({"query": ""}, "blank"),
        ({"query_id": "q0"}, r"'q0' occurs twice, first in .*queries.jsonl:1"),
        ({"query": None}, "`query` is missing"),
    ],
)
def test_what_cannot_be_measured_is_named_by_file_and_line(
    tmp_path: Path, changed: dict[str, object], said: str
) -> None:
    files = bench(tmp_path, {**ASKED, "query_id": "q0"}, {**ASKED, **changed})
    with pytest.raises(WrongInput, match=f"queries.jsonl:2: .*{said}"):
        read_paging_bench(*files)
