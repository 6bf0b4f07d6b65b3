"""Frontmatter, read leniently: as strict YAML, then field by field with values quoted, then as plain text.

PyYAML and ruamel.yaml both refuse 804 of 4,000 skills whose front matter is read here.
"""

from __future__ import annotations

import itertools
import json
import re
import textwrap
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from storage.schemas import Finding
from tasks.refine.frontmatter.place import (
    KEY_LINE,
    SPEC_KEYS,
    Place,
    is_known,
    leading_run,
    place_of,
    plain_field,
    spelling,
    toml_fields,
    unquoted,
)
from tasks.refine.text.rules import finding
from tasks.refine.text.strict_yaml import StrictYamlError, Value, load_strict

MAX_FRONTMATTER_CHARS = 64 * 1024
_BLOCK_INDICATOR = re.compile(r"\A(?P<style>[|>])[1-9]?(?P<chomp>[-+]?)[1-9]?(?:[ \t]+#.*)?$")
_INDICATED_TEXT = re.compile(r"\A[|>][-+0-9]*[ \t]+(?P<text>\S.*)", re.DOTALL)
_QUOTED = re.compile(
    r"""\A(?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^']|'')*)')[ \t]*(?:[ \t]#.*)?$""", re.DOTALL
)
_FLOW = re.compile(r"\A(?:\[[^\[\]{}:]*\]|\{(?=[^\[\]{}]*:[ \t])[^\[\]{}]*\}|\{\})$")
_DESCRIPTION = re.compile(r"^description:[ \t]+(?P<value>\S.*)$", re.MULTILINE)
_ONLY_RULES = re.compile(r"^[ \t]*-{3,}[ \t]*$", re.MULTILINE)
_SINGLE = frozenset({"name", "license", "licence", "compatibility"})
_MARKED = re.compile(r"(?P<marks>\*{1,3}|__?|`)(?P<word>[A-Za-z0-9][A-Za-z0-9.+-]+)(?P=marks)")
_OPENS, _CLOSES = "“„‘\"'", "”“’\"'"


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """A document's fields (strings, lists and mappings of strings), its body, and findings."""

    fields: dict[str, Value]
    body: str
    findings: tuple[Finding, ...]


class _Read(NamedTuple):
    fields: dict[str, Value]
    findings: tuple[Finding, ...]


class _Section(NamedTuple):
    key: str
    lines: list[str]


def _untabbed(line: str) -> str:
    """Replace leading tabs and wide spaces, which YAML refuses, by two spaces each."""
    bare = line.lstrip(" \t\u00a0\u3000")
    return re.sub("[\t\u00a0\u3000]", "  ", line[: len(line) - len(bare)]) + bare


def _mapping(text: str) -> _Read:
    value, duplicates = load_strict(text)
    if not isinstance(value, dict):
        raise StrictYamlError("not a mapping")
    if worded := next((key for key in value if " " in key and not is_known(key)), None):
        raise StrictYamlError(f"{worded!r} is no key, but text")
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


def _quoted(value: str) -> tuple[str, bool]:
    """Return a value quoted where YAML could misread it, and whether a block indicator stood before it."""
    if indicated := _INDICATED_TEXT.match(value):
        return json.dumps(indicated["text"], ensure_ascii=False), True
    if not value or _QUOTED.match(value) or _FLOW.match(value):
        return value, False
    return json.dumps(value, ensure_ascii=False), False


def _is_below(indent: int, line: str) -> bool:
    return len(line) - len(line.lstrip(" ")) > indent or not line.strip()


def _joined(lines: list[str]) -> str:
    """Join lines as YAML folds them: by spaces, a blank line being a line's end."""
    paragraphs = itertools.groupby(lines, key=lambda line: bool(line.strip()))
    return "\n".join(" ".join(map(str.strip, some)) for is_text, some in paragraphs if is_text)


