from __future__ import annotations

from tasks.evaluate.paging.bench import body_of
from tasks.evaluate.paging.probes import draw_paging_probes
from tests.support.paging.paging_bench import paged
from tests.support.paging.paging_workshop import workshop

TEXTS = {f"owner{n}/repo/{n}": workshop(f"w{n}", 9) for n in range(6)} | {"owner9/r/short": workshop("s", 2)}
SMALL = {"documents": 4, "least_nodes": 60, "each": 2}


def test_probes_are_of_long_documents_and_hold_what_they_ask_for() -> None:
    probes = draw_paging_probes(TEXTS, **SMALL)
    assert len(probes.documents) == 4
    assert "owner9/r/short" not in probes.documents
    assert len(probes.queries) == 8
    assert len({query.query_id for query in probes.queries}) == 8
    for query in probes.queries:
        body = body_of(TEXTS[query.doc_id])
        assert (query.breadth, len(query.evidence)) == ("probe", 3)
        assert all(span in body for (span,) in query.evidence)
        heading, _, words = query.query.partition(": ")
        assert f"## {heading}\n" in body
        assert all(word in query.evidence[0][0].lower() for word in words.split())


def test_the_same_corpus_and_seed_give_the_same_probes_in_whatever_order() -> None:
    turned = dict(reversed(TEXTS.items()))
    assert draw_paging_probes(turned, **SMALL) == draw_paging_probes(TEXTS, **SMALL)
    assert draw_paging_probes(TEXTS, **SMALL, seed=7) != draw_paging_probes(TEXTS, **SMALL)


def test_equal_bodies_are_probed_once() -> None:
    copies = {f"o{n}/r/copy": workshop("same", 9) for n in range(5)}
    assert len(draw_paging_probes(copies, **SMALL).documents) == 1


def test_a_document_without_sections_has_no_probes() -> None:
    flat = "\n\n".join(f"Sentence {n} of a long unbroken tale about sheep." for n in range(200))
    assert draw_paging_probes({"a/b/c": flat}, **SMALL).queries == []


def test_the_whole_document_and_all_its_nodes_hold_every_probe() -> None:
    probes = draw_paging_probes(TEXTS, **SMALL)
    for row in paged(probes.documents, probes.queries, ["full", "nodes"]):
        assert (row["sufficient"], row["queries"]) == (1.0, 8)
        assert list(row["by_breadth"]) == ["probe"]
