"""Scans a text for risks: what a reader should check before an agent follows it.

Never a verdict of safety.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice

from storage.schemas import Finding, Severity
from tasks.refine.risks.context import Surroundings
from tasks.refine.risks.measures import MEASURES, excerpt
from tasks.refine.risks.rules import RiskRule, RiskRules, risk_rules
from tasks.refine.risks.screen import Region, Screened, merged, screened

_GRAVITY: dict[Severity, int] = {"info": 0, "warning": 1, "error": 2}
# A writer chooses his words, so that they can lower a severity by one step only.
_LOWER: dict[Severity, Severity] = {"error": "warning", "warning": "info", "info": "info"}
# Weighing looks at the surroundings of a hit; beyond so many, one more counts as it is, lest they hide it.
_WEIGHED = 50
# What stands before an `@` is a login, not the host.
_URL = re.compile(
    r"(?P<scheme>https?)://(?:[^\s/?#\"'`)<>|,@]{0,120}@)?(?P<host>\[[0-9a-f:.]{2,45}\]|[^\s/?#:\"'`)<>|,]{1,253})"
    r"(?P<port>:\d{1,5}(?!\w))?(?P<path>/[^\s?#\"'`)<>|]{0,200})?"
)
_LOOPBACK = re.compile(r"(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$")
_PRIVATE = re.compile(r"(?:10|192\.168|172\.(?:1[6-9]|2\d|3[01]))(?:\.\d{1,3}){2,3}$")
_NUMBER = re.compile(r"(?:\d{1,3}\.){3}\d{1,3}$")
_ADDRESS_END = re.compile(r"[)`\n]")
# A second pattern may begin so far before the place that is near enough.
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


def _one_line(text: str, start: int, end: int) -> bool:
    """Tell whether no line ends in between, but for lines that the shell joins."""
    return _UNCONTINUED.search(text, start, end) is None


def _says(text: str, name: str, start: int, end: int) -> bool:
    """Tell whether a file's name stands in a part of a text, as a word or the end of a path."""
    at = text.find(name, start, end)
    while at >= 0 and (text[at - 1] not in _BEFORE_NAME or _IN_NAME.match(text, at + len(name))):
        at = text.find(name, at + 1, end)
    return at >= 0


def _near(rule: RiskRule, text: str, hits: list[Region]) -> list[Region]:
    """Return where the rule's second pattern matches close to its hits."""
    around = merged(
        [(max(0, start - rule.within - _REACH), end + rule.within + _REACH) for start, end in hits]
    )
    return [match.span() for region in around if rule.near for match in rule.near.finditer(text, *region)]


def _paired(rule: RiskRule, text: str, hits: list[Region]) -> Iterator[Region]:
    """Yield the hits that have the rule's second pattern near them, each with it in its span."""
    others = _near(rule, text, hits)
    starts = [start for start, _ in others]
    for start, end in hits if others else ():
        before = bisect_right(starts, start) - 1
        near_by = [others[before]] if before >= 0 and start - others[before][1] <= rule.within else []
        if rule.order == "either":
            after = bisect_left(starts, start)
            near_by += [others[after]] if after < len(others) and starts[after] - end <= rule.within else []
        if rule.named:
            near_by = [other for other in near_by if _says(text, text[start:end], other[1], start)]
        spans = ((min(start, other[0]), max(end, other[1])) for other in near_by)
        whole = next((span for span in spans if not rule.line or _one_line(text, *span)), None)
        if whole:
            yield whole


def _measured(rule: RiskRule, text: str, region: Region) -> Iterator[Region]:
    if MEASURES[rule.measure](text[slice(*region)]) >= rule.at_least:
        yield region


def _hits(rule: RiskRule, text: Surroundings, screened: Screened) -> Iterator[Region]:
    everywhere = rule.where == "document"
    for region in screened.windows(rule, text.lowered) if everywhere else text.regions(rule.where):
        if rule.measure:
            yield from _measured(rule, text.lowered, region)
        elif rule.pattern:
            spans = _spans(rule.pattern, text.lowered, region)
            yield from _paired(rule, text.lowered, list(spans)) if rule.near else spans


def _is_known(place: str, known_hosts: frozenset[str]) -> bool:
    """Tell whether a host and path is a known one or lies below it, with no way up again."""
    if ".." in place or "%2e" in place:
        return False
    host = place.partition("/")[0]
    return host in known_hosts or any(
        place == k or place.startswith(f"{k}/") for k in known_hosts if "/" in k
    )


def _of_address(rule: RiskRule, url: re.Match[str], known_hosts: frozenset[str]) -> Severity:
    """Grade a download by its address: this machine, numbers and plain HTTP, known installers, others."""
    host = url["host"]
    if url.string.startswith((":", "@"), url.end()):
        return rule.severity
    if _LOOPBACK.match(host):
        return "info"
    if _PRIVATE.match(host):
        return rule.severity
    if url["scheme"] == "http" or _NUMBER.match(host):
        return "error"
    return "info" if _is_known(host + (url["path"] or ""), known_hosts) else rule.severity


def _by_host(rule: RiskRule, text: Surroundings, span: Region) -> Severity:
    """Grade a download by the gravest address in its span, or in what follows it where there is none."""
    urls = list(_URL.finditer(text.lowered, *span))
    if not urls:
        end = _ADDRESS_END.search(text.lowered, span[1], span[1] + 200)
        urls = list(_URL.finditer(text.lowered, span[1], end.start() if end else span[1] + 200))
    grades = (_of_address(rule, url, text.rules.known_hosts) for url in urls)
    return max(grades, key=_GRAVITY.__getitem__, default=rule.severity)


def _severity(rule: RiskRule, text: Surroundings, span: Region) -> Severity:
    """Grade a hit; what stands in code or quotation marks is information, the author's words lower a step."""
    severity = _by_host(rule, text, span) if rule.hosts else rule.severity
    applying = [c for c in sorted(rule.weighed_by) if severity != "info" and text.applies(c, *span)]
    if {"fence", "quote"} & set(applying):
        return "info"
    return _LOWER[severity] if applying else severity


def _finding(rule: RiskRule, text: Surroundings, screened: Screened) -> Finding | None:
    """Return the rule's one finding: its gravest hit, the first of such, and how many more there are."""
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
    """Return the risks found in each of many whole files; see `scan`, which is slower a file.

    Args:
        texts: A batch of files as `scan` takes them; some hundred at a time are fastest.
        rules: The packaged ones where None.
    """
    known = rules or risk_rules()
    found = []
    surroundings = [Surroundings(text, known) for text in texts]
    for text, may_hit in zip(surroundings, screened([s.lowered for s in surroundings], known), strict=True):
        of_text = (_finding(rule, text, may_hit) for rule in may_hit.rules)
        found.append(tuple(finding for finding in of_text if finding))
    return found


def scan(text: str, *, rules: RiskRules | None = None) -> tuple[Finding, ...]:
    """Return the risks found in a whole file: front matter, comments and body.

    One finding a rule, in the rules' order, with code `risk.<group>.<rule>`; its message names the line
    (from 1) of the gravest hit, says what the rule is about, and shows a harmless excerpt. Where its rule
    says so, a hit in a code fence or a quotation is information, and one in a sentence that forbids it or
    in a text about security weighs one step less; a download weighs by its host. No finding means just
    that: nothing was found. Takes time linear in the text.

    Args:
        text: The file as fetched, decoded; nothing removed, for what is removed may be what hides.
        rules: The packaged ones where None.
    """
    return scan_all([text], rules=rules)[0]
