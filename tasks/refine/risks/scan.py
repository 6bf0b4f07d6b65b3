"""Scans a text for risks: hints to check before an agent follows it, never a verdict of safety."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter

import polars as pl

from storage.schemas import Finding, Severity
from tasks.models.redact import redact
from tasks.refine.risks.context import Surroundings
from tasks.refine.risks.finders import FINDERS
from tasks.refine.risks.rules import Region, RiskRule, RiskRules, risk_rules

# How far a match extends before and after one of its literals at most, and the least distance of two literals
# that each get a window, in characters.
_BEFORE, _AFTER, _STEP = 400, 600, 200
_BEHIND = 2  # characters after a screen's match that a finder may read over: a slash and the end of a line


class Screened:
    """The rules that may hit one text, and what it holds of their literals and of their screens."""

    def __init__(
        self, literals: frozenset[str], matches: Mapping[str, list[str]], rules: tuple[RiskRule, ...]
    ) -> None:
        self.rules = rules
        self._literals, self._matches = literals, matches

    def windows(self, rule: RiskRule, text: str) -> list[Region]:
        """Return the parts of a text, in order and apart, outside which the rule cannot hit."""
        if rule.screen:
            return merged([*self._around(rule, text)]) if rule.around else [(0, len(text))]
        found = []
        for literal in self._literals.intersection(rule.literals):
            at = text.find(literal)
            while at >= 0:
                found.append((max(0, at - _BEFORE), min(len(text), at + _AFTER)))
                # A step keeps the time linear in a text full of one literal.
                at = text.find(literal, at + _STEP)
        return merged(found)

    def _around(self, rule: RiskRule, text: str) -> Iterator[Region]:
        """Yield the whole lines around each match of the rule's screen: of a pattern, with those near it."""
        before, after = (0, _BEHIND) if rule.find else (_BEFORE, _AFTER)
        at = until = 0
        for match in self._matches[rule.id]:
            at = text.find(match, at)
            if at + len(match) + after >= until:
                line_end = text.find("\n", at + len(match) + after)
                until = line_end + 1 if line_end >= 0 else len(text)
                yield text.rfind("\n", 0, max(0, at - before)) + 1, until
            at += len(match)


def merged(regions: list[Region]) -> list[Region]:
    """Return regions in order; those that overlap or touch become one."""
    apart: list[Region] = []
    for start, end in sorted(regions):
        if apart and start <= apart[-1][1]:
            apart[-1] = (apart[-1][0], max(apart[-1][1], end))
        else:
            apart.append((start, end))
    return apart


def screened(texts: Sequence[str], rules: RiskRules) -> list[Screened]:
    """Return the rules that may hit each text (lower case): one Aho-Corasick automaton finds all literals."""
    column = pl.Series(texts, dtype=pl.String)
    literals = sorted({literal for rule in rules.rules for literal in rule.literals})
    held = column.str.extract_many(literals, overlapping=True).list.unique().to_list()
    passed: dict[str, list[list[str]]] = {
        rule.id: (column.str.extract_all if rule.around else column.str.contains)(rule.screen).to_list()
        for rule in rules.rules
        if rule.screen
    }

    def passes(rule: RiskRule, text: int, present: frozenset[str]) -> bool:
        return bool(passed[rule.id][text] if rule.screen else not present.isdisjoint(rule.literals))

    return [
        Screened(
            present,
            {rule.id: passed[rule.id][i] for rule in rules.rules if rule.around},
            tuple(rule for rule in rules.rules if passes(rule, i, present)),
        )
        for i, present in enumerate(map(frozenset, held))
    ]


_SEPARATOR = re.compile(r"[,;|/·•\n]")
_WORD = re.compile(r"[^\W\d_]{4,40}")
# Words that every description repeats.
_COMMON = frozenset({
    "when", "user", "users", "with", "that", "this", "from", "uses", "using", "used", "into", "skill",
    "skills", "also", "need", "needs", "wants", "asks", "such", "your", "their", "them", "and", "for",
    "the", "including", "includes", "about", "even", "mentions"
})  # fmt: skip
_ITEM_WORDS = 3
# Least share of short items: a sentence with an enumeration in it has longer pieces, too.
_SHARE = 0.7
# The commonest word must be at least one in so many words.
_WORD_SHARE = 8
EXCERPT_CHARS = 80
_MARKUP = str.maketrans("<>`[]|\\*#", "‹›'()¦/∗♯")
# Encoded data, and keys that no rule of redaction knows.
_LONG_TOKEN = re.compile(r"(?=[\w+/=-]{0,200}\d)[\w+=-]{20,}|[\w+/=-]{48,}")
_UNSEEN = {"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp", "Mn"}


