"""One raw file to one document, or to a drop with its reason."""

from __future__ import annotations

import hashlib
from datetime import datetime

from storage.schemas import Document, Dropped, Finding, RawDocument
from tasks.refine.boilerplate import strip_boilerplate
from tasks.refine.canonical import canonical
from tasks.refine.decode import decode
from tasks.refine.descriptions import description_of
from tasks.refine.fences import has_open_fence
from tasks.refine.filters import Limits, Verdict, empty, no_body, not_text, too_large
from tasks.refine.findings import finding
from tasks.refine.frontmatter import SPEC_KEYS, FrontMatter, parse_frontmatter
from tasks.refine.names import folder_of, name_of

MAX_BODY_LINES = 500


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


def _dropped(raw: RawDocument, verdict: tuple[str, str]) -> Dropped:
    reason, detail = verdict
    return Dropped(raw.doc_id, raw.source, reason, detail, rule=f"refine.{reason}")


def _unreadable(raw: RawDocument) -> Verdict:
    return too_large(raw.content, raw.size) or empty(raw.content or b"")


def _on_fields(front: FrontMatter) -> tuple[Finding, ...]:
    """Return findings on the fields that neither name nor description covers."""
    found = []
    if unknown := sorted(front.fields.keys() - SPEC_KEYS):
        found.append(finding("keys.unknown", ", ".join(unknown)))
    licence = front.fields.get("license")
    if isinstance(licence, str) and licence.strip():
        found.append(finding("licence.declared", licence.strip()))
    return tuple(found)


def _on_body(body: str) -> tuple[Finding, ...]:
    found = []
    lines = body.count("\n") + 1
    if lines > MAX_BODY_LINES:
        found.append(finding("body.long", f"{lines:,} lines, advice is at most {MAX_BODY_LINES}"))
    if has_open_fence(body):
        found.append(finding("body.unbalanced-fence"))
    return tuple(found)


def _assembled(
    raw: RawDocument,
    front: FrontMatter,
    body: str,
    found: tuple[Finding, ...],
    *,
    fetched_at: datetime,
    first_seen_at: datetime,
) -> Document:
    name, name_inferred, on_name = name_of(front.fields.get("name"), folder_of(raw))
    description, description_inferred, on_description = description_of(front.fields.get("description"), body)
    inferred = (("name", name_inferred), ("description", description_inferred))
    return Document(
        doc_id=raw.doc_id,
        kind=raw.kind,
        name=name,
        description=description,
        body=body,
        inferred=tuple(field for field, is_inferred in inferred if is_inferred),
        body_hash=body_hash(body),
        content_hash=content_hash(name, description, body),
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
        files=raw.files,
        licence_files=raw.licence_files,
        findings=(*raw.findings, *found, *on_name, *on_description, *_on_fields(front), *_on_body(body)),
        fetched_at=fetched_at,
        first_seen_at=first_seen_at,
    )


def refine_document(
    raw: RawDocument, *, fetched_at: datetime, first_seen_at: datetime, limits: Limits | None = None
) -> Document | Dropped:
    """Refine one file: decode, make canonical, take the front matter off, filter, name what was found.

    It never raises on any content. Name and description are inferred where the front matter lacks them; the
    licence stays None, what the front matter states of it is the finding `licence.declared`. The crawler's
    findings come first.

    Args:
        raw: The file as fetched; `content` None where it was over the crawler's limit.
        fetched_at: When this content was fetched.
        first_seen_at: When any version of this document was first seen.
        limits: The filters' thresholds; the defaults of `Limits` where None.
    """
    unreadable = _unreadable(raw)
    if unreadable:
        return _dropped(raw, unreadable)
    text, on_bytes = decode(raw.content or b"")
    binary = not_text(text, max_control_share=(limits or Limits()).max_control_share)
    if binary:
        return _dropped(raw, binary)
    text, on_text = canonical(text)
    front = parse_frontmatter(text)
    body, removed = strip_boilerplate(front.body, "body")
    body, _ = canonical(body)
    bodiless = no_body(body)
    if bodiless:
        return _dropped(raw, bodiless)
    found = (*on_bytes, *on_text, *front.findings, *removed)
    return _assembled(raw, front, body, found, fetched_at=fetched_at, first_seen_at=first_seen_at)
