"""The text of a skill: its name, description and body, of a SKILL.md or of a registry's listing."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from storage.schemas import Finding, RawDocument
from tasks.crawl.source.bundle import NESTED
from tasks.models.redact import redact
from tasks.refine.frontmatter.frontmatter import parse_frontmatter
from tasks.refine.frontmatter.spec_findings import on_body, on_description, on_fields, on_links, on_offering
from tasks.refine.licences.resolve import skill_folder
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


MAX_NAME_CHARS = 64
_ASCII_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def folder_of(doc_id: str, path: str | None) -> str:
    """Return the name of the folder that holds the skill: the last part of its path, else of its id."""
    if folder := skill_folder(path):
        return folder.rpartition("/")[2]
    # Some sources join the parts of an id by double hyphens, which no valid name holds.
    return doc_id.rstrip("/").rpartition("/")[2].split("--")[-1] or doc_id


def _is_unicode_name(name: str) -> bool:
    """Tell whether the specification's reference validator accepts a name: letters of any script, hyphens."""
    normal = unicodedata.normalize("NFKC", name)
    return normal == normal.lower() and all(part.isalnum() for part in normal.split("-"))


def _judged(name: str, folder: str) -> tuple[Finding, ...]:
    found = []
    if len(name) > MAX_NAME_CHARS:
        found.append(finding("name.too-long", f"{len(name)} characters, at most {MAX_NAME_CHARS}"))
    if not _ASCII_NAME.fullmatch(name):
        found.append(finding("name.not-ascii" if _is_unicode_name(name) else "name.pattern", name))
    if unicodedata.normalize("NFKC", name) != unicodedata.normalize("NFKC", folder):
        found.append(finding("name.folder", f"{name!r} in folder {folder!r}"))
    return tuple(found)


def name_of(value: Value | None, folder: str) -> tuple[str, bool, tuple[Finding, ...]]:
    """Return a skill's name, whether it was inferred from the folder, and findings on it.

    A stated name is judged by the specification's rules but kept as written, on one line; anything but text
    counts as missing.
    """
    name = " ".join(canonical(value)[0].split()) if isinstance(value, str) else ""
    if name:
        return name, False, _judged(name, folder)
    return " ".join(canonical(folder)[0].split()) or folder, True, (finding("name.missing"),)


@dataclass(frozen=True, slots=True)
class SkillText:
    """A file's canonical, redacted texts, the licence it declares, and findings in reading order."""

    name: str  # never empty
    description: str  # empty if neither author nor body gives one
    body: str  # may be blank: the filters drop such a document
    inferred: tuple[str, ...] = ()  # fields whose text its author has not written
    declared_licence: Value | None = None
    findings: tuple[Finding, ...] = ()
    risks: tuple[Finding, ...] = ()  # what its author says of who may use it


def _declared_licence(fields: dict[str, Value]) -> Value | None:
    metadata = fields.get("metadata")
    within = metadata.get("license") if isinstance(metadata, dict) else None
    return fields.get("license") or fields.get("licence") or within


def _redacted(value: Value, found: list[Finding]) -> Value:
    if isinstance(value, list):
        return [_redacted(item, found) for item in value]
    if isinstance(value, dict):
        return {key: _redacted(item, found) for key, item in value.items()}
    text, secrets = redact(value)
    found.extend(secrets)
    return text


def _without_keys(found: Iterable[Finding]) -> list[Finding]:
    """Return findings that may cite the names of fields, which may be live keys, without these."""
    return [replace(one, message=redact(one.message)[0]) for one in found]


def skill_text(raw: RawDocument, text: str) -> SkillText:
    """Return the parts of a SKILL.md's text; every problem is a finding, no error is raised."""
    text, on_text = canonical(text)
    front = parse_frontmatter(text)
    body, removed = strip_boilerplate(front.body, "body")
    body, on_hidden = without_hidden(canonical(body)[0])
    body, on_secrets = redact(canonical(body)[0] if on_hidden else body)
    more: list[Finding] = []
    fields = {key: _redacted(value, more) for key, value in front.fields.items()}
    name, name_inferred, on_name = name_of(fields.get("name"), folder_of(raw.doc_id, raw.path))
    description, inferred, on_stated = description_of(fields.get("description"), body)
    advice = () if inferred else on_description(description, name)
    nested = [found.message for found in raw.findings if found.code == NESTED]
    on_front, on_keys = _without_keys(front.findings), _without_keys(on_fields(fields))
    found = [*on_text, *on_front, *removed, *on_hidden, *more, *on_secrets, *on_name, *on_stated]
    found += [*advice, *on_keys, *on_body(body), *on_links(body, raw.files, nested)]
    return SkillText(
        name=name,
        description=description,
        body=body,
        inferred=(*(("name",) if name_inferred else ()), *(("description",) if inferred else ())),
        declared_licence=_declared_licence(fields),
        findings=tuple(found),
        risks=on_offering(fields),
    )


def server_text(raw: RawDocument, text: str) -> SkillText | None:
    """Return the parts of a server in a registry; None if the text is no JSON object.

    The server's description, or its name if it has none, is also its body.
    """
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(listed, dict):
        return None
    stated = {key: listed[key] for key in ("name", "description") if isinstance(listed.get(key), str)}
    found: list[Finding] = []
    texts = {key: str(_redacted(canonical(value)[0], found)) for key, value in stated.items()}
    name = " ".join(texts.get("name", "").split()) or raw.doc_id
    description, on_hidden = without_hidden(texts.get("description", ""))
    inferred = () if description else ("description",)
    return SkillText(name, description or name, description or name, inferred, findings=(*found, *on_hidden))
