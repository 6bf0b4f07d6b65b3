"""Bundles: the files beside a SKILL.md are scanned for risks and redacted before their bytes are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from storage.schemas import BundledFile, Finding, RawDocument
from tasks.models.visible import visible
from tasks.refine.filters import MAX_CONTROL_SHARE, SEVERITIES, not_text
from tasks.refine.risks.scan import scan_all
from tasks.refine.text.canonical import decode
from tasks.refine.text.redact import redact
from tasks.refine.text.rules import finding

_PATH_CHARS = 120  # of a path in a finding


@dataclass(frozen=True, slots=True)
class RefinedBundle:
    """What is kept of a skill's files, and what was found in them; `contents` are the bytes of `blobs`."""

    blobs: tuple[BundledFile, ...] = ()
    contents: tuple[bytes, ...] = ()
    findings: tuple[Finding, ...] = ()
    risks: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class _Refined:
    """A file's bytes without secrets, None where they cannot be taken out, and what was found in it."""

    content: bytes | None
    secrets: tuple[Finding, ...] = ()
    risks: tuple[Finding, ...] = ()


def refine_bundles(
    documents: Sequence[RawDocument], *, max_control_share: float = MAX_CONTROL_SHARE
) -> list[RefinedBundle]:
    """Return the refined bundle of each document; equal files are scanned once.

    A text is redacted as bodies are, and is UTF-8 where that changed it; all other bytes stay as they are. A
    binary file in which something looks like a live key is not kept. For each rule there is one finding a
    bundle: of the gravest hit, the first file first, with the number of other files that it hit.

    Args:
        documents: Their `contents` are refined.
        max_control_share: The largest share of control characters in a text, 0 to 1.
    """
    files = dict.fromkeys(file.content for raw in documents for file in raw.contents)
    refined = _refine(list(files), max_control_share)
    return [_bundle([(file.path, refined[file.content]) for file in raw.contents]) for raw in documents]


def _refine(contents: list[bytes], max_control_share: float) -> dict[bytes, _Refined]:
    texts = {content: decode(content)[0] for content in contents}
    binary = {c for c, text in texts.items() if not_text(text, max_control_share=max_control_share)}
    scanned = [content for content in contents if content not in binary]
    risks = dict(zip(scanned, scan_all([texts[content] for content in scanned]), strict=True))
    return {content: _without_secrets(content, texts[content], risks.get(content)) for content in contents}


def _without_secrets(content: bytes, text: str, risks: tuple[Finding, ...] | None) -> _Refined:
    """Return a file without secrets; `risks` are None for a binary one, which is kept whole or not at all."""
    if risks is None:
        # UTF-16 without its mark is ASCII with a zero after each byte.
        secrets = redact(content.replace(b"\0", b"").decode("latin-1"))[1]
        return _Refined(None, (finding("bundle.secret-in-binary"),)) if secrets else _Refined(content)
    redacted, secrets = redact(text)
    return _Refined(redacted.encode("utf-8", "replace") if secrets else content, secrets, risks)


def _bundle(files: list[tuple[str, _Refined]]) -> RefinedBundle:
    kept = [(path, file.content) for path, file in files if file.content is not None]
    blobs = (BundledFile(path, len(c), hashlib.sha256(c).hexdigest()) for path, c in kept)
    return RefinedBundle(
        blobs=tuple(blobs),
        contents=tuple(content for _, content in kept),
        findings=_gravest((path, found) for path, file in files for found in file.secrets),
        risks=_gravest((path, found) for path, file in files for found in file.risks),
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
