"""Scans a text for risks: hints to check before an agent follows it, never a verdict of safety."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import itemgetter

from storage.schemas import Finding, Severity
from tasks.refine.risks.context import Surroundings
from tasks.refine.risks.measures import MEASURES, excerpt
from tasks.refine.risks.rules import RiskRule, RiskRules, risk_rules
from tasks.refine.risks.screen import Region, Screened, merged, screened

_GRAVITY: dict[Severity, int] = {"info": 0, "warning": 1, "error": 2}
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
# How far a match of the second pattern may extend beyond the distance a rule allows, in characters.
_REACH = 160
_BEFORE_NAME = frozenset("/ \t\n\"'`>=(")
_IN_NAME = re.compile(r"[\w-]|\.\w|/")
_UNCONTINUED = re.compile(r"(?<!\\)\n")


def _spans(pattern: re.Pattern[str], text: str, region: Region) -> Iterator[Region]:
    counted = {index for name, index in pattern.groupindex.items() if name.startswith("hit")}
    for match in pattern.finditer(text, *region):
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
    """Return where the rule's second pattern matches around its hits."""
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
        if rule.pattern:
            spans = _spans(rule.pattern, text.lowered, region)
            yield from _paired(rule, text.lowered, list(spans)) if rule.near else spans
        elif MEASURES[rule.measure](text.lowered[slice(*region)]) >= rule.at_least:
            yield region


def _is_known(place: str, known_hosts: frozenset[str]) -> bool:
    """Tell whether a host and path is known or lies below a known one."""
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


def _by_host(rule: RiskRule, text: Surroundings, span: Region) -> Severity:
    """Grade a download by the gravest URL in its span; if it has none, in the text after it."""
    urls = list(_URL.finditer(text.lowered, *span))
    if not urls:
        end = _ADDRESS_END.search(text.lowered, span[1], span[1] + 200)
        urls = list(_URL.finditer(text.lowered, span[1], end.start() if end else span[1] + 200))
    grades = (_of_address(rule, url, text.rules.known_hosts) for url in urls)
    return max(grades, key=_GRAVITY.__getitem__, default=rule.severity)


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
    weighed = [(_severity(rule, text, span), span) for span in islice(hits, _WEIGHED)]
    weighed += [(rule.severity, span) for span in islice(hits, 1)]
    if not weighed:
        return None
    severity, (start, end) = max(weighed, key=lambda hit: _GRAVITY[hit[0]])
    more = len(weighed) - 1 + sum(1 for _ in hits)
    also = f" (and {more:,} more)" if more else ""
    shown = excerpt(text.text[start:end])
    return Finding(f"risk.{rule.id}", severity, f"line {text.line(start)}: {rule.description}: {shown}{also}")


def scan_all(texts: Sequence[str], *, rules: RiskRules | None = None) -> list[tuple[Finding, ...]]:
    """Return the risks found in each of many files as `scan` does; some hundred at a time are fastest."""
    known = rules or risk_rules()
    found = []
    surroundings = [Surroundings(text, known) for text in texts]
    for text, may_hit in zip(surroundings, screened([s.lowered for s in surroundings], known), strict=True):
        of_text = (_finding(rule, text, may_hit) for rule in may_hit.rules)
        found.append(tuple(finding for finding in of_text if finding))
    return found


def scan(text: str, *, rules: RiskRules | None = None) -> tuple[Finding, ...]:
    """Return the risks found in a whole file: front matter, comments and body.

    There is one finding a rule, in the rules' order, with code `risk.<group>.<rule>`. Its message has the
    line (from 1) of the gravest hit, the rule's description and a harmless excerpt. If the rule says so, a
    hit in a code fence or a quotation is information, and one in a sentence that forbids it or in a text
    about security is one step less grave; a download is graded by its host. Time is linear in the text.

    Args:
        text: The file as fetched, decoded; nothing removed, for removed text may hide the risk.
        rules: None: the packaged rules.
    """
    return scan_all([text], rules=rules)[0]
