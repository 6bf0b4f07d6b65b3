"""The formats of well-known registries: names, digests, archives and indexes, the same bytes each time.

Version 0.2.0 of the index lists an artifact a skill with its digest, 0.1.0 the files of each skill without.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import unicodedata
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any

SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
FOLDER, OLDER_FOLDER = ".well-known/agent-skills", ".well-known/skills"
INDEX, OLDER_INDEX = f"{FOLDER}/index.json", f"{OLDER_FOLDER}/index.json"
MOST_NAME = 64
_MOST_DESCRIPTION = 1024  # UTF-16 units, as clients in JavaScript count
_NAME = re.compile(r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_NOT_IN_NAME = re.compile(r"[^a-z0-9]+")


def is_registry_name(name: object) -> bool:
    """Tell whether a registry may list a skill under a name: 1 to 64 of a-z, 0-9 and single inner hyphens."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def registry_name(text: str) -> str:
    """Return the name under which a registry lists what is called so; empty if no letter of it is ASCII."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return _NOT_IN_NAME.sub("-", plain).strip("-")[:MOST_NAME].strip("-")


def digest_of(content: bytes) -> str:
    """Return the digest of an artifact as an index states it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return a zip archive of files by path, the same bytes for the same files on any machine.

    They are stored as they are: what a packer makes of a text differs between its versions.
    """
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for path, content in sorted(files.items()):
            member = zipfile.ZipInfo(path)  # of 1980-01-01, the least that the format takes
            member.create_system, member.external_attr = 3, 0o100644 << 16
            archive.writestr(member, content)
    return made.getvalue()


def index_entry(
    name: str, description: str, url: str, digest: str, meta: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a skill as the index lists it: an archive at `url`, which may be relative to the index.

    `meta` says more of it, under a key that clients do not know.
    """
    said = told_description(name, description)
    return {
        "name": name, "type": "archive", "description": said, "url": url, "digest": digest, "_meta": meta,
    }  # fmt: skip


def told_description(name: str, description: str | None) -> str:
    """Return a description as clients take it: not empty, and cut where it is too long."""
    units = ((description or "").strip() or name).encode("utf-16-le", "surrogatepass")
    return units[: 2 * _MOST_DESCRIPTION].decode("utf-16-le", "ignore")


def index_json(entries: Iterable[Mapping[str, Any]]) -> bytes:
    """Return the index, of version 0.2.0."""
    return as_json({"$schema": SCHEMA, "skills": list(entries)})


def older_index_json(skills: Iterable[tuple[str, str | None, Iterable[str]]]) -> bytes:
    """Return the index of version 0.1.0 of skills: name, description and paths of files.

    Clients refuse the whole index for one path that holds two dots, so that such a skill is left out.
    """
    listed = [
        {"name": name, "description": told_description(name, description), "files": sorted(paths)}
        for name, description, paths in skills
        if not any(".." in path for path in paths)
    ]
    return as_json({"skills": listed})


def as_json(value: Mapping[str, Any]) -> bytes:
    """Return a JSON file, the same bytes for the same value."""
    return (json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n").encode("utf-8", "replace")