def keyword_list(text: str) -> int:
    """Return the number of items of at most three words; 0 if fewer than 70 % of the items are so short."""
    items = [item for item in _SEPARATOR.split(text) if item.strip()]
    short = sum(len(item.split()) <= _ITEM_WORDS for item in items)
    return short if short >= _SHARE * len(items) else 0


def repeated_word(text: str) -> int:
    """Return how often a text's commonest word occurs; 0 if that is less than every eighth word."""
    words = [word for word in _WORD.findall(text.lower()) if word not in _COMMON]
    often = max(Counter(words).values(), default=0)
    return often if often * _WORD_SHARE >= len(words) else 0


MEASURES: Mapping[str, Callable[[str], int]] = {"keyword_list": keyword_list, "repeated_word": repeated_word}


def _seen(character: str) -> str:
    """Return a character as a reader sees it; of an invisible one its code point."""
    if character in {"\n", "\t"}:
        return " "
    if ord(character) < 0x7F and character >= " ":
        return character
    return f"U+{ord(character):04X} " if unicodedata.category(character) in _UNSEEN else character


def excerpt(text: str, *, limit: int = EXCERPT_CHARS) -> str:
    """Return the beginning of a text, safe to show: one visible line without markup, keys or links.

    Keys are redacted, long encoded runs cut to four characters, `http` becomes `hxxp`, marks of Markdown and
    HTML become look-alikes, and invisible characters their code point (`U+200B`). Only the first 2,000
    characters are read; a result longer than `limit` characters is cut and ends in `…`.
    """
    clear = _LONG_TOKEN.sub(lambda m: m[0][:4] + "…", redact(text[:2000])[0])
    shown = "".join(map(_seen, clear[: 2 * limit]))
    shown = " ".join(shown.replace("http", "hxxp").translate(_MARKUP).split())
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


GRAVITY: dict[Severity, int] = {"info": 0, "warning": 1, "error": 2}
# An attacker chooses the words around a hit, so they lower its severity by one step only.
_LOWER: dict[Severity, Severity] = {"error": "warning", "warning": "info", "info": "info"}
# How many hits of a rule are weighed by their context. One more counts in full: many harmless hits must not
# hide a grave one.
_WEIGHED = 50
# The part of a URL before an `@` is a login, not the host.
_URL = re.compile(
    r"(?P<scheme>https?)://(?:[^\s/?#\"'`)<>|,@]{0,120}@)?(?P<host>\[[0-9a-f:.]{2,45}\]|[^\s/?#:\"'`)<>|,]{1,253})"
    r"(?P<port>:\d{1,5}(?!\w))?(?P<path>/[^\s?#\"'`)<>|]{0,200})?"
)
_LOOPBACK = re.compile(r"(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$")
_PRIVATE = re.compile(r"(?:10|192\.168|172\.(?:1[6-9]|2\d|3[01]))(?:\.\d{1,3}){2,3}$")
_NUMBER = re.compile(r"(?:\d{1,3}\.){3}\d{1,3}$")
_ADDRESS_END = re.compile(r"[)`\n]")
# Where a command is spoken of, its address is left out.
_LEFT_OUT = re.compile(r"\b(?:curl|wget) (?:-\w+ )*(?:\.\.\.|…)? ?[|)]")
# How far a match of the second pattern may extend beyond the distance a rule allows, in characters.
_REACH = 160
_BEFORE_NAME = frozenset("/ \t\n\"'`>=(")
_IN_NAME = re.compile(r"[\w-]|\.\w|/")
_UNCONTINUED = re.compile(r"(?<!\\)\n")


