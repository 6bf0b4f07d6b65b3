"""Redacts strings that look like keys; the unredacted text stays in raw."""

from __future__ import annotations

import base64
import binascii
import functools
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from storage.schemas import Finding

# How many characters before a match the patterns `before` and `unless` of a rule see.
_BEFORE_CHARS = 80
# No rule matches a secret of fewer characters; and one whose literal begins as a word does, no shorter word.
_LEAST_WORD, _LEAST_KEY = 10, 20
_LEAST_PIECE, _LEAST_DISTINCT = 12, 8
_PIECES = re.compile(r"[^A-Za-z0-9+/=]+|/(?=[a-z]{3})")
_LETTER, _DIGIT = re.compile("[A-Za-z]"), re.compile("[0-9]")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_CHAIN_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")
_DIGITS_INSIDE = re.compile(r"(?<=[A-Za-z])[0-9]{1,8}(?=[A-Za-z])")


@dataclass(frozen=True)
class SecretRule:
    """One kind of secret; the head of `data/secret_rules.yaml` describes the fields."""

    kind: str
    literals: tuple[bytes, ...]
    pattern: re.Pattern[str]
    before: re.Pattern[str] | None = None
    unless: re.Pattern[str] | None = None
    fold: bool = False
    mixed: bool = False
    bits: float = 0.0
    form: str = "key"
    placeholders: Sequence[str] | None = None

    @functools.cached_property
    def within(self) -> Literal["text", "words", "keys"]:
        """Where its literals stand; where `fold` is true, one may be another word than the secret."""
        if self.fold:
            return "text"
        return "keys" if all(literal[:1].isalnum() for literal in self.literals) else "words"

    def matches(self, text: str) -> Iterator[re.Match[str]]:
        """Yield the matches of the pattern: each begins with a literal where those are of keys."""
        if self.within != "keys":
            yield from self.pattern.finditer(text)
            return
        done = 0
        for literal in re.finditer("|".join(re.escape(one.decode()) for one in self.literals), text):
            at = literal.start()
            if at >= done and (match := self.pattern.match(text, at)):
                done = match.end()
                yield match


@dataclass(frozen=True)
class _SecretRules:
    rules: tuple[SecretRule, ...]
    placeholders: tuple[str, ...]
    placeholder_words: re.Pattern[str]
    trivial_passwords: frozenset[str]

    @functools.cached_property
    def literals(self) -> dict[str, list[bytes]]:
        """The literals of all rules by where they stand: of most texts none does."""
        by_place: dict[str, list[bytes]] = {"text": [], "words": [], "keys": []}
        for rule in self.rules:
            by_place[rule.within] += rule.literals
        return by_place


def secret_rules_text() -> str:
    """Return the packaged file of rules as written, for digests."""
    return files("tasks.models").joinpath("data", "secret_rules.yaml").read_text("utf-8")


def _rule(row: dict[str, Any]) -> SecretRule:
    given = {**row, "literals": tuple(map(_bytes, row["literals"]))}
    given |= {key: re.compile(row[key]) for key in ("pattern", "before", "unless") if key in row}
    return SecretRule(**given)


def _starts_of_words(words: list[str]) -> re.Pattern[str]:
    small, capital = "|".join(words), "|".join(word.capitalize() for word in words)
    return re.compile(f"(?<![A-Za-z0-9])(?i:{small})|(?:{capital})(?=[A-Z][a-z]{{2}})")


@functools.cache
def _secret_rules() -> _SecretRules:
    import yaml  # noqa: PLC0415 (a search redacts nothing)

    # The parser in C takes a tenth of the time, for which the first document of each process waits.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    data: dict[str, Any] = yaml.load(secret_rules_text(), Loader=loader)  # noqa: S506 (both loaders are safe)
    return _SecretRules(
        tuple(_rule(row) for row in data["rules"]),
        tuple(str(word) for word in data["placeholders"]),
        _starts_of_words(data["placeholder_words"]),
        frozenset(data["trivial_passwords"]),
    )


def _entropy(text: str) -> float:
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


def _is_mixed(secret: str) -> bool:
    """Tell a key from names joined by dashes: a key has a long piece with both letters and digits."""
    if _UUID.fullmatch(secret) or _CHAIN_ADDRESS.fullmatch(secret):
        return False
    pieces = [piece for piece in _PIECES.split(secret) if len(piece) >= _LEAST_PIECE]
    return any(_LETTER.search(piece) and _DIGIT.search(piece) for piece in pieces)


def _is_placeholder(rule: SecretRule, secret: str) -> bool:
    """Tell whether a secret holds a word that examples have in place of one ("your", "xxxx")."""
    known, lowered = _secret_rules(), secret.lower()
    # A very long key spells short words by chance, so its rule lists the only placeholders that count.
    if rule.placeholders is not None:
        return any(word in lowered for word in rule.placeholders)
    # For the same reason a short placeholder word counts only at the start of a word.
    return any(word in lowered for word in known.placeholders) or bool(known.placeholder_words.search(secret))


