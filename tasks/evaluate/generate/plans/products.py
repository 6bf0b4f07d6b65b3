"""Cleans the text of served rows, and finds the products that they are for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from tasks.refine.text.markdown import LINK

_URL = re.compile(r"(?:https?://|www\.)\S+")
_ASIDE = re.compile(r"\([^()]*\)|<[^<>]*>")
_UNWANTED = re.compile(r"[^\x20-\x7e\u00c0-\u024f]")
_DASH = re.compile(r"\s*[\u2013\u2014]\s*|\s+-+\s+")
# Words in a row, each with a capital letter somewhere.
_NAME = re.compile(
    r"(?<![\w.@/-])(?:[A-Z][\w.+]*|[a-z]+[A-Z]\w*)(?: (?:[A-Z0-9][\w.+]*|[a-z]+[A-Z]\w*)){0,2}(?![\w-])"
)
_LEAST = 3  # letters and digits of a product's name


def clean(text: str) -> str:
    """Return a text in one line without markup, addresses, asides in brackets and pictograms."""
    text = _URL.sub("", LINK.sub(r"\1", text))
    text = _DASH.sub(", ", _ASIDE.sub(" ", text.replace("\u2019", "'")))
    text = re.sub(r"[`*_#{}\"]", "", _UNWANTED.sub(" ", text))
    return re.sub(r"\s+([,.;:])", r"\1", " ".join(text.split()))


def squashed(text: str) -> str:
    """Return a text's letters and digits in lower case."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def common_words(texts: Iterable[str]) -> Mapping[str, int]:
    """Return how often each word is written in lower case less how often with a capital."""
    found: Counter[str] = Counter()
    for text in texts:
        for word in re.findall(r"[A-Za-z]+", text):
            found[word.lower()] += 1 if word.islower() else -1
    return found


def product_of(doc_id: str, text: str, common: Mapping[str, int], unfit: Collection[str]) -> str | None:
    """Return the name of the product that a row is for, as its text writes it; None if there is none.

    It is the longest name in the text that is part of the row's id without its owner. A word that other texts
    write in lower case, or that is `unfit`, is no name.
    """
    folder = "/".join(doc_id.split("/")[1:])
    parts = [
        part.lower() for part in re.split(r"[-_./# ]", folder) if part not in {"mcp", "server", "servers"}
    ]
    parts += [part.lower() for part in re.findall(r"[A-Z][a-z]+", folder)]
    best = ""
    for found in _NAME.finditer(text):
        words = found[0].rstrip(".").split()
        for start in range(len(words)):
            for end in range(len(words), start, -1):
                name = words[start:end]
                if len(squashed(" ".join(name))) > len(squashed(best)) and _is_product(
                    name, parts, common, unfit
                ):
                    best = " ".join(name)
    best = best.rstrip(".,")
    maker = re.search(rf"\b(?:Google|Apple|Microsoft|Amazon) {re.escape(best)}\b", text) if best else None
    return maker[0] if maker else best or None


def _is_product(
    words: list[str], parts: list[str], common: Mapping[str, int], unfit: Collection[str]
) -> bool:
    flat = squashed("".join(words))
    if len(flat) < _LEAST or any(word.lower() in unfit for word in words):
        return False
    if len(words) > 1:
        return flat in squashed("".join(parts))
    # A name that consists of two, as `PlanetScale`, is one part of an id or several.
    several = sum(letter.isupper() for letter in words[0]) > 1 and flat in squashed("".join(parts))
    return (flat in parts or several) and common.get(words[0].lower(), 0) <= 0
