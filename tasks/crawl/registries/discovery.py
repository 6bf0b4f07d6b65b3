"""The discovery index of a site's skills: names, digests and archives in it, written and read.

Version 0.2.0 lists an artifact a skill with its digest, 0.1.0 the files of each skill without. What is
written has the same bytes each time.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import unicodedata
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, urljoin, urlsplit

from tasks.models.fields import mapping_of

SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
FOLDER, OLDER_FOLDER = ".well-known/agent-skills", ".well-known/skills"
INDEX, OLDER_INDEX = f"{FOLDER}/index.json", f"{OLDER_FOLDER}/index.json"
MOST_NAME = 64
_MOST_DESCRIPTION = 1024  # UTF-16 units, as clients in JavaScript count
_NAME = re.compile(r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_NOT_IN_NAME = re.compile(r"[^a-z0-9]+")
SKILL_FILE = "SKILL.md"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MOST_ENTRIES = 100_000
_MOST_FILES = 2_000  # of one entry
Kind = Literal["skill-md", "archive"]


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


class NoIndex(ValueError):
    """A value is no discovery index, or none that is read; the message says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A skill of an index: one artifact with its digest (0.2.0), or files in a folder without any (0.1.0)."""

    name: str
    description: str
    url: str  # of the artifact, or of the folder, with `/` at its end
    kind: Kind = "skill-md"
    digest: str | None = None  # `sha256:` and 64 hexadecimal digits of the artifact's bytes; None: 0.1.0
    files: tuple[str, ...] = ()  # 0.1.0 only


def read_index(index: object, url: str) -> tuple[list[Entry], list[tuple[str, str]]]:
    """Return the entries of a JSON value, and of those that cannot be used the name and why.

    Addresses in it are relative to `url`, where it was found. Another form or version is NoIndex.
    """
    schema, rows = (mapping_of(index).get(key) for key in ("$schema", "skills"))
    if not isinstance(rows, list):
        raise NoIndex("it is no JSON object with a list `skills`")
    if schema not in (None, SCHEMA):
        raise NoIndex(f"its version is {str(schema)[:100]!r}; 0.2.0 and 0.1.0 are read")
    if len(rows) > _MOST_ENTRIES:
        raise NoIndex(f"it has {len(rows):,} entries, more than the limit of {_MOST_ENTRIES:,}")
    entries: dict[str, Entry] = {}
    refused: list[tuple[str, str]] = []
    for row in rows:
        name = mapping_of(row).get("name")
        shown = str(name)[:100].encode("utf-8", "replace").decode()
        try:
            entry = _entry(row, url) if schema else _old_entry(row, url)
        except ValueError as error:
            refused.append((shown, str(error)))
            continue
        if entries.setdefault(entry.name, entry) is not entry:
            refused.append((shown, "the index names it twice, the first counts"))
    return list(entries.values()), refused


def _named(row: object) -> tuple[Mapping[str, Any], str, str]:
    if not isinstance(row, Mapping):
        raise ValueError("the entry is no object")
    name, description = row.get("name"), row.get("description")
    if not isinstance(name, str) or not is_registry_name(name):
        raise ValueError("its name is none: 1 to 64 of a-z, 0-9 and single hyphens between them")
    if not isinstance(description, str):
        raise ValueError("its description is no text")
    return row, name, description


def _entry(row: object, base: str) -> Entry:
    row, name, description = _named(row)
    kind, url, digest = row.get("type"), row.get("url"), row.get("digest")
    if kind not in ("skill-md", "archive"):
        raise ValueError(f"its type is {str(kind)[:50]!r}; skill-md and archive are read")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ValueError("its digest is not `sha256:` and 64 hexadecimal digits in lower case")
    return Entry(name, description, resolved(base, url), kind, digest)


def resolved(base: str, url: object) -> str:
    """Return an address of an index as a whole URL; raise ValueError where it is none of the web."""
    whole = urljoin(base, url) if isinstance(url, str) and url else ""
    if urlsplit(whole).scheme not in ("http", "https") or not urlsplit(whole).hostname:
        raise ValueError(f"its address {str(url)[:100]!r} is none of http or https")
    if base.startswith("https:") and not whole.startswith("https:"):
        raise ValueError(f"its address {str(url)[:100]!r} leads from https to http")
    return whole


def is_plain_path(path: object) -> bool:
    """Tell whether a text is the path of a file below a folder."""
    plain = isinstance(path, str) and path.isprintable() and "\\" not in path and len(path) <= 1_000
    return plain and {"", ".", ".."}.isdisjoint(str(path).split("/")) and not re.match("[A-Za-z]:", str(path))


def _old_entry(row: object, base: str) -> Entry:
    row, name, description = _named(row)
    files = row.get("files")
    if not isinstance(files, list) or len(files) > _MOST_FILES or SKILL_FILE not in files:
        raise ValueError(f"its files are no list of at most {_MOST_FILES:,} with {SKILL_FILE} among them")
    if wrong := [path for path in files if not is_plain_path(path)]:
        raise ValueError(f"its file {str(wrong[0])[:100]!r} is no plain path below its folder")
    return Entry(name, description, urljoin(base, f"{quote(name)}/"), files=tuple(dict.fromkeys(files)))
