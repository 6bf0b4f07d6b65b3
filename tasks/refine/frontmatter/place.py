"""Place of the front matter in a text: between `---`, or between what its author put there instead."""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Mapping
from typing import NamedTuple

from tasks.refine.text.strict_yaml import StrictYamlError, load_strict

# Agent Skills specification, section "Frontmatter": these six keys and no others.
SPEC_KEYS = frozenset({"name", "description", "license", "compatibility", "metadata", "allowed-tools"})
# Keys of clients, which say who may start a skill.
CLIENT_KEYS = frozenset({"disable-model-invocation", "user-invocable"})
# A colon before two slashes belongs to a URL.
KEY_LINE = re.compile(r"\A(?P<indent> *)(?P<key>[A-Za-z_][\w.-]*)[ \t]*+:(?!//)[ \t]*+(?P<value>.*)")
_DECORATION = r"[*_`\"'“”]{0,3}"
_FIELD = re.compile(
    rf"\A(?P<indent>[ \t]*+)(?P<bullet>[-*+][ \t]+)?(?P<mark>{_DECORATION})"
    rf"(?P<key>[A-Za-z]+(?:[-_ ](?:model[-_ ])?[A-Za-z]+)?){_DECORATION}"
    r"[ \t]*[:：=](?!//)[*_]{0,3}[\s\u3000]*+(?P<value>.*)"
)
_SPELLINGS = {re.sub("-", "", key): key for key in (*SPEC_KEYS, *CLIENT_KEYS, "licence")}
_NEEDED = frozenset({"name", "description"})
_RULE = r"(?:-{2,}|[–—]+-*|\\---|\+{3,}|={3,}|\*{3,}|_{3,}|;{3,})"
_OPENING = re.compile(rf"(?P<mark>{_RULE}|`{{3,}}|~{{3,}})[ \t]*(?P<info>\w*)")
# Fields may begin on the mark's own line, as a document of YAML may.
_OPENING_FIELDS = re.compile(r"\A(?P<mark>-{3,})(?P<info>)[ \t]+(?=[\w\"*{#])")
_CLOSING = re.compile(r"^(?:---|\.\.\.)[ \t]*$", re.MULTILINE)
_CLOSING_RULE = re.compile(rf"^ {{0,3}}(?:{_RULE}|\.\.\.)[ \t]*$", re.MULTILINE)
_CLOSING_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[ \t]*$", re.MULTILINE)
_FORMATS = frozenset({"", "yaml", "yml", "toml", "json", "frontmatter", "markdown", "md"})
_TABLE = re.compile(r"(?:[ \t]{0,8}\|[^\n]*+(?:\n|\Z))++")
_HEADINGS = frozenset({"value", "values", "content", "details", "description", "值", "内容"})
_OBJECT_END = re.compile(r"\A[^\n]*\}[ \t]*$|^\}[ \t]*$", re.MULTILINE)
_TITLE = re.compile(r"^#+[ \t]+(.*)", re.MULTILINE)
_OF_FIELDS = frozenset({"skill", "metadata", "frontmatter", "front"})  # in a title: fields follow
_MOST_TRIES = 5  # lines above that are no titles or remarks; each is read on from
_MOST_CHARS = 64 * 1024
# Titles, remarks, quotes, badges and tags: a paragraph above it makes it an example.
_ABOVE = ("<!--", "#", ">", "//", "[//]:", "[![", "![", "<img", "<p", "<a", "</", "<div", "<h")
_TITLE_CHARS = 80
_UNSEEN = " \t\ufeff\u200b\u2060"


class Place(NamedTuple):
    """Where the block begins and ends and the text goes on, and what stands above it.

    `marks` says what stands in the place of `---`, empty where nothing does; `fence` is a code fence around
    all. `closed` is False if no mark ends it: then it ends where the block does not look like it any more.
    """

    start: int
    end: int
    resume: int
    above: str = ""
    marks: str = ""
    fence: str = ""
    closed: bool = True