def _is_password(secret: str) -> bool:
    return secret.lower() not in _secret_rules().trivial_passwords and len(set(secret)) > 2


def _is_strange_password(secret: str) -> bool:
    """Tell a password from a name: it mixes letter case and has digits between its letters."""
    cases = secret != secret.lower() and secret != secret.upper()
    return _is_password(secret) and cases and len(_DIGITS_INSIDE.findall(secret)) > 1


def _is_login(rule: SecretRule, secret: str) -> bool:
    """Tell whether a string is `user:password` in Base64 (RFC 7617), with no example's password."""
    try:
        login = base64.b64decode(secret + "=" * (-len(secret) % 4), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return False
    password = login.partition(":")[2]
    return bool(password) and not _is_placeholder(rule, login) and _is_password(password)


def _is_key(rule: SecretRule, secret: str) -> bool:
    if rule.mixed and not _is_mixed(secret):
        return False
    return len(set(secret)) >= _LEAST_DISTINCT and _entropy(secret) >= rule.bits


def _is_live(rule: SecretRule, text: str, match: re.Match[str]) -> bool:
    secret = match["secret"]
    before = text[max(0, match.start() - _BEFORE_CHARS) : match.start()]
    if (rule.before and not rule.before.search(before)) or (rule.unless and rule.unless.search(before)):
        return False
    if _is_placeholder(rule, secret):
        return False
    match rule.form:
        case "password":
            return _is_password(secret)
        case "strange-password":
            return _is_strange_password(secret)
        case "login":
            return _is_login(rule, secret)
        case _:
            return _is_key(rule, secret)


def _applicable(text: str) -> list[SecretRule]:
    """Return the rules of which the text holds a literal: most texts hold none."""
    words = [word for word in text.split() if len(word) >= _LEAST_WORD]
    if not words:
        return []
    searched = {
        "text": _bytes(text.lower()),
        "words": _bytes(" ".join(words)),
        "keys": _bytes(" ".join([word for word in words if len(word) >= _LEAST_KEY])),
    }
    # `map`, because a generator would take longer than the search itself.
    known = _secret_rules()
    held = {within for within, one in searched.items() if any(map(one.__contains__, known.literals[within]))}
    return [
        rule
        for rule in known.rules
        if rule.within in held and any(map(searched[rule.within].__contains__, rule.literals))
    ]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@dataclass(slots=True)
class _Found:
    """The secrets redacted of one kind, and the line of the first."""

    line: int
    secrets: list[str]


def _redacted_by(rule: SecretRule, text: str, found: dict[str, _Found]) -> str:
    pieces: list[str] = []
    done = 0
    live = (match for match in rule.matches(text) if _is_live(rule, text, match))
    for start, end in (match.span("secret") for match in live):
        if rule.kind not in found:
            found[rule.kind] = _Found(text.count("\n", 0, start) + 1, [])
        found[rule.kind].secrets.append(text[start:end])
        pieces += [text[done:start], f"[redacted:{rule.kind}]"]
        done = end
    return "".join([*pieces, text[done:]]) if pieces else text


def _finding(kind: str, of_kind: _Found) -> Finding:
    first, *others = of_kind.secrets
    also = f" (and {len(others):,} more)" if others else ""
    size = f"{len(first):,} characters that look like a live {kind} were redacted{also}"
    return Finding(f"risk.secret.{kind}", "warning", f"line {of_kind.line}: {size}")


def redact(text: str) -> tuple[str, tuple[Finding, ...]]:
    """Return a text with every key-like string replaced by `[redacted:<kind>]`, and a finding for each kind.

    Replaced are: strings in a known issuer's form with enough entropy; private keys between their marks;
    passwords in URLs; logins in commands and headers; strings of at least 16 characters, letters and digits,
    assigned to a name like "secret"; shorter ones with digits inside, assigned to a password. Placeholders,
    hashes, ids and encoded pictures stay. A finding names the line (from 1) of its kind's first secret and
    the number of others. The function is idempotent and takes time linear in the text.
    """
    text, found = _searched(text)
    return text, tuple(_finding(*each) for each in found.items())


def secrets_in(text: str) -> dict[str, str]:
    """Return the kind of each string that `redact` replaces in a text."""
    return {secret: kind for kind, of_kind in _searched(text)[1].items() for secret in of_kind.secrets}


def _searched(text: str) -> tuple[str, dict[str, _Found]]:
    found: dict[str, _Found] = {}
    before = ""
    # A secret may hide its neighbour from the rules, and its replacement is text that rules read, too.
    while text != before:
        before = text
        for rule in _applicable(text):
            text = _redacted_by(rule, text, found)
    return text, found
