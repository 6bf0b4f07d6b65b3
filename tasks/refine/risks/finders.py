"""Finders of what no pattern can tell: encoded words, names like known ones, orders in prose."""

from __future__ import annotations

import base64
import codecs
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain

from tasks.refine.frontmatter.place import place_of
from tasks.refine.risks.rules import Region
from tasks.refine.risks.terms import patterns, terms
from tasks.refine.text.rules import rules_data

_PACKED = re.compile(r"[A-Za-z0-9+/_-]{40,20000}(?:\r?\n[ \t]{0,8}[A-Za-z0-9+/_-]{20,90}){0,200}={0,2}")
# These look back from their first character: a pattern that begins with a character is found far sooner.
_PACKED_32 = re.compile(r"[A-Z2-7](?<![A-Z2-7]{2})[A-Z2-7]{39,19999}={0,6}")
_HEX = re.compile(r"[0-9A-Fa-f](?<![0-9A-Fa-f]{2})[0-9A-Fa-f][ :]?(?:[0-9A-Fa-f]{2}[ :]?){27,9999}")
_TURNED = re.compile(r" (?:eht|ruoy|gur|lbhe) ", re.IGNORECASE)
_DATA_ADDRESS = re.compile(r"data:[\w/+.;=-]{1,60},$")
_WORD = re.compile(r"[A-Za-z']{2,}")
_LEAST_COMMON, _LEAST_WORDS, _LEAST_LETTERS = 3, 6, 0.8
_MOST_LAYERS = 3


def encoded_words(text: str) -> Iterator[Region]:
    """Yield the runs of Base64 and of hexadecimal digits, and lines backwards or in rot13, that hold words.

    Data of a `data:` address, and what decodes to a document of marks (JSON, XML), are none.
    """
    for pattern, decode in ((_PACKED, _base64), (_HEX, _hex), (_PACKED_32, _base32)):
        for run in pattern.finditer(text):
            decoded, layers = _decoded(run[0], decode), 1
            while decoded and layers < _MOST_LAYERS and not _says_much(decoded):
                decoded, layers = _decoded(decoded, _base64), layers + 1
            in_address = _DATA_ADDRESS.search(text, max(0, run.start() - 80), run.start())
            if decoded and _says_much(decoded) and not in_address:
                yield run.span()
    for line in re.finditer(r"[^\n]{20,4000}", text) if _TURNED.search(text) else ():
        lowered = line[0].lower()
        backwards = lowered[::-1] if " eht " in lowered or " ruoy " in lowered else ""
        turned = codecs.encode(lowered, "rot13") if " gur " in lowered or " lbhe " in lowered else ""
        if any(_reads(said) and _common(said) > _common(lowered) for said in (backwards, turned)):
            yield line.span()


def _decoded(run: str, decode: Callable[[str], bytes]) -> str | None:
    try:
        return decode(run).decode()
    except ValueError:
        return None


def _base64(run: str) -> bytes:
    packed = re.sub(r"\s", "", run).rstrip("=").translate(str.maketrans("-_", "+/"))
    return base64.b64decode(packed + "=" * (-len(packed) % 4), validate=True)


def _base32(run: str) -> bytes:
    packed = re.sub(r"\s", "", run).rstrip("=")
    return base64.b32decode(packed + "=" * (-len(packed) % 8))


def _hex(run: str) -> bytes:
    return bytes.fromhex(run.replace(":", ""))


def _says_much(decoded: str) -> bool:
    return _reads(decoded) or bool(patterns()["decoded_code"].search(decoded))


def _reads(text: str) -> bool:
    if text.lstrip()[:1] in {"{", "[", "<"}:
        return False
    words = _WORD.findall(text)
    letters = sum(character.isalpha() or character.isspace() for character in text)
    is_long = len(words) >= _LEAST_WORDS and letters >= _LEAST_LETTERS * len(text)
    return is_long and _common(text) >= _LEAST_COMMON


def _common(text: str) -> int:
    return len(terms()["sentence_words"].intersection(word.lower() for word in _WORD.findall(text)))


_PIECE = r"""["'][^"'\\\n]{1,16}["']"""
_PIECES = re.compile(rf"(?:{_PIECE}[ \t]{{0,2}}[+,.][ \t]{{0,2}}){{1,20}}{_PIECE}(?P<join>\]\.join)?")


