"""Verbs that begin requests, and their infinitives by the forms in which authors tell of users' wishes."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_FILE = Path(__file__).parents[2] / "data" / "request_verbs.txt"
_SHORT_END = re.compile(r"[^aeiou][aeiou][bdgklmnprt]$")
_GERUND_ALONE = "~"  # after a verb that is more often a noun, or tells what an agent does


@cache
def base_verbs() -> frozenset[str]:
    """Return the infinitives that begin a request."""
    return frozenset(verb for verb in _verbs() if not verb.endswith(_GERUND_ALONE))


@cache
def base_of_gerunds() -> dict[str, str]:
    """Return the infinitive of each gerund of these verbs."""
    return {
        form: verb for verb in sorted(v.rstrip(_GERUND_ALONE) for v in _verbs()) for form in _gerunds(verb)
    }


@cache
def base_of_thirds() -> dict[str, str]:
    """Return the infinitive of each third person of these verbs."""
    return {_third(verb): verb for verb in base_verbs()}


def _verbs() -> list[str]:
    return _FILE.read_text("utf-8").split()


def _gerunds(verb: str) -> list[str]:
    """Return the gerund, with and without a doubled consonant: a form that is misspelled occurs nowhere."""
    forms = [f"{verb.removesuffix('e')}ing"]
    if _SHORT_END.search(verb):
        forms.append(f"{verb}{verb[-1]}ing")
    return forms


def _third(verb: str) -> str:
    if verb.endswith(("s", "x", "z", "ch", "sh", "o")):
        return f"{verb}es"
    return f"{verb[:-1]}ies" if verb.endswith("y") and verb[-2] not in "aeiou" else f"{verb}s"