def _spans(pattern: re.Pattern[str], text: str, region: Region) -> Iterator[Region]:
    for match in pattern.finditer(text, *region):
        counted = {index for name, index in pattern.groupindex.items() if name.startswith("hit")}
        if not counted:
            yield match.span()
        elif match.lastindex in counted:
            yield match.span(match.lastindex)


def _says(text: str, name: str, start: int, end: int) -> bool:
    """Tell whether a part of a text holds a file's name, as a word or the end of a path."""
    at = text.find(name, start, end)
    while at >= 0 and (text[at - 1] not in _BEFORE_NAME or _IN_NAME.match(text, at + len(name))):
        at = text.find(name, at + 1, end)
    return at >= 0


def _near(rule: RiskRule, text: str, hits: list[Region]) -> list[Region]:
    reach = rule.within + _REACH
    around = merged([(max(0, start - reach), end + reach) for start, end in hits])
    return [match.span() for region in around if rule.near for match in rule.near.finditer(text, *region)]


def _neighbours(rule: RiskRule, hit: Region, others: list[Region]) -> Iterator[Region]:
    """Yield the last match that begins before a hit and the first after it, if they are near enough."""
    before = bisect_right(others, hit[0], key=itemgetter(0)) - 1
    if before >= 0 and hit[0] - others[before][1] <= rule.within:
        yield others[before]
    after = bisect_left(others, hit[0], key=itemgetter(0)) if rule.order == "either" else len(others)
    if after < len(others) and others[after][0] - hit[1] <= rule.within:
        yield others[after]


def _paired(rule: RiskRule, text: str, hits: list[Region]) -> Iterator[Region]:
    """Yield the hits with a match of the rule's second pattern near them, as one span each."""
    others = _near(rule, text, hits)
    for hit in hits:
        for other in _neighbours(rule, hit, others):
            start, end = min(hit[0], other[0]), max(hit[1], other[1])
            named = not rule.named or _says(text, text[slice(*hit)], other[1], hit[0])
            # A line that the shell continues with a backslash does not end.
            if named and not (rule.line and _UNCONTINUED.search(text, start, end)):
                yield start, end
                break


def _hits(rule: RiskRule, text: Surroundings, screened: Screened) -> Iterator[Region]:
    everywhere = rule.where == "document"
    for region in screened.windows(rule, text.lowered) if everywhere else text.regions(rule.where):
        if rule.find:
            found = FINDERS[rule.find](text.text[slice(*region)])
            yield from ((region[0] + start, region[0] + end) for start, end in found)
        elif rule.pattern:
            spans = _spans(rule.pattern, text.lowered, region)
            yield from _paired(rule, text.lowered, list(spans)) if rule.near else spans
        elif MEASURES[rule.measure](text.lowered[slice(*region)]) >= rule.at_least:
            yield region


def _is_known(place: str, known_hosts: frozenset[str]) -> bool:
    # `..` could lead from a known path to any other.
    if ".." in place or "%2e" in place:
        return False
    return any(place == known or place.startswith(f"{known}/") for known in known_hosts)


def _of_address(rule: RiskRule, url: re.Match[str], known_hosts: frozenset[str]) -> Severity:
    """Grade a download by its URL: this machine, a number or plain HTTP, a known host, any other."""
    host = url["host"]
    # If `:` or `@` follows, what was matched as the host is part of a login.
    if url.string.startswith((":", "@"), url.end()) or _PRIVATE.match(host):
        return rule.severity
    if _LOOPBACK.match(host):
        return "info"
    if url["scheme"] == "http" or _NUMBER.match(host):
        return "error"
    return "info" if _is_known(host + (url["path"] or ""), known_hosts) else rule.severity


def by_address(rule: RiskRule, text: str, known_hosts: frozenset[str]) -> Severity:
    """Grade a download by the gravest URL in a text (lower case); the rule's own severity if it has none."""
    grades = (_of_address(rule, url, known_hosts) for url in _URL.finditer(text))
    return max(grades, key=GRAVITY.__getitem__, default=rule.severity)