def split_names(text: str) -> Iterator[Region]:
    """Yield the texts in pieces that make the name of what runs or fetches code, forwards or backwards."""
    for pieces in _PIECES.finditer(text):
        if pieces["join"] or "," not in pieces[0]:
            name = "".join(re.findall(r"[\"']([^\"']+)[\"']", pieces[0])).lower()
            if not terms()["split_names"].isdisjoint((name, name[::-1])):
                yield pieces.span()


_LISTING = {"pypi": ("==", ">=", "~=", "<="), "npm": ("dependencies",)}
_ENTRY = re.compile(r"\"([a-z0-9@][\w@./-]{3,60})\"\s{0,4}:")
_NAMED = re.compile(r"[a-z][a-z0-9_.-]{3,60}")
# Of a command that runs a package, only the first word names one.
_RUNS_ONE = re.compile(r"(?:npx|bunx|uvx|pipx run|uv run --with|exec|dlx)$")
_DIVIDED = re.compile(r"[_.]")
_LEAST_CHARS = 5


def look_alike_packages(text: str) -> Iterator[Region]:
    """Yield the names of packages that a text installs or lists, one edit away from a known name."""
    lowered = text.lower()
    if len(lowered) != len(text):
        return
    for ecosystem, known in _near_names().items():
        for start, name in _installed(lowered, ecosystem):
            if _is_look_alike(name, known):
                yield start, start + len(name)


def _installed(text: str, ecosystem: str) -> Iterator[tuple[int, str]]:
    for command in patterns()[f"{ecosystem}_commands"].finditer(text):
        one = _RUNS_ONE.search(text, command.start(), command.start(1))
        for word in re.finditer(r"([^\s\"',]+)[\"']?(,?)", command[1]):
            named = _NAMED.match(word[1])
            # A path, an address or an option is no name; a version may follow one.
            if named and word[1][named.end() : named.end() + 1] not in {"/", ":", "\\", "$", "(", "{"}:
                yield command.start(1) + word.start(), named[0].rstrip(".-")
            # What follows the one are its words, and what follows a comma is prose.
            if word[2] or (one and word[1][0] != "-"):
                break
    lists = any(mark in text for mark in _LISTING[ecosystem])
    for listed in patterns()[f"{ecosystem}_lists"].finditer(text) if lists else ():
        if ecosystem == "pypi":
            yield listed.start(1), listed[1]
            continue
        for entry in _ENTRY.finditer(listed[1]):
            yield listed.start(1) + entry.start(1), entry[1]


@functools.cache
def _near_names() -> Mapping[str, Mapping[str, frozenset[str]]]:
    """Return the known names by what is left of each without one character, of each ecosystem."""
    near: dict[str, dict[str, frozenset[str]]] = {}
    for ecosystem, listed in rules_data("known_packages.yaml")["packages"].items():
        of_ecosystem: dict[str, frozenset[str]] = {}
        for name in _DIVIDED.sub("-", listed).split():
            for short in {name, *_shortened(name)}:
                of_ecosystem[short] = of_ecosystem.get(short, frozenset()) | {name}
        near[ecosystem] = of_ecosystem
    return near


def _shortened(name: str) -> set[str]:
    return {name[:at] + name[at + 1 :] for at in range(len(name))} if len(name) >= _LEAST_CHARS else set()


def _is_look_alike(name: str, near: Mapping[str, frozenset[str]]) -> bool:
    name = _DIVIDED.sub("-", name)
    if (
        len(name) < _LEAST_CHARS
        or name in near.get(name, ())
        or any(name in of.get(name, ()) for of in _near_names().values())
    ):
        return False
    candidates = {known for short in (name, *_shortened(name)) for known in near.get(short, ())}
    return any(_one_edit(name, known) for known in candidates if len(known) >= _LEAST_CHARS)


def _one_edit(name: str, known: str) -> bool:
    """Tell whether one letter is missing, added, changed or swapped; digits alone are versions."""
    longer, shorter = (name, known) if len(name) >= len(known) else (known, name)
    at = next((i for i, (a, b) in enumerate(zip(longer, shorter, strict=False)) if a != b), len(shorter))
    return is_one_edit(name, known) and (sorted(name) == sorted(known) or not longer[at].isdigit())


def is_one_edit(one: str, other: str) -> bool:
    """Tell whether two texts differ by one character, or by two neighbours that changed places."""
    short, long = sorted((one, other), key=len)
    if one == other or len(long) - len(short) > 1:
        return False
    at = next((k for k, c in enumerate(short) if c != long[k]), len(short))
    if len(short) < len(long):
        return short[at:] == long[at + 1 :]
    swapped = short[at + 1 : at + 2] + short[at : at + 1] + short[at + 2 :]
    return short[at + 1 :] == long[at + 1 :] or swapped == long[at:]


