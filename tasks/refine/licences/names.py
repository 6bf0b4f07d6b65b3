"""Names of licences: stated values to SPDX, from a table and from SPDX itself, never guessed."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

from license_expression import ExpressionError, Licensing, get_spdx_licensing

from tasks.refine.text.rules import rules_data
from tasks.refine.text.strict_yaml import Value
from tasks.refine.text.words import fold

PROPRIETARY = "LicenseRef-Proprietary"
_MAX_CHARS = 300
_MAX_EXPRESSION_WORDS = 15
# "MIT. See LICENSE for details": the text before the match may name the licence.
_POINTER = re.compile(
    r"(?<![\s.;,(-])[\s.;,(-]*+\b(?:(?:see|complete terms|full terms|terms|full text|refer to|as in)\b"
    r".{0,60}?(?:licen[cs]e|copying)\S*|licen[cs]e(?:\.\w{2,4})?\s+(?:has|contains|for)\b).*\Z"
    r"|\A\W*+licen[cs]e(?:\.\w+)?\W*+\Z",
    re.IGNORECASE | re.DOTALL,
)
_PROPRIETARY = re.compile(
    r"\A(?:(?:proprietary|all rights reserved)\b|©.*all rights reserved)", re.IGNORECASE | re.DOTALL
)
_IDENTIFIER_URL = re.compile(
    r"(?:https?://)?(?:www\.)?(?:opensource\.org/licenses?|spdx\.org/licenses|choosealicense\.com/licenses)/"
    r"(?P<id>[\w.+-]+?)(?:\.html|\.txt)?/?",
    re.IGNORECASE,
)
_CC_URL = re.compile(
    r"(?:https?://)?(?:www\.)?creativecommons\.org/"
    r"(?:licenses/(?P<kind>by(?:-nc)?(?:-sa|-nd)?)/(?P<version>\d\.\d)|publicdomain/zero/1\.0)\b\S*",
    re.IGNORECASE,
)
_APACHE_URL = re.compile(
    r"(?:https?://)?(?:www\.)?apache\.org/licenses/license-2\.0(?:\.html|\.txt)?/?", re.IGNORECASE
)
_EXPRESSION = re.compile(r"[A-Za-z0-9.+() :-]+")
# Words that take back, limit or date a grant: "not licensed", "parts", "formerly", "may not".
_HEDGES = re.compile(
    r"\b(?:not?|non\w*|never|n?either|nor|none|cannot|don|isn|aren|doesn|without|except\w*|unless|only|but|however"
    r"|former\w*|previous\w*|once|was|were|longer|now|until|expir\w*|terminat\w*|revok\w*|parts?|portions?|some"
    r"|sections?|forb\w*|prohibit\w*|restrict\w*|limit\w*|den(?:y|ied|ies)|refus\w*|ban(?:s|ned)?|may|must|shall"
    r"|should|need\w*|requir\w*|ask|contact|consent|permission\w*|permit\w*|approv\w*|agree\w*|proprietary"
    r"|confidential\w*|secret|internal\w*|private|personal\w*|commercial\w*|evaluation|trial|educational|academic"
    r"|research|fees?|paid|pay\w*|purchas\w*|subscri\w*|royalt\w*|redistribut\w*|resell|resale|sell\w*|train\w*"
    r"|additional\w*|addend\w*|amend\w*|subject|governed|conditions?|nc|nd|eula|unlicensed|third|parties|party|us(?:e|es|ed|ing)|copying)\b"
)


@dataclass(frozen=True, slots=True)
class Stated:
    """What a stated value says: an SPDX expression or None, and whether it points to a file."""

    licence: str | None
    points_to_file: bool = False


@functools.cache
def licence_tables() -> dict[str, Any]:
    """Return the tables of `data/licences.yaml`: names, texts and refusals."""
    return rules_data("licences.yaml")


def hedged(text: str) -> bool:
    """Tell whether a text beside a licence has words that may take back what it grants."""
    return bool(_HEDGES.search(fold(text)))


def _key(name: str) -> str:
    """Return the same key for all spellings of a licence's name; `GPLv3+` says "or later"."""
    named = fold(re.sub(r"(?<=\d)\+", " or later", name))
    words = re.sub(r"\b(?:licen[cs]ed?|version|the|under)\b|\bv(?=\d)", " ", named)
    return " ".join(re.sub(r"(?<=[a-z])v(?=\d)", "", words).split())


