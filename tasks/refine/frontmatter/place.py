"""Place of the front matter in a text: between `---`, or between what its author put there instead."""

from __future__ import annotations

import re
from typing import NamedTuple

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
_CLOSING = re.compile(r"^(?:---|\.\.\.)[ \t]*$", re.MULTILINE)
_CLOSING_RULE = re.compile(rf"^ {{0,3}}(?:{_RULE}|\.\.\.)[ \t]*$", re.MULTILINE)
_CLOSING_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[ \t]*$", re.MULTILINE)
_FORMATS = frozenset({"", "yaml", "yml", "toml", "json", "frontmatter", "markdown", "md"})
_MOST_ABOVE_CHARS = 4_000
_MOST_TRIES = 4  # lines above that could begin it; each is read on from
_MOST_CHARS = 64 * 1024
# Titles, remarks, quotes, badges and tags: a paragraph above it makes it an example.
_ABOVE = ("#", ">", "//", "[//]:", "[![", "![", "<img", "<p", "<a", "</", "<div", "<h")
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

    Args:
        line: A line of front matter.
        bullets: Whether a bullet is decoration, too.
    """
    field = _FIELD.fullmatch(line)
    if not field or not is_known(field["key"]) or (field["bullet"] and not (bullets or field["mark"])):
        return line
    value = field["value"]
    if field["mark"] and value.endswith(field["mark"]) and value.count(field["mark"]) == 1:
        value = value.removesuffix(field["mark"])
    return f"{field['indent']}{spelling(field['key'])}: {value}"


def unquoted(block: str) -> str:
    """Return a block without the marks of a block quote, if every line has one."""
    lines = block.split("\n")
    if any(line.strip() and not line.lstrip().startswith(">") for line in lines):
        return block
    return "\n".join(re.sub(r"^[ \t]*> ?", "", line) for line in lines)


def known_keys(block: str) -> set[str]:
    """Return the known keys that a block's lines begin with, as the specification writes them."""
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
    at, fence, tries = 0, "", 0
    while at < min(len(text), _MOST_ABOVE_CHARS):
        end = _line_end(text, at)
        line = text[at:end].strip(_UNSEEN)
        above = text[:at].strip(_UNSEEN + "\n").removeprefix(fence).strip("\n")
        opening = _OPENING.fullmatch(line)
        tries += bool(opening) or _begins_fields(line)
        if tries > _MOST_TRIES:
            return None
        found = _between(text, end, opening, above) if opening else None
        found = found or _in_comment(text, at, line)
        found = found or (_without_opening(text, at, line) if _begins_fields(line) else None)
        if found:
            return found._replace(above=above, fence=fence and fence[:3])
        if line.startswith("<!--"):
            end = text.find("-->", at) + 3
            if end < 3 or text[end : _line_end(text, end)].strip():
                return None
        elif opening and opening["mark"][0] in "`~" and not fence and not above:
            fence = line  # around the whole file
        elif line and not line.startswith(_ABOVE) and not (above and set(line) == {"="}):
            following = text[end + 1 : _line_end(text, end + 1)].strip(_UNSEEN)
            # A title without marks.
            if (
                above
                or len(line) > _TITLE_CHARS
                or line[-1] in ".:!?,;。："
                or not _OPENING.fullmatch(following)
            ):
                return None
        at = _line_end(text, end) + 1
    return None


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return end if end >= 0 else len(text)


def _between(text: str, line_end: int, opening: re.Match[str], above: str) -> Place | None:
    """Return the place below an opening mark."""
    start, line, (mark, info) = min(line_end + 1, len(text)), opening[0], opening.groups()
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
    if not said & _NEEDED or _has_prose(block):
        return None
    if in_fence and above and (not said >= _NEEDED or not _same_title(block, above)):
        return None
    end = start + len(block)
    marks = "" if usual else f"opened by `{line}`"
    resume = closing.end() + 1 if closing else end
    return Place(start, end, min(resume, len(text)), marks=marks, closed=bool(closing))


def _has_prose(block: str) -> bool:
    """Tell whether a block begins with a line that is no field, or has text below its fields."""
    lines = [line for line in unquoted(block).split("\n") if line.strip() and not line.startswith("#")]
    if lines and re.match(r"[\w-]+[ \t]*=|[{\"\[]", lines[0].strip()):  # TOML or JSON
        return False
    first = KEY_LINE.fullmatch(plain_field(lines[0].strip(), bullets=True)) if lines else None
    rest = block[len(leading_run(block)) :]
    return not first or bool(rest.strip() and not known_keys(rest))


def _same_title(block: str, above: str) -> bool:
    """Tell whether a block's name is that of the title above it: else it is an example of somebody's."""
    name = re.search(r"^name\W+(.*)$", block, re.MULTILINE | re.IGNORECASE)
    words = re.findall(r"\w+", name[1].lower()) if name else []
    return bool(words) and words == re.findall(
        r"[^\W_]+", above.rpartition("\n")[2].lower().replace("-", " ")
    )


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


def _without_opening(text: str, at: int, line: str) -> Place | None:
    """Return the place of fields from a line on that no mark opens, if they are closed or are all there."""
    run = leading_run(text[at : at + _MOST_CHARS])
    said, end = known_keys(run), at + len(run)
    closing = _CLOSING_RULE.match(text, end + len(text[end:]) - len(text[end:].lstrip("\n")))
    if not said & _NEEDED or not (closing or said >= _NEEDED):
        return None
    marks = "a quote" if line.startswith(">") else "no opening mark"
    return Place(at, end, min(closing.end() + 1, len(text)) if closing else end, marks=marks)
