"""One raw file and its bundle become one document, or a drop with its reason."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime

from storage.schemas import BundledFile, Document, Dropped, FileContent, Finding, RawDocument, content_hash
from tasks.models.redact import redact
from tasks.models.visible import visible
from tasks.refine import filters
from tasks.refine.filters import SEVERITIES, FilterLimits, Verdict
from tasks.refine.frontmatter.skill_text import server_text, skill_text
from tasks.refine.licences.resolve import resolve_licence
from tasks.refine.risks.contents import RUNS, crawled, scan_bundles
from tasks.refine.text.canonical import MAX_CONTROL_SHARE, body_hash
from tasks.refine.text.encodings import decode
from tasks.refine.text.language import MIN_LETTERS, Language, language_of
from tasks.refine.text.rules import finding

_TEXT = "SKILL.md"  # as what a text is scanned, whatever its file is called
_PATH_CHARS = 120  # of a path in a finding
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True, slots=True)
class RefinedBundle:
    """What is kept of a skill's files, and what was found in them and in its text.

    `contents` are the bytes of `blobs`; `text_risks` are those of SKILL.md, `risks` those of the other files.
    """

    blobs: tuple[BundledFile, ...] = ()
    contents: tuple[bytes, ...] = ()
    findings: tuple[Finding, ...] = ()
    risks: tuple[Finding, ...] = ()
    text_risks: tuple[Finding, ...] = ()


# A file's bytes without secrets, None where they cannot be taken out, and what was found in it.
_Refined = tuple[bytes | None, tuple[Finding, ...]]


def refine_bundles(
    documents: Sequence[RawDocument], *, max_control_share: float = MAX_CONTROL_SHARE
) -> list[RefinedBundle]:
    """Return the refined bundle of each document, of its `contents`; equal files are scanned once.

    A text is redacted as bodies are, and is UTF-8 where that changed it; all other bytes stay as they are. A
    binary file in which something looks like a live key is not kept. For each rule there is one finding a
    bundle: of the gravest hit, the first file first, with the number of other files that it hit.
    `max_control_share` is the largest share of control characters in a text, 0 to 1.
    """
    contents = dict.fromkeys(file.content for raw in documents for file in raw.contents)
    refined = {content: _without_secrets(content, max_control_share) for content in contents}
    files = [[FileContent(_TEXT, raw.content or b""), *raw.contents] for raw in documents]
    risks = scan_bundles(files, max_control_share=max_control_share)
    return [
        _bundle([(file.path, refined[file.content]) for file in raw.contents], found, crawled(raw.findings))
        for raw, found in zip(documents, risks, strict=True)
    ]


def _without_secrets(content: bytes, max_control_share: float) -> _Refined:
    if content.startswith(_LFS_POINTER):
        return None, (finding("bundle.lfs-pointer"),)
    text = decode(content)[0]
    if filters.not_text(text, max_control_share=max_control_share):
        # UTF-16 without its mark is ASCII with a zero after each byte.
        secrets = redact(b"\n".join(RUNS.findall(content.replace(b"\0", b""))).decode())[1]
        return (None, (finding("bundle.secret-in-binary"),)) if secrets else (content, ())
    redacted, secrets = redact(text)
    return redacted.encode("utf-8", "replace") if secrets else content, secrets


def _bundle(
    files: list[tuple[str, _Refined]], risks: list[tuple[str, Finding]], met: list[Finding]
) -> RefinedBundle:
    kept = [(path, content) for path, (content, _) in files if content is not None]
    blobs = (BundledFile(path, len(c), hashlib.sha256(c).hexdigest()) for path, c in kept)
    return RefinedBundle(
        blobs=tuple(blobs),
        contents=tuple(content for _, content in kept),
        findings=_gravest((path, found) for path, (_, secrets) in files for found in secrets),
        risks=(*_gravest(one for one in risks if one[0] != _TEXT), *met),
        text_risks=tuple(found for path, found in risks if path == _TEXT),
    )


def _gravest(found: Iterable[tuple[str, Finding]]) -> tuple[Finding, ...]:
    """Return the gravest finding of each code, the first of equals, with its file and how many others."""
    by_code: dict[str, list[tuple[str, Finding]]] = {}
    for path, of_file in found:
        by_code.setdefault(of_file.code, []).append((path, of_file))
    gravest = []
    for code, hits in by_code.items():
        path, worst = min(hits, key=lambda hit: SEVERITIES.index(hit[1].severity))
        more = f" (and in {len(hits) - 1:,} more files)" if len(hits) > 1 else ""
        message = f"{visible(path)[:_PATH_CHARS]}, {worst.message}{more}"
        gravest.append(Finding(code, worst.severity, message))
    return tuple(gravest)


# The fields that a document takes over unchanged from its raw document.
_CARRIED = {f.name for f in fields(RawDocument)} & {f.name for f in fields(Document)}
_CARRIED -= {"findings", "licence_files"}


def refine_document(
    raw: RawDocument, *, fetched_at: datetime, first_seen_at: datetime, limits: FilterLimits | None = None,
    bundle: RefinedBundle | None = None,
) -> Document | Dropped:  # fmt: skip
    """Refine one file: decode, split, redact and filter it; find its licence, language and risks.

    No content raises an error. Name and description are inferred where the front matter lacks them. Risks are
    those of the whole text as fetched, then those of its bundle. The content of an `mcp-server` is a JSON
    object from a registry; the filters on bodies do not apply to it. Without a `bundle`, which
    `refine_bundles` makes, the text is scanned, and nothing is kept of its files.
    """
    limits, content = limits or FilterLimits(), raw.content or b""
    bundle = bundle or refine_bundles([replace(raw, contents=())])[0]
    text, on_bytes = decode(content)
    if unreadable := _unreadable(raw, text, on_bytes, limits):
        return _dropped(raw, unreadable)
    parts = (server_text if raw.kind == "mcp-server" else skill_text)(raw, text)
    if parts is None:
        return _dropped(raw, ("not_text", "what was listed of this server is no JSON object"))
    language = language_of(parts.body, parts.description, min_confidence=limits.min_language_confidence)
    on_language = (
        [] if language.code or language.letters < MIN_LETTERS else [finding("language.undetermined")]
    )
    licence = resolve_licence(raw, parts.declared_licence)
    found = (*raw.findings, *on_bytes, *parts.findings, *licence.findings)
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
        licence_files=tuple(replace(file, text=_redacted(file.text)) for file in raw.licence_files),
        findings=(*found, *on_language, *bundle.findings),
        risks=(*bundle.text_risks, *parts.risks, *bundle.risks),
        fetched_at=fetched_at,
        first_seen_at=first_seen_at,
    )
    unfit = _unfit(document, language, limits)
    return _dropped(raw, unfit, document.content_hash) if unfit else document


def content_hash_of(raw: RawDocument) -> str | None:
    """Return the content hash of a file as fetched, by the rules of now; None: it has no text."""
    at = datetime.min.replace(tzinfo=UTC)
    return refine_document(raw, fetched_at=at, first_seen_at=at).content_hash


@functools.lru_cache(1_000)  # the licences of a repository are those of each of its skills
def _redacted(text: str) -> str:
    return redact(text)[0]


def _dropped(raw: RawDocument, verdict: tuple[str, str], content: str | None = None) -> Dropped:
    reason, detail = verdict
    return Dropped(raw.doc_id, raw.source, reason, detail, rule=f"refine.{reason}", content_hash=content)


def _unreadable(raw: RawDocument, text: str, on_bytes: Sequence[Finding], limits: FilterLimits) -> Verdict:
    if raw.content is None:
        return "too_large", f"{raw.size:,} bytes: over the size limit, its content was not read"
    if not raw.content:
        return "empty", "the file has zero bytes"
    unknown = [found.message for found in on_bytes if found.code == "document.unknown-encoding"]
    is_binary = filters.not_text(text, max_control_share=limits.max_control_share)
    return is_binary or (("not_text", unknown[0]) if unknown else None)


def _unfit(document: Document, language: Language, limits: FilterLimits) -> Verdict:
    """Return the first reason to drop a document: by its text, then its licence, then its risks."""
    stated, body = "" if "description" in document.inferred else document.description, document.body
    on_text = None
    if document.kind != "mcp-server":
        on_text = (
            filters.no_body(body)
            or filters.too_many_parts(body, max_parts=limits.max_parts)
            or filters.no_instructions(body)
        )
        on_text = on_text or (filters.template(stated, body) if limits.drop_templates else None)
        on_text = on_text or filters.too_short(body, min_words=limits.min_words)
        on_text = on_text or filters.no_language(language, min_confidence=limits.min_language_confidence)
    refused = filters.licence_refused(document.licence, limits.drop_licences, limits.policy)
    return on_text or refused or filters.too_risky(document.risks, limits.drop_risks)
