"""The address of a skill's file, `skill://<id>/<name>/<path>` (Skills extension of MCP, SEP-2640).

The first segment is the document's id: its parts percent-encoded and joined by `+`, so that no skill lies in
the folder of another one, and the id can be read back. The second is the skill's name.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, unquote

from storage.errors import UnknownDocument
from tasks.crawl.source.identity import doc_key

SCHEME = "skill://"
_NO_SEGMENT = re.compile(r"[/\\\x00-\x1f\x7f]")


class Address(NamedTuple):
    """The parts of an address; `path` is that of a file or folder of the skill, empty for its own folder."""

    doc_id: str
    name: str
    path: str


def is_segment(name: str) -> bool:
    """Tell whether a name can be one segment of an address."""
    return bool(name) and name not in {".", ".."} and not _NO_SEGMENT.search(name)


def folder_uri(doc_id: str, name: str) -> str:
    """Return the address of a skill's folder; whatever its id holds, it has two segments."""
    whole = "+".join(quote(part, safe="") for part in doc_id.split("/"))
    return f"{SCHEME}{whole}/{quote(name, safe='')}"


def file_uri(doc_id: str, name: str, path: str) -> str:
    """Return the address of a file or folder of a skill."""
    return f"{folder_uri(doc_id, name)}/{quote(path, safe='/')}" if path else folder_uri(doc_id, name)


def parse_uri(uri: str) -> Address:
    """Return the parts of an address, whose first segment may be in any letter case.

    Raises:
        UnknownDocument: It is not written as `file_uri` writes addresses, so that nothing is served there.
    """
    host, _, rest = uri.removeprefix(SCHEME).partition("/")
    name, _, path = rest.partition("/")
    found = Address("/".join(unquote(part) for part in host.split("+")), unquote(name), unquote(path))
    try:
        own_host, _, own_rest = file_uri(*found).removeprefix(SCHEME).partition("/")
        same = own_rest == rest and doc_key(own_host) == doc_key(host)
    except UnicodeEncodeError:  # half of a surrogate pair
        same = False
    if not uri.startswith(SCHEME) or not is_segment(found.name) or not same:
        msg = f"nothing is served at {uri[:200]!r}: addresses are those that skills/list and skills/get give"
        raise UnknownDocument(msg)
    return found
