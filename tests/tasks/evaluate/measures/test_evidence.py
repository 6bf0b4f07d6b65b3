from __future__ import annotations

import json
from pathlib import Path

import pytest

from storage.errors import WrongInput
from tasks.evaluate.measures.evidence import (
    EvidenceQuery,
    coverage,
    fold_text,
    read_documents,
    read_paging_bench,
    read_queries,
)

ASKED = {"query_id": "q1", "doc_id": "jam", "query": "How long?", "evidence": [{"any_of": ["ten minutes"]}]}


def written(folder: Path, *lines: object) -> Path:
    path = folder / "lines.jsonl"
    path.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines), "utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("Boil, THEN stir!", "boil then stir"),
        ("`set_point` = 4 °C\n\n", "set_point 4 c"),
        ("**Über**-Eifer", "über eifer"),
        ("|---|", ""),
    ],
)
def test_folding_keeps_words_in_lower_case_with_single_spaces(text: str, folded: str) -> None:
    assert fold_text(text) == folded


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        ([("boil the fruit",)], 1.0),
        ([("BOIL   the\n*fruit*",)], 1.0),
        ([("freeze it", "skim the foam")], 1.0),
        ([("boil the fruit",), ("freeze it",)], 0.5),
        ([("freeze it",), ("fruit boil",)], 0.0),
        ([("|:--|",)], 1.0),
    ],
)
def test_coverage_is_the_share_of_items_with_a_span_in_the_context(
    evidence: list[tuple[str, ...]], expected: float
) -> None:
    context = "First boil the fruit.\nThen: skim the foam."
    assert coverage(context, evidence) == expected
    with pytest.raises(ValueError, match="at least one"):
        coverage(context, [])


def test_documents_and_queries_are_read_in_order(tmp_path: Path) -> None:
    documents = written(tmp_path, {"doc_id": "jam", "content": "Boil."}, "", {"doc_id": "ale", "content": ""})
    assert list(read_documents(documents).items()) == [("jam", "Boil."), ("ale", "")]
    queries = written(tmp_path, ASKED, {**ASKED, "query_id": "q2", "breadth": "broad"})
    assert read_queries(queries) == [
        EvidenceQuery("q1", "jam", "How long?", (("ten minutes",),)),
        EvidenceQuery("q2", "jam", "How long?", (("ten minutes",),), "broad"),
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{broken", "not JSON"),
        ("[]", "no object"),
        ({**ASKED, "query": None}, "`query` is missing or no text"),
        ({**ASKED, "query": " "}, "blank"),
        ({**ASKED, "breadth": 3}, "`breadth`"),
        ({**ASKED, "query_id": "q0"}, "'q0' occurs twice"),
        ({**ASKED, "evidence": None}, "`evidence` must be a list"),
        ({**ASKED, "evidence": []}, "`evidence` must be a list"),
        ({**ASKED, "evidence": {"any_of": ["a"]}}, "`evidence` must be a list"),
        ({**ASKED, "evidence": ["a"]}, "`evidence` must be a list"),
        ({**ASKED, "evidence": [{}]}, "`evidence` must be a list"),
        ({**ASKED, "evidence": [{"any_of": []}]}, "`evidence` must be a list"),
        ({**ASKED, "evidence": [{"any_of": [" "]}]}, "`evidence` must be a list"),
        ({**ASKED, "evidence": [{"any_of": ["a", 1]}]}, "`evidence` must be a list"),
    ],
)
def test_a_bad_query_is_named_by_file_and_line(tmp_path: Path, line: object, problem: str) -> None:
    path = written(tmp_path, {**ASKED, "query_id": "q0"}, line)
    with pytest.raises(WrongInput, match=f"lines.jsonl:2: .*{problem}"):
        read_queries(path)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ({"doc_id": "ale"}, "`content`"),
        ({"doc_id": "jam", "content": ""}, "occurs twice"),
        ("7", "no object"),
    ],
)
def test_a_bad_document_is_named_by_file_and_line(tmp_path: Path, line: object, problem: str) -> None:
    path = written(tmp_path, {"doc_id": "jam", "content": "Boil."}, line)
    with pytest.raises(WrongInput, match=f"lines.jsonl:2: .*{problem}"):
        read_documents(path)


KILN = "---\nname: kiln\n---\n# Kiln\n\nStack the *shelves* first; then\nclose the lid."
KILN_ASKED = {
    "query_id": "q1", "doc_id": "market/kiln", "query": "How?",
    "evidence": [{"any_of": ["Never said.", "shelves first"]}, {"any_of": ["then\nclose the lid"]}],
}  # fmt: skip


def bench_files(folder: Path, *queries: object) -> tuple[Path, Path]:
    documents, asked = folder / "documents.jsonl", folder / "queries.jsonl"
    documents.write_text(json.dumps({"doc_id": "market/kiln", "content": KILN}) + "\n", "utf-8")
    asked.write_text("".join(f"{json.dumps(query)}\n" for query in queries), "utf-8")
    return documents, asked


def test_evidence_is_looked_for_as_it_will_be_compared_and_one_of_an_items_spans_is_enough(
    tmp_path: Path,
) -> None:
    texts, [query] = read_paging_bench(*bench_files(tmp_path, KILN_ASKED))
    assert texts == {"market/kiln": KILN}
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
    files = bench_files(tmp_path, {**KILN_ASKED, "query_id": "q0"}, {**KILN_ASKED, **changed})
    with pytest.raises(WrongInput, match=f"queries.jsonl:2: .*{said}"):
        read_paging_bench(*files)