@functools.cache
def _by_name() -> dict[str, str]:
    return {_key(alias): spdx for spdx, names in licence_tables()["names"].items() for alias in names}


@functools.cache
def spdx_licensing() -> Licensing:
    """Return the parser of SPDX expressions, built once: building takes 0.1 s."""
    return get_spdx_licensing()


@functools.cache
def _spdx_keys() -> frozenset[str]:
    return frozenset(key.lower() for key in spdx_licensing().known_symbols)


@functools.lru_cache(maxsize=4096)
def spdx_expression(text: str) -> str | None:
    """Return an SPDX expression as SPDX writes it; None for anything else.

    Letter case is corrected; withdrawn identifiers become their successors (`GPL-3.0`: `GPL-3.0-only`). Of
    LicenseRefs only `LicenseRef-Proprietary` and `LicenseRef-Source-Available` are known.
    """
    text = " ".join(text.split())
    ours = next((r for r in licence_tables()["refusals"] if r.lower() == text.lower()), None)
    if ours or not _EXPRESSION.fullmatch(text) or len(text.split()) > _MAX_EXPRESSION_WORDS:
        return ours
    try:
        parsed = spdx_licensing().parse(text, validate=True, strict=True)
    # The last two for a WITH without a licence and for empty brackets.
    except (ExpressionError, ValueError, AttributeError, IndexError):
        return None
    return str(parsed) if parsed is not None and all(map(_is_identifier, text.split())) else None


def _is_identifier(word: str) -> bool:
    """Tell whether a word of an expression names one licence; a family without a version (`GPL`) does not."""
    bare = word.strip("()")
    known = bare.lower() in _spdx_keys() or bare.upper() in {"AND", "OR", "WITH", ""}
    return known or any(character.isdigit() for character in bare)


def _by_url(text: str) -> str | None:
    if match := _IDENTIFIER_URL.fullmatch(text):
        return _named(match["id"])
    if match := _CC_URL.fullmatch(text):
        return spdx_expression(f"CC-{match['kind']}-{match['version']}") if match["kind"] else "CC0-1.0"
    return "Apache-2.0" if _APACHE_URL.fullmatch(text) else None


def _named(text: str) -> str | None:
    text = text.strip(" \t\n.,;\"'`")
    found = spdx_expression(text) or _by_name().get(_key(text)) or _by_url(text)
    return found or (PROPRIETARY if _PROPRIETARY.match(text) else None)


def _as_text(value: Value | None) -> str:
    if isinstance(value, dict):
        value = next((value[k] for k in ("spdx", "id", "type", "name") if value.get(k)), "")
    if isinstance(value, list):
        value = value[0] if len(value) == 1 else ""
    return value if isinstance(value, str) else ""


def stated_licence(value: Value | None) -> Stated:
    """Return what a front matter's `license` says, without a guess.

    Understood are SPDX expressions, known names, URLs of well-known licences, refusals ("Proprietary. ...")
    and pointers to a file ("Complete terms in LICENSE.txt"); a pointer that speaks of restrictions names no
    licence. Of a mapping `spdx`, `id`, `type` or `name` counts, of a list its only item. A text over 300
    characters is no name.
    """
    text = " ".join(_as_text(value).split())
    if not text or len(text) > _MAX_CHARS:
        return Stated(None)
    pointer = _POINTER.search(text)
    if pointer is None:
        return Stated(_named(text))
    named = _named(text[: pointer.start()])
    granted = named if named in licence_tables()["refusals"] or not hedged(pointer[0]) else None
    return Stated(granted, points_to_file=True)
