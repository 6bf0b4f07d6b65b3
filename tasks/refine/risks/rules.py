"""The risk rules, read from data; a rule with an error is refused when it is read."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from storage.errors import TerminalError
from storage.schemas import Severity
from tasks.models.redact import secret_rules_text
from tasks.refine.text.rules import parse_rules, rules_text

# To be raised when the code around the rules gives other findings than before; the rules' text is in the
# digest by itself.
RULES_VERSION = 5
GROUPS = (
    "override", "hidden", "credential", "exfiltration", "remote", "obfuscation", "permission", "discovery",
    "persistence", "dependency", "mcp", "unscanned", "path", "identity", "opinion",
)  # fmt: skip
Region = tuple[int, int]
Context = Literal["fence", "quote", "negation", "education", "service"]
_FILE = "risk_rules.yaml"
_FILES = (_FILE, "code_terms.yaml", "known_packages.yaml")


class RiskRuleError(TerminalError):
    """A rule of the data file cannot be used; the message names it."""


@dataclass(frozen=True, slots=True)
class RiskRule:
    """One rule of the data file, whose head describes the fields; patterns are compiled."""

    id: str
    severity: Severity
    description: str
    hits: tuple[str, ...] = ()
    near_misses: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    near: re.Pattern[str] | None = None
    within: int = 0
    order: Literal["before", "either"] = "before"
    line: bool = False
    named: bool = False
    literals: tuple[str, ...] = ()
    screen: str = ""
    around: bool = False
    where: str = "document"
    weighed_by: frozenset[Context] = frozenset()
    hosts: bool = False
    measure: str = ""
    at_least: int = 0
    find: str = ""
    # What finds it where neither a pattern nor a measure does; then no example of it stands here.
    by: Literal["", "files", "code", "names", "llm"] = ""

    @property
    def group(self) -> str:
        """The first part of the id."""
        return self.id.partition(".")[0]


class Hit(NamedTuple):
    """What an analysis found: the id of its rule in the data file, the line (from 1) and what stands there.

    Line 0 is the whole file; `until` is the line of what the first one reaches; `severity` stands instead of
    the rule's.
    """

    rule: str
    line: int
    text: str
    until: int | None = None
    severity: Severity | None = None


@dataclass(frozen=True)
class RiskRules:
    """All rules in the file's order, what grades hits (hosts, terms, negations), and why a group matters."""

    rules: tuple[RiskRule, ...]
    known_hosts: frozenset[str]
    education: tuple[str, ...]
    education_terms: int
    negation: re.Pattern[str]
    why: Mapping[str, str]

    @functools.cached_property
    def by_id(self) -> dict[str, RiskRule]:
        """The rules by their ids."""
        return {rule.id: rule for rule in self.rules}


def pattern_of(given: str | list[str]) -> re.Pattern[str]:
    """Compile a rule's pattern: a list is an alternation; a blank matches one to eight white characters."""
    joined = "|".join(given) if isinstance(given, list) else given
    # A word begins behind the mark that stands for a new line in a string, too.
    joined = re.sub(r"\\b(curl|wget)", r"(?:\\b|(?<=\\\\n))\1", joined)
    return re.compile(joined.replace(" ", r"(?:\s{1,8})"))


def _rule(row: dict[str, Any]) -> RiskRule:
    given = {**row, "weighed_by": frozenset(row.get("weighed_by", ()))}
    given |= {key: pattern_of(row[key]) for key in ("pattern", "near") if key in row}
    if "around" in row and "pattern" in row:
        given["screen"] = row["screen"].replace(" ", r"[\s\x1c-\x1f]+")  # what Python's `\s` matches
    given |= {key: tuple(row[key]) for key in ("literals", "hits", "near_misses") if key in row}
    rule = RiskRule(**given)
    known = rule.group in GROUPS and rule.severity in get_args(Severity)
    known = known and rule.weighed_by <= set(get_args(Context))
    # A rule needs one way to hit, and one cheap test that spares it most texts.
    ways = sum(map(bool, (rule.pattern, rule.measure, rule.find, rule.by)))
    if not known or ways != 1 or bool(rule.literals) + bool(rule.screen) != (not rule.by):
        wrong = "has an unknown group, severity or context, no pattern, or no cheap test"
        raise RiskRuleError(f"{_FILE}: rule {rule.id} {wrong}")
    return rule


def rules_from(text: str) -> RiskRules:
    """Read rules from YAML in the form of the packaged file.

    Raises:
        RiskRuleError: A rule is incomplete, names what is not known, or its id is taken.
    """
    data = parse_rules(text)
    try:
        rules = tuple(_rule(row) for row in data["rules"])
    except (TypeError, KeyError, re.error) as error:
        raise RiskRuleError(f"{_FILE}: a rule cannot be read ({error})") from error
    if len({rule.id for rule in rules}) < len(rules):
        raise RiskRuleError(f"{_FILE}: two rules share an id")
    return RiskRules(
        rules, frozenset(data["known_hosts"]), tuple(data["education"]), data["education_terms"],
        re.compile("|".join(data["negation"])), data.get("why", {}),
    )  # fmt: skip


@functools.cache
def risk_rules() -> RiskRules:
    """Return the packaged rules, read once a process."""
    return rules_from(rules_text(_FILE))


@functools.cache
def rules_digest() -> str:
    """Return 12 hexadecimal digits that change with the rules of risks or of redaction, or their version."""
    texts = (*map(rules_text, _FILES), secret_rules_text())
    rules = "\n".join((str(RULES_VERSION), *texts))
    return hashlib.sha256(rules.encode()).hexdigest()[:12]
