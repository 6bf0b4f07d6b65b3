"""Credentials in what a source says of a skill: redacted in every field, also in ids, but for its files."""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from tasks.models.redact import redact

R = TypeVar("R")
# Names are told apart after redaction, too. A source is the operator's own, and its spec holds no password.
_NAMES, _KEPT = {"doc_id", "doc_ids", "source_id", "lost_to", "path"}, {"source"}
_LOGIN = re.compile(
    r"(?<=[ps]://)[^/?#\s]*@"
)  # of http, https and ftp: the account of an SSH address is public
_PARAMETER = re.compile(
    r"([?&#;](?:[a-z]{1,12}[_-]?){0,2}(?:token|key|secret|passw(?:or)?d|pwd|sig(?:nature)?|credentials?|auth)=)"
    r"[^&#\s]{8,}",
    re.IGNORECASE,
)


def without_credentials(record: R) -> R:
    """Return a record of a source with the credentials in its texts redacted; bytes stay as they are.

    Redacted are logins in URLs, parameters of URLs that are named as keys, and all that `redact` replaces. A
    part of an id or path that held one ends in six digits of its SHA-256.
    """
    of_record: Any = record
    given = {field.name: getattr(record, field.name) for field in fields(of_record)}
    clean = {name: _clean(name, value) for name, value in given.items() if name not in _KEPT}
    changed = {name: value for name, value in clean.items() if value is not given[name]}
    return replace(of_record, **changed) if changed else record


def _clean(name: str, value: Any) -> Any:  # noqa: ANN401 (any field)
    """Return a value of a field without credentials: the value itself if it has none."""
    if isinstance(value, str):
        clean = _name(value) if name in _NAMES else _text(value)
        return value if clean == value else clean
    if isinstance(value, tuple):
        parts = tuple(_clean(name, part) for part in value)
        return value if all(map(lambda a, b: a is b, parts, value)) else parts
    return without_credentials(value) if is_dataclass(value) else value


@functools.lru_cache(maxsize=4_096)  # repositories, authors and licences are those of many documents
def _text(text: str) -> str:
    if "://" in text:
        text = _PARAMETER.sub(r"\1[redacted]", _LOGIN.sub("", text))
    return redact(text)[0]


def _name(name: str) -> str:
    if (clean := _text(name)) == name:
        return name
    parts = "/".join(_marked(part, _text(part)) for part in name.split("/"))
    return parts if _text(parts) == parts else _marked(name, clean)


def _marked(given: str, clean: str) -> str:
    return given if clean == given else f"{clean}~{hashlib.sha256(given.encode()).hexdigest()[:6]}"