def spelling(key: str) -> str:
    """Return a key as the specification or a client writes it; one that they do not know stays as it is."""
    return _SPELLINGS.get(_bare(key), key)


def is_known(key: str) -> bool:
    """Tell whether a key is one of the specification or of a client, however it is written."""
    return _bare(key) in _SPELLINGS


def _bare(key: str) -> str:
    return re.sub(r"[-_ *`\"'“”]", "", key.lower())


def plain_field(line: str, *, bullets: bool = False) -> str:
    """Return a line `**Name:** x` as `name: x` if it has a known key in decoration; any other as it is.

    With `bullets` a bullet is decoration, too.
    """
    field = _FIELD.fullmatch(line)
    if not field or not is_known(field["key"]) or (field["bullet"] and not (bullets or field["mark"])):
        return line
    value = field["value"]
    if field["mark"] and value.endswith(field["mark"]) and value.count(field["mark"]) == 1:
        value = value.removesuffix(field["mark"])
    return f"{field['indent']}{spelling(field['key'])}: {value}"


def unquoted(block: str) -> str:
    """Return a block without the marks of a block quote or a table, if every line has one."""
    lines = block.split("\n")
    marks = {line.strip()[:1] for line in lines} - {""}
    if marks == {"|"}:
        return _untabled([line.strip().strip("|") for line in lines if line.strip(" \t|-:")])
    if marks - {">"}:
        return block
    return "\n".join(re.sub(r"^[ \t]*> ?", "", line) for line in lines)


def _untabled(rows: list[str]) -> str:
    """Return the rows of a table as fields: each has a key and its value, or the first all the keys."""
    across = [[cell.strip() for cell in row.split("|")] for row in rows]
    if len(rows) == 2 and len(across[0]) > 1 and all(is_known(cell) for cell in across[0][:2]):
        pairs = list(zip(*across, strict=False))
    else:
        pairs = [(key, rest) for key, bar, rest in (row.partition("|") for row in rows) if bar]
        # What stands above the fields of a table is the headings of its columns.
        if len(pairs) > 2 and _bare(pairs[0][1]) in _HEADINGS:
            del pairs[0]
    return "\n".join(f"{key.strip()}: {value.strip()}" for key, value in pairs)


def toml_fields(block: str) -> dict[str, object]:
    """Return what a block says as TOML; nothing if it is none."""
    with contextlib.suppress(tomllib.TOMLDecodeError, RecursionError):
        return tomllib.loads(block)
    return {}


def _object_of(block: str) -> Mapping[str, object] | None:
    """Return the object of JSON that a block is, with or without its braces; None if it is none."""
    with contextlib.suppress(StrictYamlError):
        if block.lstrip()[:1] in {"{", '"'}:
            value, _ = load_strict(block)  # JSON is YAML
            return value if isinstance(value, dict) else {}
    return None


def known_keys(block: str) -> set[str]:
    """Return the known keys that a block's lines begin with, as the specification writes them."""
    if block.lstrip().startswith("{") and (said := _object_of(block)) is not None:
        return {spelling(key) for key in said if is_known(key)}
    fields = (KEY_LINE.fullmatch(plain_field(line, bullets=True)) for line in unquoted(block).split("\n"))
    return {spelling(field["key"]) for field in fields if field and is_known(field["key"])}


def leading_run(text: str) -> str:
    """Return the lines at a text's start that look like front matter.

    They are keys, and what is indented or listed below them. Blank lines, remarks and unknown keys with a
    capital belong to it if a known key follows.
    """
    end = at = 0
    after_blank = False
    for line in text.splitlines(keepends=True):
        bare = plain_field(line.rstrip("\n").removeprefix("> "), bullets=at == end)
        at += len(line)
        field = KEY_LINE.fullmatch(bare)
        key = field["key"] if field and not field["indent"] else ""
        below = (bare[:1] in {" ", "\t"} and bool(bare.strip())) or bare.startswith("- ")
        gap = not bare.strip() or (bare.startswith("#") and not after_blank)
        if not (key or below or gap):
            break
        if (key and is_known(key)) or (end == at - len(line) and ((key and key[0].islower()) or below)):
            end = at
        after_blank = not bare.strip()
    return text[:end]