def unneeded_tools(text: str) -> Iterator[Region]:
    """Yield the list of tools if it has the shell or the network, and the body speaks of neither."""
    place, lowered = place_of(text), text.lower()
    allowed = (
        patterns()["allowed_tools"].search(lowered, place.start, place.end)
        if place and place.closed
        else None
    )
    if (
        allowed
        and place
        and patterns()["wide_tools"].search(allowed[1])
        and not patterns()["tool_uses"].search(lowered, place.end)
    ):
        yield allowed.span()


# Orders in prose, in the languages of the terms.
_ENDS = re.compile(r"[.!?](?=\s)|[。！？]|\n")
_REACH = 300  # characters of a paragraph, before and after what is looked at, that are read with it
_NEAR = 40
_ADDRESS = re.compile(r"https?://|@")


def sends_private(text: str) -> Iterator[Region]:
    """Yield where a sentence orders that something private be sent to an address: verb, thing and address."""
    lowered, found, done = text.lower(), patterns(), 0
    for mark in _ADDRESS.finditer(lowered) if len(lowered) == len(text) else ():
        if mark.start() < done:
            continue
        start, done = _sentence(lowered, *mark.span())
        place = found["order_place"].search(lowered, start, done)
        if place and found["order_private"].search(lowered, start, done):
            sends = found["order_sends"].search(lowered, start, place.start())
            after = sends or found["order_sends_after"].search(lowered, place.end(), done)
            if after:
                yield (sends or place).start(), done


def against_user(text: str) -> Iterator[Region]:
    """Yield where secrecy from the user is ordered, or a machine is told to send or run something unseen."""
    lowered, found = text.lower(), patterns()
    for seed in found["order_seeds"].finditer(lowered) if len(lowered) == len(text) else ():
        first = max(lowered.rfind("\n", 0, seed.start()) + 1, seed.start() - _REACH)
        last = lowered.find("\n", seed.end())
        last = min(last if last >= 0 else len(lowered), seed.end() + _REACH)
        acts = ("order_sends", "order_sends_after", "order_runs")
        if seed.lastgroup == "secret" or (
            (seed.lastgroup == "own" or found["order_hides"].search(lowered, first, last))
            and any(found[name].search(lowered, first, last) for name in acts)
        ):
            yield seed.start(), last


def shows_keys(text: str) -> Iterator[Region]:
    """Yield where a sentence has a file of keys, or what a tool is logged in with, shown whole or kept."""
    lowered, found = text.lower(), patterns()
    keys = (found[name].finditer(lowered) for name in ("secret_file", "order_logins"))
    # In order: of hits that are equally grave the first is told, however much of the text is read at once.
    for key in sorted(chain(*keys), key=re.Match.start) if len(lowered) == len(text) else ():
        start, end = _sentence(lowered, *key.span())
        start = max(start, lowered.rfind("\n", 0, key.start()) + 1)
        shows = found["order_shows"].search(lowered, start, key.start())
        whole = shows and found["order_whole"].search(lowered, start, end)
        if whole or found["order_keeps"].search(lowered, start if shows else key.end(), end):
            yield (shows or key).start(), end


def drops_orders(text: str) -> Iterator[Region]:
    """Yield where a reader is told to drop the orders, or the rules of safety, that it had before."""
    lowered, found = text.lower(), patterns()
    for drop in found["order_drops"].finditer(lowered) if len(lowered) == len(text) else ():
        if found["order_earlier"].search(lowered, max(0, drop.start() - _NEAR), drop.end() + _NEAR):
            yield drop.span()


def _sentence(text: str, start: int, end: int) -> Region:
    first = max(0, start - _REACH)
    for stop in _ENDS.finditer(text, first, start):
        first = stop.end()
    after = _ENDS.search(text, end, end + _REACH)
    return first, after.start() if after else min(len(text), end + _REACH)


FINDERS: Mapping[str, Callable[[str], Iterator[Region]]] = {
    "encoded_words": encoded_words,
    "look_alike_packages": look_alike_packages,
    "unneeded_tools": unneeded_tools,
    "against_user": against_user,
    "drops_orders": drops_orders,
    "shows_keys": shows_keys,
    "split_names": split_names,
    "sends_private": sends_private,
}
