"""Files scanned for risks: by the rules on any text, then as each kind of code that they may be run as."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from storage.schemas import Finding
from tasks.refine.risks.context import plain_lines
from tasks.refine.risks.kinds import Kind, Part, is_disguised, parts_of
from tasks.refine.risks.python_code import python_hits
from tasks.refine.risks.rules import Hit, risk_rules
from tasks.refine.risks.scan import GRAVITY, excerpt, hit_lines, scan_all
from tasks.refine.risks.script_code import script_hits
from tasks.refine.risks.shell_code import shell_hits


class TextFile(NamedTuple):
    """A text, with its path in its skill's folder; `whole` is false of what was picked out of other bytes."""

    text: str
    path: str = "SKILL.md"
    whole: bool = True


DISGUISED = "obfuscation.disguised"
FETCHED, PIPED = "remote.fetched-run", "remote.pipe-to-shell"
Analysis = Callable[[str], Iterable[Hit]]
ANALYSES: Mapping[Kind, tuple[Analysis, ...]] = {
    "shell": (shell_hits,),
    "python": (python_hits,),
    "javascript": (script_hits,),
    "text": (script_hits,),
}
# Characters of a text that is analysed as code, and as that of a shell, which takes longest.
_MOST_CHARS, _MOST_SHELL = 1_000_000, 500_000


def scan_files(files: Sequence[TextFile]) -> list[tuple[Finding, ...]]:
    """Return the risks of each of many texts: one finding a rule; some hundred at a time are fastest."""
    files = [file._replace(text=plain_lines(file.text)) for file in files]
    by_rules = scan_all([file.text for file in files])
    return [(*found, *analysed(file, found)) for found, file in zip(by_rules, files, strict=True)]


def analysed(file: TextFile, by_rules: Sequence[Finding] = ()) -> Iterator[Finding]:
    """Yield what analyses of its code say of a text, but for what findings of the rules tell already."""
    hits: dict[str, list[Hit]] = {}
    parts = list(parts_of(file.text, file.path))
    if file.whole and is_disguised(file.path, {part.kind for part in parts}):
        hits[DISGUISED] = [Hit(DISGUISED, 1, file.text)]
    for part in parts:
        for hit in _of_part(part):
            hits.setdefault(hit.rule, []).append(hit)
    if FETCHED in hits:
        hits[FETCHED] = _untold(file.text, hits[FETCHED], by_rules)
    for rule, of_rule in hits.items():
        if of_rule:
            yield finding_on(rule, of_rule)


def _untold(text: str, fetched: Sequence[Hit], by_rules: Sequence[Finding]) -> list[Hit]:
    """Return the hits of fetched code that no finding on a plain pipe tells of already, as grave."""
    told = next((finding for finding in by_rules if finding.code == f"risk.{PIPED}"), None)
    if told is None:
        return list(fetched)
    lines, own = hit_lines(text, PIPED), risk_rules().by_id[FETCHED].severity
    return [
        hit
        for hit in fetched
        if hit.line not in lines or GRAVITY[hit.severity or own] > GRAVITY[told.severity]
    ]


def _of_part(part: Part) -> Iterator[Hit]:
    analyses, before = ANALYSES.get(part.kind, ()), part.line - 1
    if analyses and len(part.text) > (_MOST_SHELL if part.kind == "shell" else _MOST_CHARS):
        yield Hit("unscanned.code", part.line, f"{len(part.text):,} characters of {part.kind}")
        return
    for analysis in analyses:
        try:
            found = list(analysis(part.text))
        except Exception as error:  # no text may end the scan of all others
            found = [Hit("unscanned.code", 1, f"{part.kind}: {type(error).__name__}")]
        for hit in found:
            until = None if hit.until is None else hit.until + before
            yield hit._replace(line=hit.line + before, until=until)


def finding_on(rule_id: str, hits: Sequence[Hit]) -> Finding:
    """Return the finding on a rule's hits: of the gravest, the first of equals, with how many others."""
    rule = risk_rules().by_id[rule_id]
    worst = max(hits, key=lambda hit: GRAVITY[hit.severity or rule.severity])
    lines = f"line {worst.line}" + (f" to {worst.until}" if worst.until is not None else "")
    where = f"{lines}: " if worst.line else ""
    also = f" (and {len(hits) - 1:,} more)" if len(hits) > 1 else ""
    message = f"{where}{rule.description}: {excerpt(worst.text)}{also}"
    return Finding(f"risk.{rule_id}", worst.severity or rule.severity, message)
