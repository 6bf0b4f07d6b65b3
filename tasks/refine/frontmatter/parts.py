"""The parts of a file: name, description and body of a SKILL.md or of a registry's listing."""

from __future__ import annotations

import json
from dataclasses import dataclass

from storage.schemas import Finding, RawDocument
from tasks.refine.frontmatter.description import description_of
from tasks.refine.frontmatter.frontmatter import parse_frontmatter
from tasks.refine.frontmatter.name import folder_of, name_of
from tasks.refine.frontmatter.spec_findings import on_body, on_description, on_fields, on_links
from tasks.refine.text.boilerplate import strip_boilerplate
from tasks.refine.text.canonical import canonical
from tasks.refine.text.redact import redact
from tasks.refine.text.strict_yaml import Value


@dataclass(frozen=True, slots=True)
class Parts:
    """A file's canonical, redacted texts, the licence it declares, and findings in reading order."""

    name: str  # never empty
    description: str  # empty if neither author nor body gives one
    body: str  # may be blank: the filters drop such a document
    inferred: tuple[str, ...] = ()  # fields whose text its author has not written
    declared_licence: Value | None = None
    findings: tuple[Finding, ...] = ()


def _declared_licence(fields: dict[str, Value]) -> Value | None:
    """Return the licence from its key, from the key in British spelling, or from the metadata."""
    metadata = fields.get("metadata")
    within = metadata.get("license") if isinstance(metadata, dict) else None
    return fields.get("license") or fields.get("licence") or within


def _redacted(value: Value, found: list[Finding]) -> Value:
    """Return a front matter value with secrets redacted; add a finding for each to `found`."""
    if isinstance(value, list):
        return [_redacted(item, found) for item in value]
    if isinstance(value, dict):
        return {key: _redacted(item, found) for key, item in value.items()}
    text, secrets = redact(value)
    found.extend(secrets)
    return text


def skill_parts(raw: RawDocument, text: str) -> Parts:
    """Return the parts of a SKILL.md's text; every problem is a finding, no error is raised."""
    text, on_text = canonical(text)
    front = parse_frontmatter(text)
    body, removed = strip_boilerplate(front.body, "body")
    body, on_secrets = redact(canonical(body)[0])
    more: list[Finding] = []
    fields = {key: _redacted(value, more) for key, value in front.fields.items()}
    name, name_inferred, on_name = name_of(fields.get("name"), folder_of(raw.doc_id, raw.path))
    description, inferred, on_stated = description_of(fields.get("description"), body)
    advice = () if inferred else on_description(description, name)
    return Parts(
        name=name,
        description=description,
        body=body,
        inferred=(*(("name",) if name_inferred else ()), *(("description",) if inferred else ())),
        declared_licence=_declared_licence(fields),
        findings=(
            *(*on_text, *front.findings, *removed, *more, *on_secrets, *on_name, *on_stated, *advice),
            *(*on_fields(fields), *on_body(body), *on_links(body, raw.files)),
        ),
    )


def server_parts(raw: RawDocument, text: str) -> Parts | None:
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
    description = texts.get("description", "")
    inferred = () if description else ("description",)
    return Parts(name, description or name, description or name, inferred, findings=tuple(found))
