"""Frontmatter, read leniently: as strict YAML, then with its values quoted, then line by line.

PyYAML and ruamel.yaml both refuse 804 of 4,000 skills whose front matter is read here.
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass
from typing import NamedTuple

from storage.schemas import Finding
from tasks.refine.text.rules import finding
from tasks.refine.text.strict_yaml import StrictYamlError, Value, load_strict

# A colon before two slashes belongs to a URL.
KEY_LINE = re.compile(r"\A(?P<indent> *)(?P<key>[A-Za-z_][\w.-]*)[ \t]*+:(?!//)[ \t]*+(?P<value>.*)")
_BLOCK_INDICATOR = re.compile(r"\A[|>][-+0-9]*(?:[ \t]+#.*)?$")
_INDICATED_TEXT = re.compile(r"\A[|>][-+0-9]*[ \t]+(?P<text>\S.*)", re.DOTALL)
_QUOTED = re.compile(
    r"""\A(?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^']|'')*)')[ \t]*(?:[ \t]#.*)?$""", re.DOTALL
)
_FLOW = re.compile(r"\A(?:\[[^\[\]{}:]*\]|\{(?=[^\[\]{}]*:[ \t])[^\[\]{}]*\}|\{\})$")


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


def fields_of_lines(block: str) -> dict[str, str]:
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


# Agent Skills specification, section "Frontmatter": these six keys and no others.
SPEC_KEYS = frozenset({"name", "description", "license", "compatibility", "metadata", "allowed-tools"})
MAX_FRONTMATTER_CHARS = 64 * 1024
_OPENING = re.compile(r"\A(?:[ \t]*\n)*---[ \t]*(?:\n|\Z)")
_DESCRIPTION = re.compile(r"^description:[ \t]+(?P<value>\S.*)$", re.MULTILINE)
# Three dashes inside a value do not close: only a line of their own does.
_CLOSING = re.compile(r"^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """A document's fields (strings, lists and mappings of strings), its body, and findings."""

    fields: dict[str, Value]
    body: str
    findings: tuple[Finding, ...]


class _Read(NamedTuple):
    fields: dict[str, Value]
    findings: tuple[Finding, ...]


def _mapping(text: str) -> _Read:
    value, duplicates = load_strict(text)
    if not isinstance(value, dict):
        raise StrictYamlError("not a mapping")
    return _Read(value, tuple(finding("frontmatter.duplicate-key", key) for key in duplicates))


def _with_rest(read: _Read, block: str) -> _Read:
    """Restore the end of a description that YAML takes for a comment: in `issue #12` it is a number."""
    line = _DESCRIPTION.search(block)
    value = line["value"].rstrip() if line else ""
    cut = value.find(" #")
    if cut < 0 or not value[cut + 2 :].strip(" #") or value[cut + 2] in " #":
        return read
    if read.fields.get("description") != value[:cut].rstrip():
        return read
    fields = {**read.fields, "description": value}
    return _Read(fields, (*read.findings, finding("frontmatter.comment", value[cut + 1 : cut + 81])))


def _read_yaml(block: str) -> _Read:
    """Read a block as YAML: as it is, then with its values quoted; raise the first error."""
    try:
        return _with_rest(_mapping(block), block)
    except StrictYamlError as refused:
        complaint = str(refused)
    requoted = requote(block)
    try:
        read = _mapping(requoted.text)
    except StrictYamlError as refused:
        raise StrictYamlError(complaint) from refused
    # Quoting makes a mapping even of prose with a colon in it.
    if not SPEC_KEYS & read.fields.keys():
        raise StrictYamlError(complaint)
    indicated = tuple(finding("frontmatter.block-indicator", key) for key in requoted.indicated)
    return _Read(read.fields, (finding("frontmatter.requoted", complaint), *indicated, *read.findings))


def _read_lines(block: str, *found: Finding) -> _Read | None:
    """Read single lines; return None if they name no key of the specification: then they are prose."""
    fields: dict[str, Value] = dict(fields_of_lines(block))
    return _Read(fields, found) if SPEC_KEYS & fields.keys() else None


def _not_mapping(text: str, complaint: str) -> FrontMatter:
    return FrontMatter({}, text, (finding("frontmatter.not-mapping", complaint),))


def _unclosed(text: str, start: int) -> FrontMatter | None:
    """Read front matter without a closing mark: it ends before the first line that does not look like it."""
    run = leading_run(text[start : start + MAX_FRONTMATTER_CHARS])
    if not run.strip():
        return None
    try:
        read: _Read | None = _read_yaml(run)
    except StrictYamlError as refused:
        read = _read_lines(run, finding("frontmatter.lines", str(refused)))
    if read is None or not SPEC_KEYS & read.fields.keys():
        return None
    return FrontMatter(
        read.fields, text[start + len(run) :], (finding("frontmatter.unclosed"), *read.findings)
    )


def _closed(text: str, start: int, closing: re.Match[str]) -> FrontMatter:
    block, body = text[start : closing.start()], text[closing.end() :]
    if len(block) > MAX_FRONTMATTER_CHARS:
        size = f"{len(block):,} characters, {MAX_FRONTMATTER_CHARS:,} allowed"
        read = _read_lines(block[:MAX_FRONTMATTER_CHARS], finding("frontmatter.too-large", size))
        return FrontMatter(read.fields, body, read.findings) if read else _not_mapping(text, size)
    if all(not line.strip() or line.lstrip().startswith("#") for line in block.split("\n")):
        return FrontMatter({}, body, (finding("frontmatter.empty"),))
    try:
        read = _read_yaml(block)
    except StrictYamlError as refused:
        # The closing mark may be a horizontal rule further down.
        if "\n\n" in block and (unclosed := _unclosed(text, start)):
            return unclosed
        read = _read_lines(block, finding("frontmatter.lines", str(refused)))
        if read is None:
            return _not_mapping(text, str(refused))
    return FrontMatter(read.fields, body, read.findings)


def _parsed(text: str) -> FrontMatter:
    """Read the first front matter of a text whose newlines are LF."""
    opening = _OPENING.match(text)
    if not opening:
        return FrontMatter({}, text, (finding("frontmatter.missing"),))
    closing = _CLOSING.search(text, opening.end())
    if closing:
        return _closed(text, opening.end(), closing)
    return _unclosed(text, opening.end()) or FrontMatter({}, text, (finding("frontmatter.missing"),))


def _with_nested(front: FrontMatter) -> FrontMatter:
    """Merge the author's front matter, if somebody who copied the file put another one above it."""
    if not _OPENING.match(front.body):
        return front
    nested = _parsed(front.body)
    if not SPEC_KEYS & nested.fields.keys() or any(f.code == "frontmatter.unclosed" for f in nested.findings):
        return front
    stated = {key: value for key, value in nested.fields.items() if value}
    found = (*front.findings, finding("frontmatter.nested"), *nested.findings)
    return FrontMatter({**front.fields, **stated}, nested.body, found)


def parse_frontmatter(text: str) -> FrontMatter:
    """Split a SKILL.md into front matter and body; every problem is a finding, no error is raised.

    The opening mark is the first line that is not blank; `---` or `...` on a line of its own closes. The text
    between, at most 65,536 characters, is read as strict YAML (strings only; no anchors, aliases or further
    documents), then with single-line values quoted, then as `key: value` lines. If it has no key it stays in
    the body. A second front matter right below the first overrides it. Newlines become LF.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    front = _parsed(text)
    return _with_nested(front) if front.fields else front
