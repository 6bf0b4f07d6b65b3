"""Filters: each returns None to keep a document, or a reason and a detail to drop it."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from storage.errors import WrongInput
from storage.schemas import Finding
from tasks.refine.licences.policy import SERVE_POLICY, LicencePolicy, licence_class, require_classes
from tasks.refine.text.canonical import MAX_CONTROL_SHARE, control_share
from tasks.refine.text.language import MIN_LETTERS, Language
from tasks.refine.text.markdown import HEADING, LIST_MARK
from tasks.refine.text.rules import rules_data
from tasks.refine.text.words import COUNTED_END, count_words

Verdict: TypeAlias = tuple[str, str] | None
# The longest of 20,000 skills has 3,000 lines. Time and memory of parsing grow with the square of the nodes.
MAX_PARTS = 20_000
# The gravest first.
SEVERITIES = ("error", "warning", "info")
_RULE = frozenset("-=_*")
_WRAPPING = " \t\n>*_`\"'“”<>[](){}-+#:!."
_TASK_MARK = re.compile(r"(?:[-*+]|\d{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?")
# One line of text and its underline; a list item, quote, table or fence above dashes is no heading.
_TEXT = re.compile(r"\A {0,3}(?![-*+>|`~ \t]|\d+[.)])")
_UNDERLINE = re.compile(r"\A {0,3}(?:=+|-{2,})[ \t]*$")
# A link, a reference's target, an address, a file to include; taken out one by one: a pattern of a line of
# them takes time exponential in their number.
_LINK = re.compile(
    r"!?\[[^\[\]]*\]\([^()]*\)|\[[^\[\]]+\]:[ \t]*\S+|<?https?://[^\s,;|]+|(?<![\w.])@[\w./-]+"
)
_HEAD_CHARS = 500


@dataclass(frozen=True, slots=True)
class FilterLimits:
    """Thresholds of the filters.

    Raises:
        WrongInput: A class or a severity is unknown, or a number is out of its range.
    """

    max_control_share: float = MAX_CONTROL_SHARE  # largest share of control characters in a text, 0 to 1
    min_words: int = 2  # fewest words of a body
    max_parts: int = MAX_PARTS  # most lines and sentences of a body, from 1: each may become a node
    min_language_confidence: float = 0.2  # least confidence of the language, 0 to 1; 0 drops nothing
    drop_templates: bool = True  # whether placeholders and unfilled templates are dropped
    # Classes of licences to drop; none by default: the policy applies when texts are served.
    drop_licences: tuple[str, ...] = ()
    # Least severity of a risk finding that drops a document; None drops nothing.
    drop_risks: str | None = None
    policy: LicencePolicy = field(default=SERVE_POLICY)  # which licence is of which class for `drop_licences`

    def __post_init__(self) -> None:
        object.__setattr__(self, "drop_licences", tuple(sorted(require_classes(self.drop_licences))))
        if self.drop_risks is not None and self.drop_risks not in SEVERITIES:
            msg = f"risk severity {self.drop_risks!r} is not known: choose one of {', '.join(SEVERITIES)}"
            raise WrongInput(msg)
        shares = (self.max_control_share, self.min_language_confidence)
        if self.min_words < 0 or self.max_parts < 1 or not all(0 <= share <= 1 for share in shares):
            raise WrongInput(f"{self}: shares are 0 to 1, numbers of words 0 or more")


def not_text(text: str, *, max_control_share: float = MAX_CONTROL_SHARE) -> Verdict:
    """Drop binary content: compressed bytes are about a quarter control characters, text has hardly any."""
    share = control_share(text)
    if share <= max_control_share:
        return None
    return "not_text", f"{share:.0%} control characters, at most {max_control_share:.0%} allowed"


def template(description: str, body: str) -> Verdict:
    """Drop a template that its author has not filled: the description or the whole body is placeholders."""
    if is_placeholder(description):
        return "template", f"its description is a placeholder: {description[:80]}"
    if only_placeholders(body):
        return "template", "its body is placeholders and headings"
    return None


@functools.cache
def _placeholder() -> re.Pattern[str]:
    lines = rules_data("placeholders.yaml")["lines"]
    return re.compile("|".join(f"(?:{line})" for line in lines), re.IGNORECASE)


def is_placeholder(line: str) -> bool:
    """Tell whether a line stands for a text that is not written yet."""
    bare = _TASK_MARK.sub("", line.strip(), count=1)
    inner = bare.strip(_WRAPPING)
    return bool(inner) and any(map(_placeholder().fullmatch, (inner, bare.strip())))


def only_placeholders(body: str) -> bool:
    """Tell whether a body is headings and placeholders alone, with at least one placeholder."""
    lines = (line for line in body.split("\n") if line.strip())
    text = (line for line in lines if not HEADING.match(line) and not set(line.strip()) <= _RULE)
    told = map(is_placeholder, text)  # most bodies are told by their first line
    return next(told, False) and all(told)


def no_language(language: Language, *, min_confidence: float) -> Verdict:
    """Drop a text in no language the model knows; keep one with too few letters (40) to tell."""
    if language.confidence >= min_confidence or language.letters < MIN_LETTERS:
        return None
    return "no_language", f"no language told with confidence {min_confidence:.2f} ({language.confidence:.2f})"


def licence_refused(licence: str | None, classes: Sequence[str], policy: LicencePolicy) -> Verdict:
    """Drop a document whose licence is of one of these classes under a policy."""
    found = licence_class(licence, policy)
    if found not in classes:
        return None
    return "licence_policy", f"licence {licence or 'unknown'} is of class {found}"


def too_risky(risks: Sequence[Finding], severity: str | None) -> Verdict:
    """Drop a document with a risk finding at least as grave as `severity`; None drops nothing."""
    counted = SEVERITIES[: SEVERITIES.index(severity) + 1] if severity else ()
    grave = dict.fromkeys(risk.code for risk in risks if risk.severity in counted)
    return ("risk_policy", ", ".join(grave)) if grave else None


def _only_headings(lines: list[str], *, or_links: bool = False) -> bool:
    """Tell whether all lines are blank or headings, marked or underlined, or, if they count, links."""
    at = 0
    while at < len(lines):
        if not lines[at].strip() or HEADING.match(lines[at]) or (or_links and _only_links(lines[at])):
            at += 1
        elif _TEXT.match(lines[at]) and at + 1 < len(lines) and _UNDERLINE.match(lines[at + 1]):
            at += 2
        else:
            return False
    return True


def _only_links(line: str) -> bool:
    mark = LIST_MARK.match(line)
    rest, links = _LINK.subn(" ", line[mark.end() if mark else 0 :])
    return links > 0 and not rest.strip(" \t,;|.")


def no_body(body: str) -> Verdict:
    """Drop a document without content: its body is blank, or headings with nothing below them."""
    if not body.strip():
        return "no_body", "nothing below the front matter"
    # Headings become no nodes, so paging would find nothing to return.
    if _only_headings(body.split("\n")):
        return "no_body", "only headings below the front matter"
    return None


def no_instructions(body: str) -> Verdict:
    """Drop a document of links and headings alone: an index tells nobody what to do."""
    if not _only_headings(body.split("\n"), or_links=True):
        return None
    return "no_instructions", "only links and headings below the front matter"


def too_many_parts(body: str, *, max_parts: int) -> Verdict:
    """Drop a body of so many lines and sentences that its nodes would hold up all others."""
    if len(body) <= max_parts:  # most bodies: nothing is counted
        return None
    parts = body.count("\n") + len(COUNTED_END.findall(body))
    return (
        ("too_many_parts", f"{parts} lines and sentences, at most {max_parts}") if parts > max_parts else None
    )


def too_short(body: str, *, min_words: int) -> Verdict:
    """Drop a body of fewer than `min_words` words; headings, code and links count."""
    # The start of a long body nearly always has enough words: counting stops there.
    words = count_words(body[:_HEAD_CHARS]) if len(body) > _HEAD_CHARS else 0
    words = words if words >= min_words else count_words(body)
    return ("too_short", f"{words} words, at least {min_words} wanted") if words < min_words else None