def place_of(text: str) -> Place | None:
    """Return the place of a text's front matter; None if it has none. Newlines are LF.

    It may stand below titles, remarks and quotes, between other rules, in a fence or a comment, in a quote or
    without marks, if its keys say what it is: a paragraph above it, or prose in it, makes it an example.
    """
    at, fence, tries, above = 0, "", 0, ""
    while at < min(len(text), _MOST_CHARS):
        end = _line_end(text, at)
        line = text[at:end].strip(_UNSEEN)
        opening = _OPENING.fullmatch(line) or _OPENING_FIELDS.match(line)
        if opening or _begins_fields(line) or (line and not line.startswith(_ABOVE)):
            tries += 1
            above = text[:at].strip(_UNSEEN + "\n").removeprefix(fence).strip("\n")
        if tries > _MOST_TRIES:
            return None
        if found := _place_at(text, at, line, opening, above):
            above = text[:at].strip(_UNSEEN + "\n").removeprefix(fence).strip("\n")
            return found._replace(above=above, fence=fence and fence[:3])
        if line.startswith("<!--"):
            end = text.find("-->", at) + 3
            if end < 3 or text[end : _line_end(text, end)].strip():
                return None
        elif opening and opening["mark"][0] in "`~" and not fence and not above:
            fence = line  # around the whole file
        elif line and not _may_stand_above(line, above, text[end + 1 : _line_end(text, end + 1)]):
            return None
        at = _line_end(text, end) + 1
    return None


def _may_stand_above(line: str, above: str, following: str) -> bool:
    """Tell whether front matter may follow a line: what ends in a colon, or is prose, leads to an example."""
    if line.startswith(_ABOVE):
        leads = line[0] in "#>" and line[-1] in ":："
        return not leads or (line[0] == "#" and following.strip(_UNSEEN) == "---")
    if above:
        return set(line) == {"="}
    # A title without marks.
    is_title = len(line) <= _TITLE_CHARS and line[-1] not in ".:!?,;。："
    return is_title and bool(_OPENING.fullmatch(following.strip(_UNSEEN)))


def _place_at(text: str, at: int, line: str, opening: re.Match[str] | None, above: str) -> Place | None:
    found = _between(text, at, opening, above) if opening else _in_comment(text, at, line)
    found = found or _object_or_table(text, at, line, above)
    return found or (_without_opening(text, at, line, above) if _begins_fields(line) else None)


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return end if end >= 0 else len(text)


def _between(text: str, at: int, opening: re.Match[str], above: str) -> Place | None:
    start, line, (mark, info) = min(_line_end(text, at) + 1, len(text)), opening[0], opening.groups()
    if beside := opening.re is _OPENING_FIELDS:
        start = text.index(line, at) + len(line)
    usual, in_fence = line == "---", mark[0] in "`~"
    if info.lower() not in _FORMATS or (in_fence and info.lower() in {"markdown", "md"}):
        return None
    exact = _CLOSING.search(text, start) if usual else None
    closing = exact or (_CLOSING_FENCE if in_fence else _CLOSING_RULE).search(text, start)
    if usual and not above:
        end, resume = closing.span() if closing else (len(text), len(text))
        marks = f"closed by `{closing[0].strip()}`" if closing and not exact else ""
        return Place(start, end, min(resume + 1, len(text)), marks=marks, closed=bool(closing))
    block = text[start : closing.start()] if closing else leading_run(text[start : start + _MOST_CHARS])
    said = known_keys(block)
    if not said & _NEEDED or (beside and not said >= _NEEDED) or _has_prose(block):
        return None
    if in_fence and above and (not said >= _NEEDED or not _same_title(block, above)):
        return None
    end = start + len(block)
    marks = "" if usual else f"opened by `{line.strip()}`" + " on the line of a field" * beside
    resume = closing.end() + 1 if closing else end
    return Place(start, end, min(resume, len(text)), marks=marks, closed=bool(closing))


