"""The discovery index of a site's skills, version 0.2.0 and 0.1.0: its entries, read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, urljoin, urlsplit

from tasks.crawl.registries.formats import SCHEMA, is_registry_name

SKILL_FILE = "SKILL.md"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MOST_ENTRIES = 100_000
_MOST_FILES = 2_000  # of one entry
Kind = Literal["skill-md", "archive"]


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
    """Return the entries of an index, and of those that cannot be used the name and why.

    Args:
        index: The JSON value.
        url: Where it was found; addresses in it are relative to that.

    Raises:
        NoIndex: It is of another form or version, or too long.
    """
    if not isinstance(index, Mapping) or not isinstance(index.get("skills"), list):
        raise NoIndex("it is no JSON object with a list `skills`")
    schema, rows = index.get("$schema"), index["skills"]
    if schema not in (None, SCHEMA):
        raise NoIndex(f"its version is {str(schema)[:100]!r}; 0.2.0 and 0.1.0 are read")
    if len(rows) > _MOST_ENTRIES:
        raise NoIndex(f"it has {len(rows):,} entries, more than the limit of {_MOST_ENTRIES:,}")
    entries: dict[str, Entry] = {}
    refused: list[tuple[str, str]] = []
    for row in rows:
        name = row.get("name") if isinstance(row, Mapping) else None
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