def _requoted(lines: list[str]) -> tuple[list[str], bool]:
    """Quote the values of `key: value` lines, joined with the deeper lines that continue them.

    Block scalars are indented alike; complete quoted strings and flow collections stay as they are. Text
    after a block indicator on the key's own line (`description: | Use it ...`) is the value: then the second
    result is true.
    """
    out: list[str] = []
    at, indicated = 0, False
    while at < len(lines):
        match = KEY_LINE.fullmatch(lines[at])
        at += 1
        if not match:
            out.append(lines[at - 1])
            continue
        value, indent = match["value"].strip(), len(match["indent"])
        rest = (lines[i] for i in range(at, len(lines)))
        more = list(itertools.takewhile(partial(_is_below, indent), rest))
        first = next(filter(str.strip, more), "").strip()
        structured = not first or KEY_LINE.fullmatch(first) or first.startswith(("- ", "#", "{", "["))
        if not value and structured:
            out.append(lines[at - 1])
            continue
        head = f"{match['indent']}{match['key']}:"
        if block := _BLOCK_INDICATOR.match(value):
            out.append(f"{head} {block['style']}2{block['chomp']}")
            out += textwrap.indent(textwrap.dedent("\n".join(more)), " " * (indent + 2)).split("\n")
        else:
            text, was_indicated = _quoted(_joined([value, *more]))
            indicated = indicated or was_indicated
            out.append(f"{head} {text}")
        at += len(more)
    return out, indicated


def _sections(block: str) -> list[_Section]:
    lines = [_untabbed(line) for line in _ONLY_RULES.sub("", unquoted(block)).split("\n")]
    top = [line for line in lines if line.strip() and not line.startswith(" ")]
    bullets = bool(top) and all(line.startswith(("- ", "* ", "+ ")) for line in top)
    lines = [plain_field(line, bullets=bullets) for line in lines]
    keys = {match["key"] for line in lines if (match := KEY_LINE.match(line)) and not match["indent"]}
    sections: list[_Section] = []
    for line in lines:
        match = KEY_LINE.fullmatch(line)
        if match and _opens(match, sections, keys):
            sections.append(_Section(match["key"], [line.lstrip()]))
        elif sections:
            sections[-1].lines.append(line)
    return sections


def _opens(match: re.Match[str], sections: list[_Section], keys: set[str]) -> bool:
    """Tell whether a line opens a section, rather than going on with the text or the mapping above it."""
    key = match["key"]
    head = sections[-1].lines[0].partition(":")[2].strip() if sections else ""
    if match["indent"]:
        stray = key in SPEC_KEYS and key not in keys
        return stray and (not sections or (bool(head) and not _BLOCK_INDICATOR.match(head)))
    if is_known(key) or key[0].islower():
        return True
    # In a text that its author has not indented, `Note: ...` is a part of it.
    last = next((line for line in reversed(sections[-1].lines[1:]) if line.strip()), " ") if sections else " "
    return not (last[0] not in " -#" or (_BLOCK_INDICATOR.match(head) and len(sections[-1].lines) == 1))


def _of_section(section: _Section) -> tuple[Value, str]:
    """Return a section's value, and how it was read: `` as YAML, or a finding's code."""
    first, *more = section.lines
    # A list may stand below its key without indent; anything else goes on with the key's value.
    listed = not first.partition(":")[2].strip() and all(m[0] in " -#" for m in more if m.strip())
    if not listed and any(line.strip() and not line.startswith(" ") for line in more):
        more = [f"  {line.lstrip()}" for line in more]
    lines = [first, *more]
    requoted, indicated = _requoted(lines)
    code = "frontmatter.block-indicator" if indicated else "frontmatter.requoted"
    for text, how in (("\n".join(lines) + "\n", ""), ("\n".join(requoted) + "\n", code)):
        try:
            return _mapping(text).fields[section.key], how
        except (StrictYamlError, KeyError):
            continue
    said = (first.partition(":")[2], *map(str.strip, more))
    return _plain(" ".join(filter(None, said))), "frontmatter.lines"


def _plain(value: str) -> str:
    """Return a value's text without its block indicator or quotes."""
    value = re.sub(r"\A[|>][-+0-9]*(?:\s+|\Z)", "", value.strip())
    quoted = _QUOTED.fullmatch(value)
    if not quoted:
        return value
    return quoted["double"] if quoted["double"] is not None else quoted["single"].replace("''", "'")


