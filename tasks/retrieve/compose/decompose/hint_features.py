"""Features of clauses against hints: what serves a clause, what serves it and its neighbour, how well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tasks.retrieve.compose.decompose.clauses import Clause
from tasks.retrieve.compose.decompose.matches import Matcher, Matches

# Lower bounds, in standard deviations; a feature holds for each bound that is passed.
_SCORES = (2.0, 3.5, 5.0, 6.5, 8.0, 10.0, 13.0)
_LEXICAL = (1.0, 2.0, 4.0, 6.0, 8.0, 11.0)
_CLEAR = 2.0  # the best leads the second by more
_GAIN = 0.5  # two clauses together match better than each by itself
_WEAK, _STRONG = 4.0, 6.0
_NEAR = 3  # best rows of two clauses that are compared


def hint_features(found: Sequence[Clause], hints: Sequence[int], matcher: Matcher) -> list[list[str]]:
    """Return the names of the features that hold of each clause, given the rows that were hinted at."""
    chosen = frozenset(hints)
    whole = [matcher.find(clause.text) for clause in found]
    hinted = [matches.among(chosen) for matches in whole]
    rows = []
    for i in range(len(found)):
        row = [*_alone(whole[i], hinted[i])]
        for j, side in ((i - 1, "before"), (i + 1, "after")):
            if 0 <= j < len(found):
                together = matcher.find(f"{found[min(i, j)].text}, {found[max(i, j)].text}")
                row += _beside(hinted[i], hinted[j], together, side)
        rows.append(row)
    return rows


def _alone(whole: Matches, hinted: Matches) -> Iterator[str]:
    if not len(hinted.rows):
        yield "hint:none"
        return
    yield from (f"hint:score>{bound:g}" for bound in _SCORES if hinted.best > bound)
    yield from (f"hint:words>{bound:g}" for bound in _LEXICAL if hinted.lexical[0] > bound)
    if len(hinted.rows) > 1 and hinted.scores[0] - hinted.scores[1] > _CLEAR:
        yield "hint:clear"
    yield "hint:first" if whole.rows[0] == hinted.rows[0] else "hint:later"


def _beside(own: Matches, other: Matches, together: Matches, side: str) -> Iterator[str]:
    """Yield how what serves a clause relates to what serves the one before or after it."""
    if len(own.rows) and len(other.rows):
        if own.rows[0] == other.rows[0]:
            yield f"hint:same-{side}"
        shared = set(own.rows[:_NEAR].tolist()) & set(other.rows[:_NEAR].tolist())
        yield f"hint:shared-{side}" if shared else f"hint:apart-{side}"
        if own.best < _WEAK and other.best > _STRONG:
            yield f"hint:weaker-{side}"
    if together.best > max(own.best, other.best) + _GAIN:
        yield f"hint:gain-{side}"
    if len(own.rows) and together.rows[0] == own.rows[0]:
        yield f"hint:mine-{side}"
    if len(other.rows) and together.rows[0] == other.rows[0]:
        yield f"hint:theirs-{side}"
