"""One raw file becomes one document, or a drop with its reason."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime

from storage.schemas import Document, Dropped, Finding, RawDocument
from tasks.refine.bundles import RefinedBundle
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
    too_many_parts,
    too_risky,
    too_short,
)
from tasks.refine.frontmatter.skill_text import server_text, skill_text
from tasks.refine.licences.resolve import resolve_licence
from tasks.refine.risks.scan import scan
from tasks.refine.text.canonical import body_hash, content_hash, decode
from tasks.refine.text.language import MIN_LETTERS, Language, language_of
from tasks.refine.text.rules import finding

# The fields that a document takes over unchanged from its raw document.
_CARRIED = {f.name for f in fields(RawDocument)} & {f.name for f in fields(Document)} - {"findings"}


def refine_document(
    raw: RawDocument,
    *,
    fetched_at: datetime,
    first_seen_at: datetime,
    limits: FilterLimits | None = None,
    risks: tuple[Finding, ...] | None = None,
    bundle: RefinedBundle | None = None,
) -> Document | Dropped:
    """Refine one file: decode, split, redact and filter it; find its licence, language and risks.

    No content raises an error. Name and description are inferred where the front matter lacks them. Risks are
    those of the whole text as fetched, then those of its bundle. The content of an `mcp-server` is a JSON
    object from a registry; the filters on bodies do not apply to it.

    Args:
        raw: The file as fetched; `content` is None if it was over the crawler's limit.
        fetched_at: Time when this content was fetched.
        first_seen_at: Time when any version of this document was first seen.
        limits: The filters' thresholds; None: the defaults.
        risks: The risks of its text, if it was scanned already; None scans it.
        bundle: Its refined files; None: nothing is kept of them.
    """
    limits, content, bundle = limits or FilterLimits(), raw.content or b"", bundle or RefinedBundle()
    text, on_bytes = decode(content)
    unreadable = too_large(raw.content, raw.size) or empty(content)
    unreadable = unreadable or not_text(text, max_control_share=limits.max_control_share)
    if unreadable:
        return _dropped(raw, unreadable)
    parts = (server_text if raw.kind == "mcp-server" else skill_text)(raw, text)
    if parts is None:
        return _dropped(raw, ("not_text", "what was listed of this server is no JSON object"))
    language = language_of(parts.body, parts.description, min_confidence=limits.min_language_confidence)
    licence = resolve_licence(raw, parts.declared_licence)
    document = Document(
        **{name: getattr(raw, name) for name in _CARRIED},
        name=parts.name,
        description=parts.description,
        body=parts.body,
        inferred=parts.inferred,
        body_hash=body_hash(parts.body),
        content_hash=content_hash(parts.name, parts.description, parts.body),
        language=language.code,
        licence=licence.licence,
        licence_rule=licence.rule,
        blobs=bundle.blobs,
        findings=(
            *(*raw.findings, *on_bytes, *parts.findings, *licence.findings, *_on_language(language)),
            *bundle.findings,
        ),
        risks=(*(scan(text) if risks is None else risks), *bundle.risks),
        fetched_at=fetched_at,
        first_seen_at=first_seen_at,
    )
    unfit = _unfit(document, language, limits)
    return _dropped(raw, unfit, document.content_hash) if unfit else document


def _dropped(raw: RawDocument, verdict: tuple[str, str], content: str | None = None) -> Dropped:
    reason, detail = verdict
    return Dropped(raw.doc_id, raw.source, reason, detail, rule=f"refine.{reason}", content_hash=content)


def _on_language(language: Language) -> tuple[Finding, ...]:
    told = language.code or language.letters < MIN_LETTERS
    return () if told else (finding("language.undetermined"),)


def _unfit(document: Document, language: Language, limits: FilterLimits) -> Verdict:
    """Return the first reason to drop a document: by its text, then its licence, then its risks."""
    told, body = "" if "description" in document.inferred else document.description, document.body
    on_text = None
    if document.kind != "mcp-server":
        on_text = no_body(body) or too_many_parts(body, max_parts=limits.max_parts) or no_instructions(body)
        on_text = on_text or (template(told, body) if limits.drop_templates else None)
        on_text = on_text or too_short(body, min_words=limits.min_words)
        on_text = on_text or no_language(language, min_confidence=limits.min_language_confidence)
    refused = licence_refused(document.licence, limits.drop_licences, limits.policy)
    return on_text or refused or too_risky(document.risks, limits.drop_risks)