def _read_sections(block: str, *found: Finding, complaint: str = "") -> _Read | None:
    """Read field by field; return None if no key is one of the specification: then it is prose."""
    fields: dict[str, Value] = {}
    repairs: list[Finding] = []
    hows: set[str] = set()
    for section in _sections(block):
        value, how = _of_section(section)
        hows.add(how)
        if how == "frontmatter.block-indicator":
            repairs.append(finding(how, section.key))
        if section.key in fields:
            repairs.append(finding("frontmatter.duplicate-key", section.key))
        fields[section.key] = value or fields.get(section.key, value)
    if not any(is_known(key) for key in fields):
        return None
    code = "frontmatter.lines" if "frontmatter.lines" in hows else "frontmatter.requoted"
    return _Read(fields, (*found, *((finding(code, complaint),) if complaint else ()), *repairs))


def _text(value: object) -> Value:
    if isinstance(value, dict):
        return {str(key): _text(item) for key, item in value.items()}
    return [_text(item) for item in value] if isinstance(value, list) else str(value)


def _strictly(block: str) -> _Read | str:
    try:
        return _with_rest(_mapping(block), block)
    except StrictYamlError as refused:
        return str(refused)


def _read(block: str, complaint: str) -> _Read | str:
    if " = " in block and (said := toml_fields(block)):
        return _Read({key: _text(value) for key, value in said.items()}, ())
    return _read_sections(block, complaint=complaint) or complaint


def _not_mapping(text: str, complaint: str) -> FrontMatter:
    return FrontMatter({}, text, (finding("frontmatter.not-mapping", complaint),))


def _unclosed(text: str, start: int) -> FrontMatter | None:
    """Read front matter without a closing mark: it ends before the first line that does not look like it."""
    run = leading_run(text[start : start + MAX_FRONTMATTER_CHARS])
    read = _strictly(run)
    read = _read(run, read) if isinstance(read, str) else read
    if isinstance(read, str) or not any(map(is_known, read.fields)):
        return None
    found = (finding("frontmatter.unclosed"), *read.findings)
    return FrontMatter(read.fields, text[start + len(run) :], found)


def _goes_on(block: str, run: str) -> bool:
    """Tell whether text below the fields that a block begins with is not yet the body.

    It goes on with the last value, if no blank line or title parts them, if it is indented, if a known key
    follows it, or if the mark follows at once: below a paragraph of the body that would be a title.
    """
    rest = block[len(run) :]
    if not rest.strip() or not (rest.startswith(("\n", "#")) or run.endswith("\n\n")):
        return True
    before_title = re.split(r"^#{1,6}[ \t]", rest, maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in before_title.split("\n") if line.strip()]
    if before_title == rest and (not rest.endswith("\n\n") or all(line.startswith(" ") for line in lines)):
        return True
    keys = map(KEY_LINE.fullmatch, lines)
    return any(key and not key["indent"] and key["key"] in SPEC_KEYS for key in keys)


def _at(text: str, place: Place) -> FrontMatter:
    if not place.closed:
        return _unclosed(text, place.start) or FrontMatter({}, text, (finding("frontmatter.missing"),))
    block, body = text[place.start : place.end], text[place.resume :]
    if len(block) > MAX_FRONTMATTER_CHARS:
        size = f"{len(block):,} characters, {MAX_FRONTMATTER_CHARS:,} allowed"
        start = _read_sections(block[:MAX_FRONTMATTER_CHARS], finding("frontmatter.too-large", size))
        return FrontMatter(start.fields, body, start.findings) if start else _not_mapping(text, size)
    if all(not line.strip() or line.lstrip().startswith("#") for line in block.split("\n")):
        return FrontMatter({}, body, (finding("frontmatter.empty"),))
    read = _strictly(block)
    if isinstance(read, str):
        run = leading_run(block)
        if run and not _goes_on(block, run) and (unclosed := _unclosed(text, place.start)):
            return unclosed
        read = _read(block, read)
    if isinstance(read, str):
        return _not_mapping(text, read)
    return FrontMatter(read.fields, body, read.findings)