def _has_prose(block: str) -> bool:
    """Tell whether a block begins with a line that is no field, or has text below its fields."""
    lines = [line for line in unquoted(block).split("\n") if line.strip() and not line.startswith("#")]
    if lines and len(block) <= _MOST_CHARS and (toml_fields(block) or _object_of(block)):
        return False
    first = KEY_LINE.fullmatch(plain_field(lines[0].strip(), bullets=True)) if lines else None
    rest = block[len(leading_run(block)) :]
    return not first or bool(rest.strip() and not known_keys(rest))


def _same_title(block: str, above: str) -> bool:
    """Tell whether a block's name is that of the title above it: else it is an example of somebody's."""
    words = _name_words(block)
    return bool(words) and words == _words(above.rpartition("\n")[2])


def _suits(block: str, above: str) -> bool:
    """Tell whether the last title above a block shares a word with its name, or says that fields follow."""
    title = _words((_TITLE.findall(above) or [""])[-1])
    return not {*title}.isdisjoint({*_name_words(block)} | _OF_FIELDS)


def _name_words(block: str) -> list[str]:
    name = re.search(r"^[\W_]{0,9}name\W+(.*?)(?:[\",]|$)", unquoted(block), re.MULTILINE | re.IGNORECASE)
    return _words(name[1]) if name else []


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def _object_or_table(text: str, at: int, line: str, above: str) -> Place | None:
    """Return the place of an object of JSON, or of a table, that stands for front matter."""
    within = text[at : at + _MOST_CHARS]
    closing = {"{": _OBJECT_END.search, "|": _TABLE.match}.get(line[:1], lambda _: None)(within)
    block = within[: closing.end()] if closing else ""
    if not known_keys(block) >= _NEEDED or (above and not _suits(block, above)):
        return None
    return Place(at, at + len(block), at + len(block), marks="a table" if line[0] == "|" else "JSON")


def _in_comment(text: str, at: int, line: str) -> Place | None:
    if not line.startswith("<!--"):
        return None
    start, end = text.find("<!--", at) + 4, text.find("-->", at)
    block = text[start : max(start, end)]
    if end < 0 or not known_keys(block) >= _NEEDED or _has_prose(re.sub(rf"(?m)^{_RULE}$", "", block)):
        return None
    return Place(start, end, end + 3, marks="a comment")


def _begins_fields(line: str) -> bool:
    field = KEY_LINE.fullmatch(plain_field(line.removeprefix(">").lstrip(" "), bullets=True))
    return field is not None and is_known(field["key"])


def _without_opening(text: str, at: int, line: str, above: str) -> Place | None:
    """Return the place of fields from a line on that no mark opens, if they are closed or are all there.

    Fields without decoration are a skill's if what stands above or below them agrees.
    """
    run = leading_run(text[at : at + _MOST_CHARS])
    said, end = known_keys(run), at + len(run)
    closing = _CLOSING_RULE.match(text, end + len(text[end:]) - len(text[end:].lstrip("\n")))
    if not said & _NEEDED or not (closing or said >= _NEEDED):
        return None
    agreed = bool(closing) if said >= _NEEDED else line[0].islower() and not above
    agreed = agreed or (_suits(run, above) if _TITLE.search(above) else said >= _NEEDED)
    if KEY_LINE.fullmatch(line) and not agreed:
        return None
    marks = "a quote" if line.startswith(">") else "no opening mark"
    return Place(at, end, min(closing.end() + 1, len(text)) if closing else end, marks=marks)