def _by_host(rule: RiskRule, text: Surroundings, span: Region) -> Severity:
    """Grade a download by the gravest URL in its span; if it has none, in the text after it."""
    said, known = text.lowered[slice(*span)], text.rules.known_hosts
    if not _URL.search(said):
        if _LEFT_OUT.search(said):
            return "info"
        end = _ADDRESS_END.search(text.lowered, span[1], span[1] + 200)
        said = text.lowered[span[1] : end.start() if end else span[1] + 200]
    return by_address(rule, said, known)


def _severity(rule: RiskRule, text: Surroundings, span: Region) -> Severity:
    """Grade a hit: in code or quotation marks it is information; other contexts lower it by one step."""
    severity = _by_host(rule, text, span) if rule.hosts else rule.severity
    applying = [c for c in sorted(rule.weighed_by) if severity != "info" and text.applies(c, *span)]
    if {"fence", "quote"} & set(applying):
        return "info"
    return _LOWER[severity] if applying else severity


def _finding(rule: RiskRule, text: Surroundings, screened: Screened) -> Finding | None:
    """Return one finding on the rule's gravest hit (the first of equals), with the number of others."""
    hits = _hits(rule, text, screened)
    if (first := next(hits, None)) is None:
        return None
    weighed = [(_severity(rule, text, span), span) for span in (first, *islice(hits, _WEIGHED - 1))]
    weighed += [(rule.severity, span) for span in islice(hits, 1)]
    severity, (start, end) = max(weighed, key=lambda hit: GRAVITY[hit[0]])
    more = len(weighed) - 1 + sum(1 for _ in hits)
    also = f" (and {more:,} more)" if more else ""
    shown = excerpt(text.text[start:end])
    return Finding(f"risk.{rule.id}", severity, f"line {text.line(start)}: {rule.description}: {shown}{also}")


def _prepared(texts: Sequence[str], rules: RiskRules) -> Iterator[tuple[Surroundings, Screened]]:
    surroundings = [Surroundings(text, rules) for text in texts]
    return zip(surroundings, screened([s.lowered for s in surroundings], rules), strict=True)


def scan_all(texts: Sequence[str], *, rules: RiskRules | None = None) -> list[tuple[Finding, ...]]:
    """Return the risks found in each of many files as `scan` does; some hundred at a time are fastest."""
    found = []
    for text, may_hit in _prepared(texts, rules or risk_rules()):
        of_text = (_finding(rule, text, may_hit) for rule in may_hit.rules)
        found.append(tuple(finding for finding in of_text if finding))
    return found


def hit_lines(text: str, rule_id: str) -> frozenset[int]:
    """Return the numbers of the lines on which what a rule hits begins or ends."""
    ((around, may_hit),) = _prepared([text], risk_rules())
    rules = [rule for rule in may_hit.rules if rule.id == rule_id]
    places = [place for rule in rules for hit in _hits(rule, around, may_hit) for place in hit]
    return frozenset(map(around.line, places))


def hit_digests(texts: Sequence[str], rule_ids: Collection[str]) -> list[dict[str, str]]:
    """Return, of each of many files, the SHA-256 of the lines that each of some rules hits there, by rule."""
    found = []
    for text, may_hit in _prepared(texts, risk_rules()):
        rules = [rule for rule in may_hit.rules if rule.id in rule_ids]
        lines = {
            rule.id: merged([*{text.lines(*hit) for hit in _hits(rule, text, may_hit)}]) for rule in rules
        }
        said = {rule: "\n".join(text.text[slice(*one)] for one in hit) for rule, hit in lines.items() if hit}
        found.append({rule: hashlib.sha256(hit.encode()).hexdigest() for rule, hit in said.items()})
    return found


def scan(text: str, *, rules: RiskRules | None = None) -> tuple[Finding, ...]:
    """Return the risks found in a whole file as fetched: front matter, comments and body.

    There is one finding a rule, in the rules' order, with code `risk.<group>.<rule>`. Its message has the
    line (from 1) of the gravest hit, the rule's description and a harmless excerpt. If the rule says so, a
    hit in a code fence or a quotation is information, and one in a sentence that forbids it or in a text
    about security is one step less grave; a download is graded by its host. Time is linear in the text.
    """
    return scan_all([text], rules=rules)[0]
