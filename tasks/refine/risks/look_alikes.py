"""Look-alikes: names that a reader takes for one that was there before."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime

import polars as pl

from storage.schemas import Finding, Severity
from tasks.refine.risks.finders import is_one_edit
from tasks.refine.risks.rules import risk_rules
from tasks.refine.risks.scan import GRAVITY, excerpt

# Letters of other alphabets, in lower case, each before the Latin one that they are drawn like, and dashes.
# NFKD knows full widths and accents.
_ALIKE = (
    "аa вb еe іi јj кk мm нh оo рp сc ԁd тt уy хx ѕs һh ԛq ԝw ьb ӏl ԍg "
    "αa βb εe ηn ιi κk νv οo ρp τt υu χx ωw ϲc ϳj γy "
    "օo սu ոn հh ցg զq ıi ɑa ɡg ɩi ɪi ʏy ᴀa ᴄc ᴇe ᴋk ᴍm ᴏo ᴘp ᴛt ᴠv ᴡw ᴢz ‐- ‑- ‒- –- ―- −-"
)
_LATIN = {ord(pair[0]): pair[1] for pair in _ALIKE.split()}
_PAIRS = (("rn", "m"), ("vv", "w"))
_Row = tuple[str, str, str, datetime]  # id, name, owner, first seen
_LEAST = 6  # characters of a name of which one more or less is no other word
_LEAST_WORD = 5
_MOST_OWNERS = 1000  # of one name that are compared, the first ones
_WORD = re.compile(r"[^\W_]+")
_ENDING = re.compile(r"(?:ings?|ers?|ed|s|r|d)$")


def skeleton(name: str) -> str:
    """Return a name in the form in which names that are drawn alike are equal."""
    drawn = name.casefold()
    if not drawn.isascii():
        shown = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", name).casefold())
        shown = shown.translate(_LATIN)
        drawn = "".join(c for c in shown if not unicodedata.combining(c) and unicodedata.category(c) != "Cf")
    for pair, letter in _PAIRS:
        drawn = drawn.replace(pair, letter)
    return drawn


class KnownNames:
    """Names that are known, by what they look like."""

    def __init__(self, names: Iterable[str]) -> None:
        self._drawn: defaultdict[str, set[str]] = defaultdict(set)
        for name in names:
            self._drawn[skeleton(name)].add(name)
        # One edit leaves one half of a name as it is.
        self._halves: defaultdict[tuple[int, bool, str], list[str]] = defaultdict(list)
        for drawn in self._drawn:
            half = len(drawn) // 2
            self._halves[len(drawn), True, drawn[:half]].append(drawn)
            self._halves[len(drawn), False, drawn[half:]].append(drawn)
        self._words = Counter(word for drawn in self._drawn for word in {*_WORD.findall(drawn)})

    def like(self, name: str) -> Iterator[tuple[str, str, Severity]]:
        """Yield the known names that a name looks like without being one of them, how, and how grave that is.

        Letters that are drawn alike, and another case, have no other reason. One edit often makes another
        word, and that is information; one that makes a word of no other name is a slip to fall for.
        """
        drawn = skeleton(name)
        for other in sorted(self._drawn.get(drawn, set()) - {name}):
            how = "case" if other.casefold() == name.casefold() else "letters that are drawn alike"
            yield other, how, "warning"
        if len(drawn) < _LEAST:
            return
        near = {
            other
            for size in range(len(drawn) - 1, len(drawn) + 2)
            for key in ((size, True, drawn[: size // 2]), (size, False, drawn[-(size - size // 2) :]))
            for other in self._halves.get(key, ())
            if is_one_edit(drawn, other)
        }
        for other in sorted(near):
            grave: Severity = "warning" if self._is_slip(drawn, other) else "info"
            for one in sorted(self._drawn[other]):
                yield one, "one character", grave

    def _is_slip(self, drawn: str, other: str) -> bool:
        ours, theirs = _WORD.findall(drawn), _WORD.findall(other)
        changed = [(a, b) for a, b in zip(ours, theirs, strict=False) if a != b]
        if len(ours) != len(theirs) or len(changed) != 1:
            return False
        word, meant = changed[0]
        same = _ENDING.sub("", word) == _ENDING.sub("", meant)
        return len(word) >= _LEAST_WORD and self._words[word] == (drawn in self._drawn) and not same


def look_alikes(documents: pl.DataFrame, new: Collection[str]) -> dict[str, Finding]:
    """Return the risk of each new skill whose name, or owner's, looks like that of one that was there before.

    Skills of one name are many: it is as old as the first of them. An owner's own names are no risk.
    `documents` has the columns doc_id, kind, name, owner and first_seen_at; `new` are ids.
    """
    skills = documents.filter(pl.col("kind") == "skill").sort("first_seen_at", "doc_id")
    if not new or skills.is_empty():
        return {}
    rows = list(skills.select("doc_id", "name", "owner", "first_seen_at").iter_rows())
    by_name: defaultdict[str, list[_Row]] = defaultdict(list)
    for row in rows:
        by_name[row[1]].append(row)
    names, wanted = KnownNames(by_name), {*new}
    found = {row[0]: _gravest(row, names, by_name) for row in rows if row[0] in wanted}
    return {doc_id: risk for doc_id, risk in found.items() if risk}


def _gravest(row: _Row, names: KnownNames, by_name: dict[str, list[_Row]]) -> Finding | None:
    _, name, owner, since = row
    first = by_name[name][0][3]
    like = [
        (severity, f"{name} differs by {how} from {other}", elder)
        for other, how, severity in names.like(name)
        if (elder := next((e for e in by_name[other] if e[2] != owner and e[3] < first), None))
    ]
    like += [
        ("warning", f"{name} of {owner} looks like the one of {elder[2]}", elder)
        for elder in by_name[name][:_MOST_OWNERS]
        if elder[3] < since and _is_like_owner(owner, elder[2])
    ]
    if not like:
        return None
    severity, said, elder = max(like, key=lambda one: GRAVITY[one[0]])
    rule = risk_rules().by_id["identity.look-alike"]
    strange = sorted({f"U+{ord(c):04X}" for c in name + owner if not c.isascii()})
    letters = f" ({', '.join(strange[:5])})" if strange else ""
    whose = f"{excerpt(elder[0], limit=160)}, here since {elder[3]:%Y-%m-%d}"
    message = f"{rule.description}: {excerpt(said, limit=160)}{letters}: {whose}"
    return Finding(f"risk.{rule.id}", severity, message)


def _is_like_owner(one: str, other: str) -> bool:
    if one == other or one.startswith("local/") or min(len(one), len(other)) < _LEAST_WORD:
        return False
    drawn = skeleton(one), skeleton(other)
    return drawn[0] == drawn[1] or is_one_edit(*drawn)
