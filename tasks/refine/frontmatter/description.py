"""A skill's description: from its front matter, else the first prose of its body."""

from __future__ import annotations

import re
from collections.abc import Iterator

from storage.schemas import Finding
from tasks.refine.text.canonical import canonical, strip_boilerplate
from tasks.refine.text.hidden import without_hidden
from tasks.refine.text.markdown import FENCE, fenced, plain_line
from tasks.refine.text.rules import finding
from tasks.refine.text.strict_yaml import Value
from tasks.refine.text.words import PARAGRAPH_END

MAX_DESCRIPTION_CHARS = 1024
# A body may have megabytes, and its first prose stands at its start.
_PROSE_WITHIN_CHARS = 10_000
_MIN_PROSE_CHARS = 20
_HEADING = re.compile(r"\A(?: {0,3}#{1,6}(?:[ \t]|$)|[ \t]*+(?:=+|-{2,}|\*{3,}|_{3,})[ \t]*$)")
_MARKED = re.compile(r"\A(?:[ \t]*+(?:[-*+][ \t]|\d{1,9}[.)][ \t]|>|\||<)|(?: {4}|\t))")


def _paragraphs(body: str) -> Iterator[list[str]]:
    """Yield runs of lines between blank lines, headings and code; a list, quote or table starts a new run."""
    lines = body.split("\n")
    inside, _ = fenced(lines)
    run: list[str] = []
    for line, in_code in zip(lines, inside, strict=True):
        is_text = line.strip() and not in_code and not _HEADING.match(line) and not FENCE.match(line)
        starts = bool(run) and _MARKED.match(line) and not _MARKED.match(run[-1])
        if run and (starts or not is_text):
            yield run
            run = []
        if is_text:
            run.append(line)
    if run:
        yield run


def _plain(lines: list[str]) -> str:
    return plain_line(lines, 4 * MAX_DESCRIPTION_CHARS)


def _prose(paragraphs: list[list[str]], plain: list[str]) -> Iterator[str]:
    """Yield sentences, then other paragraphs of text, then lead-ins, which end in a colon."""
    prose = [i for i, paragraph in enumerate(paragraphs) if not _MARKED.match(paragraph[0])]
    long = [plain[i] for i in prose if len(plain[i]) >= _MIN_PROSE_CHARS]
    yield from filter(PARAGRAPH_END.search, long)
    yield from (text for text in long if not text.endswith((":", "：")))
    # A lead-in says more together with what it leads to.
    yield from (" ".join(plain[i : i + 2]) for i in prose if plain[i].endswith((":", "：")))


def _candidates(body: str) -> Iterator[str]:
    """Yield texts that could be a description, the best first: prose, any paragraph, the first lines."""
    paragraphs = [lines for lines in _paragraphs(body) if re.search(r"\w", "".join(lines))]
    plain = list(map(_plain, paragraphs))
    yield from _prose(paragraphs, plain)
    yield from (text for text in plain if len(text) >= _MIN_PROSE_CHARS)
    yield _plain([line.lstrip("# \t") for line in body.split("\n") if re.search(r"\w", line)][:2])


def first_prose(body: str) -> str:
    """Return a body's first prose as plain text on one line, at most 1,024 characters.

    Empty if the first 10,000 characters have no letter or digit.
    """
    text = next(filter(None, _candidates(body[:_PROSE_WITHIN_CHARS])), "")
    if len(text) <= MAX_DESCRIPTION_CHARS:
        return text
    # Where the last hundred characters have no space, a word is cut.
    at = text.rfind(" ", MAX_DESCRIPTION_CHARS - 100, MAX_DESCRIPTION_CHARS + 1)
    return text[: at if at > 0 else MAX_DESCRIPTION_CHARS].rstrip()


def _joined(value: Value) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ", ".join(map(_joined, value))
    return "; ".join(f"{key}: {_joined(item)}" for key, item in value.items())


def description_of(value: Value | None, body: str) -> tuple[str, bool, tuple[Finding, ...]]:
    """Return a skill's description, whether it was inferred from the canonical body, and findings on it.

    Lists and mappings are joined to text; known boilerplate is removed. A stated description is never cut.
    """
    found = [finding("description.not-text")] if isinstance(value, list | dict) else []
    stated, removed = strip_boilerplate(canonical(_joined(value or ""))[0], "description")
    stated, hidden = without_hidden(stated)
    found += [*removed, *hidden]
    if len(stated) > MAX_DESCRIPTION_CHARS:
        length = f"{len(stated):,} characters, at most {MAX_DESCRIPTION_CHARS:,}"
        found.append(finding("description.too-long", length))
    if stated:
        return stated, False, tuple(found)
    return first_prose(body), True, (*found, finding("description.missing"))
