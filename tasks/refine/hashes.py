"""Hashes of what refine made of a text: equal ones tell that nothing in it changed."""

from __future__ import annotations

import hashlib


def body_hash(body: str) -> str:
    """Return the SHA-256 of a canonical body as hexadecimal; exact duplicates share it."""
    return hashlib.sha256(body.encode()).hexdigest()


def content_hash(name: str, description: str, body: str) -> str:
    """Return the SHA-256 of name, description and body as hexadecimal."""
    encoded = [part.encode() for part in (name, description, body)]
    # Its length stands before each part: else text moved from one part to the next would give the same hash.
    return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in encoded)).hexdigest()
