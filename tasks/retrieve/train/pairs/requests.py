"""Requests that skills' authors wrote: found, worded, and kept where they say enough; others are counted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tasks.retrieve.routing.skill import Skill
from tasks.retrieve.routing.terms import function_terms, term_sequence
from tasks.retrieve.train.pairs.clauses import clause_pieces
from tasks.retrieve.train.pairs.faults import fault_of
from tasks.retrieve.train.pairs.names import Names
from tasks.retrieve.train.pairs.pieces import READ, SPOKEN, Piece, words_of
from tasks.retrieve.train.pairs.sections import section_pieces
from tasks.retrieve.train.pairs.wording import requests_of


class PairRequest(NamedTuple):
    """A request, the row of its skill, and the piece that it was made of."""

    query: str
    row: int
    piece: Piece

    @property
    def key(self) -> str:
        """The words by which equal requests are told."""
        return " ".join(words_of(self.query))


@dataclass(frozen=True, slots=True)
class Rarity:
    """How much the words of a request tell, by the share of skills that hold them."""

    skills: int
    held: Mapping[int, int]

    @classmethod
    def of(cls, skills: Sequence[Skill]) -> Rarity:
        """Count in how many skills each term stands."""
        texts = (f"{skill.head}\n{skill.body[:READ]}" for skill in skills)
        return cls(len(skills), Counter(term for text in texts for term in set(term_sequence(text))))

    def nats(self, query: str) -> float:
        """Return the information of a request's distinct terms, as if they stood in skills independently.

        A term that no skill holds counts as one that one skill holds.
        """
        return sum(math.log(max(self.skills, 1) / max(self.held.get(term, 1), 1)) for term in _terms(query))


def requests_in(
    row: int,
    skill: Skill,
    apart: Sequence[Piece],
    names: Names,
    rarity: Rarity,
    least: float,
    dropped: Counter[str],
) -> Iterator[PairRequest]:
    """Yield the requests in a skill, each once; count what is dropped, by reason.

    A request in the body shares a word with name or description: others leave out what the skill is about.

    Args:
        row: The skill's.
        skill: Its texts.
        apart: Pieces that stand in none of its texts: of its evals, of a language model.
        names: Are taken out of its requests.
        rarity: Of the corpus.
        least: The information that a request must hold, in nats; one with less would fit many skills.
        dropped: Is added to.
    """
    seen, topic = set[str](), _terms(skill.head)
    pieces = [*clause_pieces(skill.description), *section_pieces(skill.body), *apart]
    for piece in pieces:
        # A language model was told how to write, and checked: rules on wording are for authors.
        written = piece.origin == "written"
        worded = [piece.text] if written else requests_of(piece.text, spoken=piece.origin in SPOKEN)
        if not worded:
            dropped["no_request_form"] += 1
        for one in worded:
            query = names.out_of_request(one)
            fault = None if query is None or written else fault_of(query)
            reason: str | None = "names_skill" if query is None else fault
            request = PairRequest(query or one, row, piece)
            if reason is None and rarity.nats(request.query) < least:
                reason = "too_general"
            # What a body takes for granted, a person would have to say.
            in_body = piece.field == "body" and piece.end > piece.start
            if reason is None and in_body and not _terms(request.query) & topic:
                reason = "off_topic"
            if reason is None and request.key in seen:
                reason = "repeated_in_skill"
            if reason is not None:
                dropped[reason] += 1
                continue
            seen.add(request.key)
            yield request


def told_apart(
    requests: Sequence[PairRequest], clusters: Sequence[int], most: int, dropped: Counter[str]
) -> list[PairRequest]:
    """Return requests once a cluster, and none that skills of more than `most` clusters share."""
    by_key: dict[str, dict[int, PairRequest]] = {}
    for request in requests:
        of_key = by_key.setdefault(request.key, {})
        if clusters[request.row] in of_key:
            dropped["copy"] += 1
        else:
            of_key[clusters[request.row]] = request
    kept = {key for key, of_key in by_key.items() if len(of_key) <= most}
    dropped["many_skills"] += sum(len(of_key) for key, of_key in by_key.items() if key not in kept)
    return sorted((r for key in kept for r in by_key[key].values()), key=lambda r: (r.row, r.key))


def _terms(text: str) -> set[int]:
    return set(term_sequence(text)) - function_terms()