def _parsed(text: str) -> FrontMatter:
    place = place_of(text)
    if place is None:
        return FrontMatter({}, text, (finding("frontmatter.missing"),))
    front = _at(text, place)
    found = list(front.findings)
    if front.body == text:
        return front
    body = front.body
    if place.fence and (last := re.search(rf"^[ \t]*{place.fence}+[ \t]*\n?\Z", body, re.MULTILINE)):
        body = body[: last.start()]
    elif place.fence:
        body = re.sub(rf"\A\s*{place.fence}+[ \t]*(?:\n|\Z)", "", body)
    marks = [place.marks] if place.marks else []
    marks += [f"a fence {place.fence} around it"] if place.fence else []
    found += [finding("frontmatter.marks", ", ".join(marks))] if marks else []
    if place.above:
        found.append(finding("frontmatter.displaced"))
        body = f"{place.above}\n\n{body.lstrip(chr(10))}"
    return FrontMatter(front.fields, body, tuple(found))


def _with_nested(front: FrontMatter) -> FrontMatter:
    """Merge the author's front matter, if somebody who copied the file put another one above it."""
    nested = _parsed(front.body)
    if not SPEC_KEYS & nested.fields.keys():
        return front
    # What no mark opens may be the body's, if the first has said it.
    unmarked = not front.body.lstrip("\n ").startswith("---")
    if unmarked and SPEC_KEYS & nested.fields.keys() & front.fields.keys():
        return front
    if any(f.code in {"frontmatter.unclosed", "frontmatter.displaced"} for f in nested.findings):
        return front
    stated = {key: value for key, value in nested.fields.items() if value}
    found = (*front.findings, finding("frontmatter.nested"), *nested.findings)
    return FrontMatter({**front.fields, **stated}, nested.body, found)


def _spelled(front: FrontMatter) -> FrontMatter:
    """Name known keys as the specification does, and take typographic quotes off their values."""
    fields: dict[str, Value] = {}
    found: list[Finding] = []
    for written, value in front.fields.items():
        key = spelling(written)
        if key != written and key in front.fields:
            key = written
        elif key != written:
            found.append(finding("frontmatter.key-spelling", f"{written}, read as {key}"))
        single = value[0] if key in _SINGLE and isinstance(value, list) and len(value) == 1 else value
        bare = _without_quotes(single, key) if is_known(key) and isinstance(single, str) else single
        found += [finding("frontmatter.list", key)] if single != value else []
        found += [finding("frontmatter.quotes", key)] if bare != single else []
        fields[key] = bare
    metadata = fields.get("metadata")
    for key in ("name", "description", "allowed-tools"):
        if not fields.get(key) and isinstance(metadata, dict) and metadata.get(key):
            found.append(finding("frontmatter.key-spelling", f"metadata.{key}, read as {key}"))
            fields[key] = metadata[key]
    return FrontMatter(fields, front.body, (*front.findings, *found))


def _without_quotes(value: str, key: str) -> str:
    """Return a value without typographic quotes around all of it, a quote that nothing closes, or marks."""
    text = value.strip()
    inside = (*_OPENS[:3], *_CLOSES[:3], text[:1])
    if text[:1] and text[0] in _OPENS and not any(mark in text[1:-1] for mark in inside):
        if text[-1] in _CLOSES and (text[0] in _OPENS[:3] or text[-1] in _CLOSES[:3]):
            return text[1:-1].strip()
        if text[0] in _OPENS[:4] and text[-1] != text[0]:
            return text[1:].strip()
    marked = _MARKED.fullmatch(text) if key in {"name", "license"} else None
    return marked["word"] if marked else value


def parse_frontmatter(text: str) -> FrontMatter:
    """Split a SKILL.md into front matter and body; every repair is a finding, no error is raised.

    Where it stands is `place_of`'s to say. The block, at most 65,536 characters, is read as strict YAML
    (strings only; no anchors, aliases or further documents) or TOML, then field by field: as YAML, with its
    values quoted, or as plain text. If it has no key it stays in the body, as does what stands above it. A
    second front matter right below the first overrides it. Newlines become LF.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    front = _parsed(text)
    return _spelled(_with_nested(front) if front.fields or front.body != text else front)
