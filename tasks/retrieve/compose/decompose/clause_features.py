"""Features of a request's clauses: what stands in them, how they are joined, what came before."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.retrieve.compose.decompose.clauses import Clause
from tasks.retrieve.compose.decompose.words import WORD, classes_of

_SERVICE_WORDS = frozenset(
    ["in", "on", "at", "to", "from", "with", "via", "through", "into", "onto", "by", "using", "inside", "per"]
)


_TOLD_AHEAD = ("1=", "join", "verb", "service", "words")
_BOUNDS, _SIZES = (2, 4, 8), ("1", "2-3", "4-7", "8+")


def features(query: str, found: Sequence[Clause]) -> list[list[str]]:
    """Return the names of the features that hold of each clause."""
    own = [_of_clause(query, clause) for clause in found]
    sentences = _sentences(found)
    rows = []
    for i, clause in enumerate(found):
        row = [*own[i], *(f"sentence:{name}" for name in sentences[i])]
        row += [f"j={clause.join}:{name}" for name in own[i] if name.startswith(("1=", "verb", "service"))]
        if i:
            row += [f"before:{name}" for name in own[i - 1] if not name.startswith("lead")]
            if _first(own[i]) & _first(own[i - 1]):
                row.append("same-first")
        if i + 1 < len(found):
            row += [
                f"after:{name}"
                for name in own[i + 1]
                if name.startswith(("1=", "join", "verb", "service", "words"))
            ]
        else:
            row.append("last")
        rows.append(row)
    return rows


def _first(names: Sequence[str]) -> set[str]:
    return {name for name in names if name.startswith("1=")}


def _of_clause(query: str, clause: Clause) -> list[str]:
    words = WORD.findall(clause.text)
    kinds = [classes_of(word) for word in words]
    names = [f"join={clause.join}", *([f"lead={word}" for word in clause.lead.split()])]
    for place, kind in enumerate(kinds[:3], start=1):
        names += [f"{place}={name}" for name in kind]
    names += [f"w1={words[0].lower()}"]
    names += [f"has={name}" for name in {n for kind in kinds for n in kind} - {"other", "the", "prep", "-s"}]
    names.append(
        "words="
        + ("1" if len(words) == 1 else "2-3" if len(words) < 4 else "4-7" if len(words) < 8 else "8+")
    )
    if not any("act" in kind for kind in kinds):
        names.append(
            "verbless" if not any({"own", "aux", "wish"} & set(kind) for kind in kinds) else "verb-other"
        )
    if any("name" in kind for kind in kinds[1:]):
        names.append("name-inside")
    if any(w.lower() in _SERVICE_WORDS and "name" in k for w, k in zip(words, kinds[1:], strict=False)):
        names.append("service")
    if query[clause.end : clause.end + 2].startswith("?"):
        names.append("question")
    if any(sign in clause.text for sign in "'\"“`"):
        names.append("quoted")
    return names


def _sentences(found: Sequence[Clause]) -> list[list[str]]:
    """Return where each clause stands: in its sentence, after a colon, in the first or last sentence."""
    number, place, colon = -1, 0, False
    placed = []
    for clause in found:
        if clause.join in ("start", "sentence"):
            number, place, colon = number + 1, 0, False
        colon = colon or clause.join == "colon"
        placed.append((number, place, colon))
        place += 1
    last = placed[-1][0] if placed else 0
    return [
        [f"no{min(n, 2)}", f"place{min(p, 3)}", *(["colon"] if c else []), *(["last"] if n == last else []),
         *(["only"] if last == 0 else [])]
        for n, p, c in placed
    ]  # fmt: skip
