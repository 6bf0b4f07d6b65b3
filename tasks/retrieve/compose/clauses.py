"""The clauses of a request, the smallest parts that may be a step, and which of them say a step."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tasks.refine.text.words import CONTRACTION
from tasks.retrieve.compose.drafts import Draft, DraftStep, LeftOut, Span, words_of
from tasks.retrieve.routing.postings import function_terms, term_sequence

_QUOTED = re.compile(
    r"(?<!\w)'[^'\n]{1,60}'(?!\w)|\"[^\"\n]{1,80}\"|“[^”\n]{1,80}”|`[^`\n]{1,80}`|‘[^’\n]{1,60}’(?!\w)"
)
_TITLE = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|St|No|vs|etc|approx|e\.g|i\.e|[A-Z])\.)$")
# What joins clauses, tried in this order at every place. Names are those of `Clause.join`.
_SUBORDINATE = (
    r"as\ssoon\sas|in\scase|so\sthat|provided|whenever|unless|until|till|because|since|although|though|while|"
    "whilst|once|after|before|when|where|whose|which|who|if|but|yet"
)
_SIGNS = re.compile(
    rf"""
    (?P<sentence>(?<=[.!?…。！？])["')\]”’]*\s+(?=\S) | [。！？] | (?<!\s)[^\S\n]*\n\s*)
  | (?P<semicolon>[;；]\s*)
  | (?P<colon>:\s+|：)
  | (?P<dash>(?<!\s)\s+(?:[-–—]+>?|=>)\s+|(?:(?<!\s)\s+)?[—→⇒]\s*)
  | (?P<bracket>(?:(?<!\s)\s+)?(?:\(|\)[,;]?)\s*)
  | (?P<comma>[,，、]\s+)
  | (?P<and>(?<!\s)\s+(?:and|&|plus|or|nor)\s+)
  | (?P<then>(?<!\s)\s+(?:then|afterwards)\s+)
  | (?P<sub>(?<!\s)\s+(?=(?:{_SUBORDINATE})\b))
    """,
    re.VERBOSE | re.IGNORECASE,
)
# Words after a sign that say no more than how the clause follows; they belong to the join.
_LEAD = re.compile(
    r"(?:(?:and|or|but|plus|then|next|also|finally|lastly|afterwards|first|second|third|please|so)\b[,\s]*)+",
    re.IGNORECASE,
)
_OWN = re.compile(
    r"\b(?:choose|compare|consider|decide|describe|explain|judge|pick|prefer|rank|recommend|rephrase|rewrite"
    r"|sum|summari[sz]e|tell|think|word)\b",
    re.IGNORECASE,
)
CONTEXT = "context"  # the reason of what asks for nothing
_GAP = 12  # characters between parts of a step that are taken as one: a comma, and a word that was left out
JOINS = ("start", "sentence", "semicolon", "colon", "dash", "bracket", "comma", "and", "then", "sub")


@dataclass(frozen=True, slots=True)
class Clause:
    """A part of a request, `query[start:end]`; `join` is what separates it from the one before."""

    start: int
    end: int
    join: str
    text: str


def clauses(query: str) -> list[Clause]:
    """Return the clauses of a request in order; together they hold all its words but leads."""
    found: list[Clause] = []
    before = JOINS[-1]
    for start, end, join in _pieces(query):
        head = _LEAD.match(query, start, end)
        begin = head.end() if head else start
        if not CONTRACTION.search(query, begin, end):
            # Nothing but a lead ("and", cut off by "then"): it leads what follows.
            before = stronger(before, join)
            continue
        found.append(Clause(begin, end, stronger(before, join), query[begin:end]))
        before = JOINS[-1]
    return found


def _pieces(query: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and join of what stands between signs, without blanks at either end."""
    held = [match.span() for match in _QUOTED.finditer(query)]
    start, join = 0, "start"
    for sign in _SIGNS.finditer(query):
        if any(a < sign.start() < b for a, b in held) or sign.end() <= start:
            continue
        kind = str(sign.lastgroup)
        if kind == "sentence" and _TITLE.search(query, max(0, start), sign.start()):
            continue
        yield from _stripped(query, start, sign.start(), join)
        # Of two signs that meet, as in ", and", the first says more.
        join = kind if CONTRACTION.search(query, start, sign.start()) else stronger(join, kind)
        start = sign.end()
    yield from _stripped(query, start, len(query), join)


def joined(parts: Sequence[Span]) -> list[Span]:
    """Return spans in order, near ones in one."""
    spans: list[Span] = []
    for start, end in parts:
        if spans and start - spans[-1][1] <= _GAP:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    return spans


def reason_of(text: str) -> str:
    """Return why a part of a task is left out."""
    return "own-work" if _OWN.search(text) else CONTEXT


def stronger(one: str, other: str) -> str:
    """Return the join that separates more."""
    return min(one, other, key=JOINS.index)


def _stripped(query: str, start: int, end: int, join: str) -> Iterator[tuple[int, int, str]]:
    while start < end and query[start].isspace():
        start += 1
    while end > start and (query[end - 1].isspace() or query[end - 1] in ",;:.!?"):
        end -= 1
    if start < end:
        yield start, end, join


Scores = npt.NDArray[np.float64]
# A clause that no step says this well is left out: overlap of words (0 to 1) and cosine, added up.
_LEAST = 0.55
_TAKEN = 0.3  # taken off a clause that another step says, for a step that says none well
_ASLANT = 0.2  # taken off a pair at opposite ends of steps and task; equal words are said in order
# Models often leave a condition out of a step's text; it is said of what stands beside it.
_CONDITION = re.compile(
    r"(?:if|unless|in case|provided|when|whenever|once|as soon as|should)\b", re.IGNORECASE
)
_NOBODY = -1
MOST_CLAUSES = 64
_TOLD = 160  # characters of what lies beyond the clauses that are read


def aligned(
    task: str, found: Sequence[Clause], texts: Sequence[str], cosines: npt.NDArray[np.floating]
) -> Draft:
    """Return steps with spans of the task, and what of it no step says.

    A clause belongs to the step that says it best. A step to which none belongs shares the one that says it
    best, so that spans of two steps are either the same or apart. `found` is its clauses; what comes after
    the first `MOST_CLAUSES` is left out. `cosines`: of steps and clauses, shape `(steps, clauses read)`.
    """
    read = found[:MOST_CLAUSES]
    if not read or not texts:
        whole = _whole(task)
        steps = [DraftStep(text, (whole,), task[slice(*whole)]) for text in texts]
        return Draft(tuple(steps), in_order=True)
    scores = _scores([c.text for c in read], texts, cosines[:, : len(read)])
    owners, says = _shared_out(scores, [bool(_CONDITION.match(c.text)) for c in read])
    steps = []
    for text, held in zip(texts, says, strict=True):
        spans = tuple(
            span for run in _runs(held, says) for span in joined([(read[c].start, read[c].end) for c in run])
        )
        steps.append(DraftStep(text, spans, words_of(task, spans)))
    left = [
        LeftOut(c.text, (c.start, c.end), reason_of(c.text))
        for c, owner in zip(read, owners, strict=True)
        if owner == _NOBODY
    ]
    if rest := found[MOST_CLAUSES:]:
        start, end = rest[0].start, rest[-1].end
        left.append(LeftOut(task[start:end][:_TOLD], (start, end), "too-long"))
    return Draft(tuple(steps), tuple(left), in_order=True)


def _whole(task: str) -> Span:
    start = len(task) - len(task.lstrip())
    return start, max(len(task.rstrip()), start)


def _scores(clauses: Sequence[str], texts: Sequence[str], cosines: npt.NDArray[np.floating]) -> Scores:
    """Return how well each step says each clause, shape `(steps, clauses)`."""
    own, said = [_terms(text) for text in texts], [_terms(text) for text in clauses]
    known = Counter(term for terms in said for term in terms)
    weight = {term: 1 / known[term] for term in known} | {t: 1.0 for s in own for t in s if t not in known}

    def mass(terms: frozenset[int]) -> float:
        return sum(weight[term] for term in sorted(terms))

    overlap = [[mass(a & b) / max(mass(a) * mass(b), 1e-9) ** 0.5 for b in said] for a in own]
    places = np.abs(np.subtract.outer(_places(len(texts)), _places(len(clauses))))
    return np.asarray(overlap) + np.asarray(cosines, dtype=np.float64) - _ASLANT * places


def _terms(text: str) -> frozenset[int]:
    terms = frozenset(term_sequence(text))
    return terms - function_terms() or terms


def _places(n: int) -> Scores:
    return (np.arange(n) + 0.5) / n


def _shared_out(scores: Scores, conditions: Sequence[bool]) -> tuple[list[int], list[list[int]]]:
    """Return the step to which each clause belongs, or `_NOBODY`, and the clauses that say each step."""
    owners = [int(np.argmax(s)) if np.max(s) >= _LEAST else _NOBODY for s in scores.T]
    beside = [*owners[1:], _NOBODY], [_NOBODY, *owners[:-1]]
    for clause, conditional in enumerate(conditions):
        if conditional and owners[clause] == _NOBODY:
            after, before = (row[clause] for row in beside)
            owners[clause] = before if after == _NOBODY else after
    says = [[c for c, owner in enumerate(owners) if owner == step] for step in range(len(scores))]
    for step, held in enumerate(says):
        if not held:
            clause = int(np.argmax(scores[step] - _TAKEN * (np.asarray(owners) != _NOBODY)))
            held.append(clause)
            owners[clause] = step if owners[clause] == _NOBODY else owners[clause]
    return owners, says


def _runs(held: Sequence[int], says: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return a step's clauses in runs of neighbours; one that another step shares is a run of its own."""
    alone = {clause for clause in held if sum(clause in other for other in says) == 1}
    runs = [[held[0]]]
    for before, clause in pairwise(held):
        if clause == before + 1 and {before, clause} <= alone:
            runs[-1].append(clause)
        else:
            runs.append([clause])
    return runs
