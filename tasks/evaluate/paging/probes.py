"""Seeded probes of long documents: requests made of their own words, without a language model.

A probe asks for one section by its heading and the rarest words of one of its sentences; its evidence are
that sentence and the two other passages of the section that hold most that is said nowhere else. It is easier
than a request of a person, who uses other words, and tells only how methods fare as documents grow.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tasks.evaluate.corpus.skill_sample import stratified
from tasks.evaluate.measures.evidence import EvidenceQuery, fold_text
from tasks.evaluate.paging.bench import body_of
from tasks.parse.segment.segment import Fragment, segment

BREADTH = "probe"
SEED = 42
DOCUMENTS = 60
LEAST_NODES = 150
PER_DOCUMENT = 3
_LEAST_CHARACTERS = 15  # a node has more on average: shorter bodies need not be segmented to be passed over
_SECTION = (3, 12)  # passages of a section that is asked for
_WORDS = 5  # rare words of a sentence that stand in the request
_ITEMS = 3
_SPAN = (12, 300)  # characters of a span
_WORD = re.compile(r"[^\W\d_]{3,}")


@dataclass(frozen=True, slots=True)
class Probes:
    """Long documents by id, and the probes of each, in one list."""

    documents: dict[str, str]
    queries: list[EvidenceQuery]


def draw_paging_probes(
    texts: Mapping[str, str], *, documents: int = DOCUMENTS, least_nodes: int = LEAST_NODES,
    each: int = PER_DOCUMENT, seed: int = SEED,
) -> Probes:  # fmt: skip
    """Draw `documents` long documents, or all, spread over namespaces, and probes of each.

    `texts` is content by doc_id, of which equal bodies of `least_nodes` nodes count once; documents without a
    section to ask for are left out, and others have at most `each` probes.
    """
    found = Probes({}, [])
    seen: set[str] = set()
    for doc_id in stratified(texts, len(texts), seed):
        if len(found.documents) == documents:
            break
        body = body_of(texts[doc_id])
        if len(body) < _LEAST_CHARACTERS * least_nodes or body in seen:
            continue
        fragments = segment(body).fragments
        queries = probes_of(doc_id, fragments, each=each, seed=seed)
        if len(fragments) >= least_nodes and queries:
            seen.add(body)
            found.documents[doc_id] = texts[doc_id]
            found.queries.extend(queries)
    return found


def probes_of(doc_id: str, fragments: Sequence[Fragment], *, each: int, seed: int) -> list[EvidenceQuery]:
    """Return up to `each` probes of a document, of different sections, drawn by the seed and the id."""
    rarity = _rarity(fragments)
    sections = [s for s in _sections(fragments) if len(_passages(s, rarity)) >= _ITEMS]
    chance = random.Random(f"{seed} {doc_id}")  # noqa: S311 (a sample, no secret)
    drawn = sorted(chance.sample(range(len(sections)), min(each, len(sections))))
    return [
        _probe(f"probe:{doc_id}#{number}", doc_id, sections[place], rarity)
        for number, place in enumerate(drawn, start=1)
    ]


def _probe(
    query_id: str, doc_id: str, section: Sequence[Fragment], rarity: Mapping[str, float]
) -> EvidenceQuery:
    spans = _passages(section, rarity)[:_ITEMS]
    words = list(dict.fromkeys(_words(spans[0])))
    rare = set(sorted(words, key=lambda w: (-rarity[w], w))[:_WORDS])
    request = f"{section[0].heading_path[-1]}: {' '.join(w for w in words if w in rare)}"
    return EvidenceQuery(query_id, doc_id, request, tuple((span,) for span in spans), BREADTH)


def _sections(fragments: Sequence[Fragment]) -> Iterator[list[Fragment]]:
    """Yield the passages that stand directly under each heading, where they are neither few nor many."""
    groups: dict[tuple[str, ...], list[Fragment]] = {}
    for fragment in fragments:
        groups.setdefault(fragment.heading_path, []).append(fragment)
    low, high = _SECTION
    yield from (group for path, group in groups.items() if path and low <= len(group) <= high)


def _passages(section: Sequence[Fragment], rarity: Mapping[str, float]) -> list[str]:
    """Return each passage's longest line that can be a span, those with the rarest words first."""
    low, high = _SPAN
    lines = [max((line.strip() for line in f.text.splitlines()), key=len, default="") for f in section]
    spans = dict.fromkeys(x for x in lines if low <= len(x) <= high and len(_words(x)) >= 3 and fold_text(x))

    def weight(span: str) -> tuple[float, str]:
        return -sum(sorted((rarity[w] for w in set(_words(span))), reverse=True)[:_WORDS]), span

    return sorted(spans, key=weight)


def _rarity(fragments: Sequence[Fragment]) -> dict[str, float]:
    """Return of each word how rare it is among a document's nodes: log(nodes / nodes with it)."""
    held = Counter(word for fragment in fragments for word in set(_words(fragment.text)))
    return {word: math.log(len(fragments) / n) for word, n in held.items()}


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
