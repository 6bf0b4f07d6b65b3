"""Key-like strings are taken out before a text goes on; the unredacted text stays where it was fetched to."""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import yaml

from storage.schemas import Finding

_FILE = "data/secret_rules.yaml"
_BEFORE_CHARS = 80
_LEAST_WORD = 10
_LEAST_PIECE = 12
_LEAST_DISTINCT = 8
_PIECES = re.compile(r"[^A-Za-z0-9+/=]+|/(?=[a-z]{3})")
_LETTER, _DIGIT = re.compile("[A-Za-z]"), re.compile("[0-9]")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_CHAIN_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")


@dataclass(frozen=True, slots=True)
class SecretRule:
    """One kind of secret; the head of the data file describes the fields."""

    kind: str
    literals: tuple[bytes, ...]
    pattern: re.Pattern[str]
    before: re.Pattern[str] | None = None
    unless: re.Pattern[str] | None = None
    fold: bool = False
    mixed: bool = False
    bits: float = 0.0


@dataclass(frozen=True, slots=True)
class _SecretRules:
    rules: tuple[SecretRule, ...]
    placeholders: tuple[str, ...]
    trivial_passwords: frozenset[str]


def secret_rules_text() -> str:
    """Return the packaged file of rules as it is written, for digests."""
    return files("tasks.refine").joinpath(_FILE).read_text("utf-8")


def _rule(row: dict[str, Any]) -> SecretRule:
    given = {**row, "literals": tuple(_bytes(literal) for literal in row["literals"])}
    given.update({key: re.compile(row[key]) for key in ("pattern", "before", "unless") if key in row})
    return SecretRule(**given)


@functools.cache
def _secret_rules() -> _SecretRules:
    data = yaml.safe_load(secret_rules_text())
    return _SecretRules(
        tuple(_rule(row) for row in data["rules"]),
        tuple(str(word) for word in data["placeholders"]),
        frozenset(data["trivial_passwords"]),
    )


def secret_kinds() -> tuple[str, ...]:
    """Return every kind that can stand in `[redacted:<kind>]`."""
    return tuple(rule.kind for rule in _secret_rules().rules)


def _entropy(text: str) -> float:
    """Return the Shannon entropy of a text's characters in bits a character."""
    counts = Counter(text).values()
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts)


def _is_mixed(secret: str) -> bool:
    """Tell a key from names joined by dashes: one long piece holds letters and digits."""
    if _UUID.fullmatch(secret) or _CHAIN_ADDRESS.fullmatch(secret):
        return False
    pieces = [piece for piece in _PIECES.split(secret) if len(piece) >= _LEAST_PIECE]
    return any(_LETTER.search(piece) and _DIGIT.search(piece) for piece in pieces)


def _is_placeholder(secret: str) -> bool:
    lowered = secret.lower()
    return any(word in lowered for word in _secret_rules().placeholders)


def _is_live(rule: SecretRule, text: str, match: re.Match[str]) -> bool:
    secret = match["secret"]
    before = text[max(0, match.start() - _BEFORE_CHARS) : match.start()]
    if (rule.before and not rule.before.search(before)) or (rule.unless and rule.unless.search(before)):
        return False
    if _is_placeholder(secret) or (rule.mixed and not _is_mixed(secret)):
        return False
    if rule.kind == "password":
        return secret.lower() not in _secret_rules().trivial_passwords and len(set(secret)) > 2
    return len(set(secret)) >= _LEAST_DISTINCT and _entropy(secret) >= rule.bits


def _long_words(text: str) -> str:
    """Return the words that can hold a secret with the literal that tells it; all else goes unsearched."""
    return " ".join(word for word in text.split() if len(word) >= _LEAST_WORD)


def _applicable(text: str) -> list[SecretRule]:
    words = _bytes(_long_words(text))
    if not words:
        return []
    # What a secret is assigned to may stand in another word.
    folded = _bytes(text.lower())
    return [rule for rule in _secret_rules().rules if _holds(folded if rule.fold else words, rule)]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _holds(text: bytes, rule: SecretRule) -> bool:
    return any(map(text.__contains__, rule.literals))  # a generator would take longer than the search


def _redacted_by(rule: SecretRule, text: str, found: list[Finding]) -> str:
    """Return the text without the rule's secrets; a finding is added for each."""
    pieces: list[str] = []
    done = 0
    for match in rule.pattern.finditer(text):
        if not _is_live(rule, text, match):
            continue
        start, end = match.span("secret")
        line = text.count("\n", 0, start) + 1
        size = f"{end - start:,} characters that look like a live {rule.kind} were redacted"
        found.append(Finding(f"risk.secret.{rule.kind}", "warning", f"line {line}: {size}"))
        pieces += [text[done:start], f"[redacted:{rule.kind}]"]
        done = end
    return "".join([*pieces, text[done:]]) if pieces else text


def redact(text: str) -> tuple[str, tuple[Finding, ...]]:
    """Return a text with every key-like string replaced by `[redacted:<kind>]`, and a finding for each.

    Replaced are strings of a known issuer's form and of enough entropy, private keys between their marks,
    passwords in addresses, and mixed strings of at least 16 characters that are assigned to a name that says
    secret. Placeholders, hashes, ids and encoded pictures are left. Idempotent; takes time linear in the
    text but for its secrets.

    Args:
        text: Any text; lines of findings count from 1 in it.
    """
    found: list[Finding] = []
    before = ""
    # What is taken out may have kept its neighbour from being seen, and leaves a mark that rules read too.
    while text != before:
        before = text
        for rule in _applicable(text):
            text = _redacted_by(rule, text, found)
    return text, tuple(found)
