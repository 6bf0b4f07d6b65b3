"""Lenient YAML for front matter that strict YAML refuses: quotes its values, or reads line by line."""

from __future__ import annotations

import itertools
import json
import re
from typing import NamedTuple

# A colon before two slashes belongs to a URL.
KEY_LINE = re.compile(r"(?P<indent> *)(?P<key>[A-Za-z_][\w.-]*)[ \t]*:(?!//)[ \t]*(?P<value>.*)")
_BLOCK_INDICATOR = re.compile(r"[|>][-+0-9]*(?:[ \t]+#.*)?$")
_INDICATED_TEXT = re.compile(r"[|>][-+0-9]*[ \t]+(?P<text>\S.*)", re.DOTALL)
_QUOTED = re.compile(
    r"""(?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^']|'')*)')[ \t]*(?:[ \t]#.*)?$""", re.DOTALL
)
_FLOW = re.compile(r"(?:\[[^\[\]{}:]*\]|\{(?=[^\[\]{}]*:[ \t])[^\[\]{}]*\}|\{\})$")


class Requoted(NamedTuple):
    """A block with quoted values, and the keys whose block indicator had text on its line."""

    text: str
    indicated: tuple[str, ...]


def _is_indented(line: str) -> bool:
    return line[:1] in {" ", "\t"} and bool(line.strip())


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _untabbed(line: str) -> str:
    """Replace leading tabs, which YAML refuses, by two spaces each."""
    bare = line.lstrip(" \t")
    return line[: len(line) - len(bare)].replace("\t", "  ") + bare


def _deeper(lines: list[str], start: int, indent: int, *, blank: bool) -> list[str]:
    """Return the run of lines from `start` that are deeper than `indent`, or, if these count, blank."""
    # By index: a slice for each key would take quadratic time.
    rest = (lines[at] for at in range(start, len(lines)))
    return list(itertools.takewhile(lambda line: _indent(line) > indent if line.strip() else blank, rest))


def _quoted(value: str) -> tuple[str, bool]:
    """Return a value quoted where YAML could misread it, and whether a block indicator stood before it."""
    if indicated := _INDICATED_TEXT.match(value):
        return json.dumps(indicated["text"], ensure_ascii=False), True
    if not value or _QUOTED.match(value) or _FLOW.match(value):
        return value, False
    return json.dumps(value, ensure_ascii=False), False


def requote(block: str) -> Requoted:
    """Quote the values of `key: value` lines, joined by spaces with the lines that continue them.

    Block scalars, complete quoted strings and complete flow collections stay as they are. Text after a block
    indicator on the key's own line (`description: | Use it ...`) is the value.
    """
    lines = [_untabbed(line) for line in block.split("\n")]
    out: list[str] = []
    indicated: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        match = KEY_LINE.fullmatch(line)
        value = match["value"].strip() if match else ""
        if not match or not value:
            out.append(line)
            continue
        is_block = bool(_BLOCK_INDICATOR.match(value))
        more = _deeper(lines, at, len(match["indent"]), blank=is_block)
        if is_block:
            out += [line, *more]
        else:
            text, was_indicated = _quoted(" ".join([value, *map(str.strip, more)]))
            indicated += [match["key"]] if was_indicated else []
            out.append(f"{match['indent']}{match['key']}: {text}")
        at += len(more)
    return Requoted("\n".join(out), tuple(indicated))


def _plain(value: str) -> str:
    """Return a value's text without its block indicator or quotes."""
    value = re.sub(r"\A[|>][-+0-9]*(?:\s+|\Z)", "", value.strip())
    quoted = _QUOTED.fullmatch(value)
    if not quoted:
        return value
    return quoted["double"] if quoted["double"] is not None else quoted["single"].replace("''", "'")


def read_lines(block: str) -> dict[str, str]:
    """Return the text after each top-level `key:` up to the next key; the last of equal keys counts."""
    fields: dict[str, list[str]] = {}
    current: list[str] = []
    for line in block.split("\n"):
        match = KEY_LINE.fullmatch(line)
        if match and not match["indent"]:
            current = fields[match["key"]] = [match["value"]]
        else:
            current.append(line.strip())
    return {key: _plain(" ".join(part for part in parts if part)) for key, parts in fields.items()}


def leading_run(text: str) -> str:
    """Return the lines at a text's start that look like front matter: keys, indented lines and list items."""
    end = 0
    for line in text.splitlines(keepends=True):
        bare = line.rstrip("\n")
        match = KEY_LINE.fullmatch(bare)
        if not ((match and not match["indent"]) or _is_indented(bare) or bare.startswith("- ")):
            break
        end += len(line)
    return text[:end]
