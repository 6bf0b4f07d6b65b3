from __future__ import annotations

from collections.abc import Sequence

from tasks.parse.classify.protocol import FragmentInContext, Typed
from tasks.parse.document import parse_document
from tests.support.models.word_models import WordTokenizer

BODY = """\
# Bread

Bread needs time.

## Dough

Mix these:

- flour
- water, cold
"""


class LongIsStep:
    """Types by length and notes what it was asked."""

    name = "by-length"

    def __init__(self) -> None:
        self.asked: list[FragmentInContext] = []

    def classify(self, fragments: Sequence[FragmentInContext]) -> list[Typed]:
        self.asked.extend(fragments)
        return [Typed("step" if len(f.text) > 11 else "param", len(f.text) / 100) for f in fragments]


def test_nodes_carry_span_path_lead_in_type_and_tokens() -> None:
    nodes = parse_document("own/bread", BODY, classifier=LongIsStep(), tokenizer=WordTokenizer())
    assert [n.node_id for n in nodes] == [f"own/bread#{i}" for i in range(4)]
    assert all(n.doc_id == "own/bread" and n.text == BODY[n.start : n.end] for n in nodes)
    assert [n.heading_path for n in nodes] == [("Bread",), *3 * [("Bread", "Dough")]]
    assert [n.lead_in for n in nodes] == [None, None, "Mix these:", "Mix these:"]
    assert [n.node_type for n in nodes] == ["step", "param", "param", "step"]
    assert [n.n_tokens for n in nodes] == [4, 3, 2, 4]
    assert {n.classifier for n in nodes} == {"by-length"}
    assert [n.confidence for n in nodes] == [len(n.text) / 100 for n in nodes]


def test_the_classifier_sees_each_fragment_between_its_neighbours() -> None:
    classifier = LongIsStep()
    nodes = parse_document("bread", BODY, classifier=classifier, tokenizer=WordTokenizer())
    texts = [n.text for n in nodes]
    assert [f.previous for f in classifier.asked] == [None, *texts[:-1]]
    assert [f.text for f in classifier.asked] == texts
    assert [f.next for f in classifier.asked] == [*texts[1:], None]
    assert [f.fragment_id for f in classifier.asked] == [n.node_id for n in nodes]


def test_a_body_of_headings_has_no_nodes() -> None:
    assert (
        parse_document("empty", "# Only\n\n## This", classifier=LongIsStep(), tokenizer=WordTokenizer()) == []
    )
