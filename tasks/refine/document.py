"""One raw file to one document, or to a drop with its reason."""

from __future__ import annotations

import hashlib
from datetime import datetime

from storage.schemas import Document, Dropped, Finding, RawDocument
from tasks.refine.filters import (
    FilterLimits,
    Verdict,
    empty,
    licence_refused,
    no_body,
    no_instructions,
    no_language,
    not_text,
    template,
    too_large,
    too_risky,
    too_short,
)
from tasks.refine.frontmatter.parts import Parts, server_parts, skill_parts
from tasks.refine.licences.resolve import Licence, resolve_licence
from tasks.refine.risks.scan import scan
from tasks.refine.text.decode import decode
from tasks.refine.text.findings import finding
from tasks.refine.text.language import MIN_LETTERS, Language, language_of


def body_hash(body: str) -> str:
    """Return the SHA-256 of a canonical body as hexadecimal; exact duplicates share it."""
    return hashlib.sha256(body.encode()).hexdigest()


def content_hash(name: str, description: str, body: str) -> str:
    """Return the SHA-256 of name, description and body as hexadecimal.

    Each part is preceded by its UTF-8 length as eight bytes, big-endian, so that no two triples of texts give
    the same input.
    """
    digest = hashlib.sha256()
    for part in (name, description, body):
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "big"))
        digest.update(encoded)
    return digest.hexdigest()


def refine_document(
    raw: RawDocument,
    *,
    fetched_at: datetime,
    first_seen_at: datetime,
    limits: FilterLimits | None = None,
    risks: tuple[Finding, ...] | None = None,
) -> Document | Dropped:
    """Refine one file: decode, take apart, redact, filter, find its licence, language and risks.

    It never raises on any content. Name and description are inferred where the front matter lacks them. Risks
    are those of the whole text as fetched. The crawler's findings come first. Of an `mcp-server` the content
    is a JSON object with what its list says; the filters on bodies let it pass, however short.

    Args:
        raw: The file as fetched; `content` None where it was over the crawler's limit.
        fetched_at: When this content was fetched.
        first_seen_at: When any version of this document was first seen.
        limits: The filters' thresholds; the defaults of `Limits` where None.
        risks: Those of its text, where many texts were scanned together; None: it is scanned here.
    """
    limits = limits or FilterLimits()
    unreadable = too_large(raw.content, raw.size) or empty(raw.content or b"")
    if unreadable:
        return _dropped(raw, unreadable)
    text, on_bytes = decode(raw.content or b"")
    binary = not_text(text, max_control_share=limits.max_control_share)
    if binary:
        return _dropped(raw, binary)
    parts = (server_parts if raw.kind == "mcp-server" else skill_parts)(raw, text)
    if parts is None:
        return _dropped(raw, ("not_text", "what was listed of this server is no JSON object"))
    language = language_of(parts.body, parts.description, min_confidence=limits.min_language_confidence)
    licence = resolve_licence(raw, parts.declared_licence)
    found = scan(text) if risks is None else risks
    document = _assembled(raw, parts, language, licence, on_bytes, found, fetched_at, first_seen_at)
    unfit = _unfit(document, language, limits)
    return _dropped(raw, unfit, document.content_hash) if unfit else document


def _dropped(raw: RawDocument, verdict: tuple[str, str], content: str | None = None) -> Dropped:
    reason, detail = verdict
    return Dropped(raw.doc_id, raw.source, reason, detail, rule=f"refine.{reason}", content_hash=content)


def _unfit(document: Document, language: Language, limits: FilterLimits) -> Verdict:
    """Return the first reason to drop a document: what it lacks, then what it is, then policies."""
    told, body = "" if "description" in document.inferred else document.description, document.body
    on_text = None
    if document.kind != "mcp-server":
        on_text = no_body(body) or no_instructions(body)
        on_text = on_text or (template(told, body) if limits.drop_templates else None)
        on_text = on_text or too_short(body, min_words=limits.min_words)
        on_text = on_text or no_language(language, min_confidence=limits.min_language_confidence)
    refused = licence_refused(document.licence, limits.drop_licences, limits.policy)
    return on_text or refused or too_risky(document.risks, limits.drop_risks)


def _assembled(
    raw: RawDocument,
    parts: Parts,
    language: Language,
    licence: Licence,
    on_bytes: tuple[Finding, ...],
    risks: tuple[Finding, ...],
    fetched_at: datetime,
    first_seen_at: datetime,
) -> Document:
    told = language.code or language.letters < MIN_LETTERS
    untold = () if told else (finding("language.undetermined"),)
    return Document(
        doc_id=raw.doc_id,
        kind=raw.kind,
        name=parts.name,
        description=parts.description,
        body=parts.body,
        inferred=parts.inferred,
        body_hash=body_hash(parts.body),
        content_hash=content_hash(parts.name, parts.description, parts.body),
        raw_hash=raw.raw_hash,
        source=raw.source,
        repo=raw.repo,
        repo_id=raw.repo_id,
        ref=raw.ref,
        commit=raw.commit,
        tree_sha=raw.tree_sha,
        path=raw.path,
        url=raw.url,
        author=raw.author,
        stars=raw.stars,
        category=raw.category,
        tags=raw.tags,
        language=language.code,
        files=raw.files,
        licence=licence.licence,
        licence_rule=licence.rule,
        licence_files=raw.licence_files,
        findings=(*raw.findings, *on_bytes, *parts.findings, *licence.findings, *untold),
        risks=risks,
        fetched_at=fetched_at,
        first_seen_at=first_seen_at,
    )
