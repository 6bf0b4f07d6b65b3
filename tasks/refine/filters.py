"""Filters: each returns None to keep, or a reason and what it saw; their thresholds are one value."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from storage.errors import WrongInput
from storage.schemas import Finding
from tasks.refine.licences.policy import SERVE_POLICY, LicencePolicy, licence_class, require_classes
from tasks.refine.text.canonical import control_share
from tasks.refine.text.language import MIN_LETTERS, Language
from tasks.refine.text.rules import rules_data
from tasks.refine.text.scripts import UNSPACED_CLASS

_RULE = frozenset("-=_*")
_WRAPPING = " \t\n>*_`\"'“”<>[](){}-+#:!."
_TASK_MARK = re.compile(r"(?:[-*+]|\d{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")


@functools.cache
def _pattern() -> re.Pattern[str]:
    lines = rules_data("placeholders.yaml")["lines"]
    return re.compile("|".join(f"(?:{line})" for line in lines), re.IGNORECASE)


def is_placeholder(line: str) -> bool:
    """Tell whether a line stands for a text that is not there yet."""
    bare = _TASK_MARK.sub("", line.strip(), count=1)
    inner = bare.strip(_WRAPPING)
    return bool(inner) and bool(_pattern().fullmatch(inner) or _pattern().fullmatch(bare.strip()))


def only_placeholders(body: str) -> bool:
    """Tell whether a body is headings and placeholders alone, with at least one placeholder."""
    found = False
    for line in body.split("\n"):
        if not line.strip() or _HEADING.match(line) or set(line.strip()) <= _RULE:
            continue
        if not is_placeholder(line):
            return False
        found = True
    return found


Verdict: TypeAlias = tuple[str, str] | None
MAX_CONTROL_SHARE = 0.1
# The gravest first.
SEVERITIES = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class FilterLimits:
    """What the filters drop; `limits_from(dataclasses.asdict(limits))` is the same again.

    Args:
        max_control_share: A text with a larger share of control characters (0 to 1) is no text.
        min_words: A body of fewer words is too short.
        min_language_confidence: How sure (0 to 1) a language must be told; 0 drops nothing for it.
        drop_templates: Whether placeholders and unfilled templates are dropped.
        drop_licences: Classes of licences to drop; none by default, as the policy counts on the way out.
        drop_risks: The least severity of a risk finding for which a document is dropped; None drops none.
        policy: Which licence is of which class for `drop_licences`.

    Raises:
        WrongInput: A class or a severity is not known, or a number is out of its range.
    """

    max_control_share: float = MAX_CONTROL_SHARE
    min_words: int = 2
    min_language_confidence: float = 0.2
    drop_templates: bool = True
    drop_licences: tuple[str, ...] = ()
    drop_risks: str | None = None
    policy: LicencePolicy = field(default=SERVE_POLICY)

    def __post_init__(self) -> None:
        object.__setattr__(self, "drop_licences", tuple(sorted(require_classes(self.drop_licences))))
        if self.drop_risks is not None and self.drop_risks not in SEVERITIES:
            msg = f"risk severity {self.drop_risks!r} is not known: choose one of {', '.join(SEVERITIES)}"
            raise WrongInput(msg)
        shares = (self.max_control_share, self.min_language_confidence)
        if self.min_words < 0 or not all(0 <= share <= 1 for share in shares):
            msg = f"{self}: shares are 0 to 1, numbers of words 0 or more"
            raise WrongInput(msg)


def limits_from(values: Mapping[str, Any]) -> FilterLimits:
    """Return the limits that a dict of their fields, as JSON has it, stands for; absent ones are defaults.

    Raises:
        WrongInput: As `FilterLimits` and `LicencePolicy` say.
    """
    policy = values.get("policy")
    given = {key: value for key, value in values.items() if key != "policy"}
    return FilterLimits(**given, policy=LicencePolicy(**policy) if policy else SERVE_POLICY)


def too_large(content: bytes | None, size: int) -> Verdict:
    """Drop a file that the crawler left unread because it was over its limit; `size` is in bytes."""
    if content is not None:
        return None
    return "too_large", f"{size:,} bytes: over the size limit, its content was not read"


def empty(content: bytes) -> Verdict:
    """Drop a file of zero bytes."""
    return None if content else ("empty", "the file has zero bytes")


def not_text(text: str, *, max_control_share: float = MAX_CONTROL_SHARE) -> Verdict:
    """Drop what is binary: compressed bytes are about a quarter control characters, text has hardly any."""
    share = control_share(text)
    if share <= max_control_share:
        return None
    return "not_text", f"{share:.0%} control characters, at most {max_control_share:.0%} allowed"


def template(description: str, body: str) -> Verdict:
    """Drop what its author has not written yet: a placeholder for a description, or nothing else as body."""
    if is_placeholder(description):
        return "template", f"its description is a placeholder: {description[:80]}"
    if only_placeholders(body):
        return "template", "its body is placeholders and headings"
    return None


def no_language(language: Language, *, min_confidence: float) -> Verdict:
    """Drop a text that is like no language the model knows; one too short to tell (40 letters) is kept."""
    if language.confidence >= min_confidence or language.letters < MIN_LETTERS:
        return None
    return "no_language", f"no language told with confidence {min_confidence:.2f} ({language.confidence:.2f})"


def licence_refused(licence: str | None, classes: Sequence[str], policy: LicencePolicy) -> Verdict:
    """Drop a document whose licence is of one of these classes under a policy; none named drops nothing."""
    found = licence_class(licence, policy)
    if found not in classes:
        return None
    return "licence_policy", f"licence {licence or 'unknown'} is of class {found}"


def too_risky(risks: Sequence[Finding], severity: str | None) -> Verdict:
    """Drop a document with a risk finding at least as grave as `severity`; None drops nothing."""
    if severity is None:
        return None
    grave = [r.code for r in risks if SEVERITIES.index(r.severity) <= SEVERITIES.index(severity)]
    return ("risk_policy", ", ".join(dict.fromkeys(grave))) if grave else None


_ATX = re.compile(r" {0,3}#{1,6}(?:[ \t].*)?$")
# One line of text and its underline; a list item, quote, table or fence above dashes is no heading.
_TEXT = re.compile(r" {0,3}(?![-*+>|`~ \t]|\d+[.)])")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-{2,})[ \t]*$")
_LIST_MARK = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?")
# A link, a reference's target, an address, a file to include; taken out one by one: a pattern of a line of
# them takes time exponential in their number.
_LINK = re.compile(
    r"!?\[[^\[\]]*\]\([^()]*\)|\[[^\[\]]+\]:[ \t]*\S+|<?https?://[^\s,;|]+|(?<![\w.])@[\w./-]+"
)
_HEAD_CHARS = 500
_WORD = re.compile(r"[^\W_]+")
# Scripts without spaces: two of their characters pass for a word.
_UNSPACED = re.compile(UNSPACED_CLASS)


def _only_headings(lines: list[str], *, or_links: bool = False) -> bool:
    """Tell whether a document has headings, marked or underlined, links if they count, and nothing else."""
    at = 0
    while at < len(lines):
        if not lines[at].strip() or _ATX.match(lines[at]) or (or_links and _only_links(lines[at])):
            at += 1
        elif _TEXT.match(lines[at]) and at + 1 < len(lines) and _UNDERLINE.match(lines[at + 1]):
            at += 2
        else:
            return False
    return True


def _only_links(line: str) -> bool:
    """Tell whether a line is a link or several, as a list item or not, and nothing else."""
    mark = _LIST_MARK.match(line)
    rest, links = _LINK.subn(" ", line[mark.end() if mark else 0 :])
    return links > 0 and not rest.strip(" \t,;|.")


def no_body(body: str) -> Verdict:
    """Drop a document that says nothing: a blank body, or headings with nothing below them."""
    if not body.strip():
        return "no_body", "nothing below the front matter"
    # Headings are no nodes, so a document of headings alone has nothing to page.
    if _only_headings(body.split("\n")):
        return "no_body", "only headings below the front matter"
    return None


def no_instructions(body: str) -> Verdict:
    """Drop a document of nothing but links, and headings above them: an index tells nobody what to do."""
    if not _only_headings(body.split("\n"), or_links=True):
        return None
    return "no_instructions", "only links and headings below the front matter"


def count_words(text: str) -> int:
    """Return a text's words; in scripts written without spaces two characters pass for one."""
    unspaced = len(_UNSPACED.findall(text))
    return len(_WORD.findall(_UNSPACED.sub(" ", text) if unspaced else text)) + (unspaced + 1) // 2


def too_short(body: str, *, min_words: int) -> Verdict:
    """Drop a body of fewer words than `min_words`; headings, code and links count."""
    # A body's start is enough to tell that it is long enough.
    words = count_words(body[:_HEAD_CHARS]) if len(body) > _HEAD_CHARS else 0
    words = words if words >= min_words else count_words(body)
    return ("too_short", f"{words} words, at least {min_words} wanted") if words < min_words else None
