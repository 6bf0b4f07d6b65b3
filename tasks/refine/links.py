"""Links from a body to files beside it: which of them the bundle does not hold."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from urllib.parse import unquote

from storage.schemas import BundledFile, Finding
from tasks.refine.fences import fenced
from tasks.refine.findings import finding

_MAX_SHOWN = 5
# The target of `[text](target "title")` and of `[label]: target`; the text may hold brackets of its own.
_INLINE = re.compile(
    r"\]\([ \t]*(?:<(?P<angled>[^<>\n]{1,500})>|(?P<plain>[^\s()<>]{1,500}))[^()\n]{0,200}\)"
)
_REFERENCE = re.compile(r"^ {0,3}\[[^\]\n]{1,200}\]:[ \t]+<?(?P<plain>[^\s<>]{1,500})")
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
_ELSEWHERE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|/|#|\\|~|www\.")
# A template's gap, a pattern, an example's dots: nobody means a file of that name.
_NO_NAME = re.compile(r"[{}*$|]|\.\.\.|…")


def _targets(body: str) -> Iterator[str]:
    """Yield what a body links to, outside code, as written."""
    if "](" not in body and "]:" not in body:
        return
    lines = body.split("\n")
    inside, _ = fenced(lines)
    for line, in_code in zip(lines, inside, strict=True):
        if in_code or "]" not in line:
            continue
        text = _CODE.sub("", line)
        for match in _INLINE.finditer(text):
            yield match["angled"] or match["plain"]
        if reference := _REFERENCE.match(text):
            yield reference["plain"]


def relative_links(body: str) -> tuple[str, ...]:
    """Return the files that a body links to, as paths from its folder, each once, in order.

    Addresses, anchors, absolute paths and templates' gaps are none; anchors and queries are taken off,
    percent signs decoded. A path that leaves the folder begins with `..`.
    """
    found = (unquote(re.split(r"[#?]", target, maxsplit=1)[0]) for target in _targets(body))
    named = (path for path in found if path and not _ELSEWHERE.match(path) and not _NO_NAME.search(path))
    return tuple(dict.fromkeys(posixpath.normpath(path) for path in named))


def _listed(paths: list[str]) -> str:
    more = f" and {len(paths) - _MAX_SHOWN:,} more" if len(paths) > _MAX_SHOWN else ""
    return ", ".join(paths[:_MAX_SHOWN]) + more


def on_links(body: str, files: tuple[BundledFile, ...] | None) -> tuple[Finding, ...]:
    """Return findings on links to files that the bundle lacks, and on links that leave the skill's folder.

    Args:
        body: Canonical Markdown.
        files: The bundle, paths relative to the skill's folder; None where it is unknown: then nothing can be
            said of links into it.
    """
    linked = relative_links(body)
    outside = [path for path in linked if path.startswith("..")]
    found = [finding("links.outside", _listed(outside))] if outside else []
    if files is not None:
        held = {posixpath.normpath(file.path) for file in files}
        folders = {"."} | {folder for path in held for folder in _folders(path)}
        there = held | folders | {"SKILL.md"}
        missing = [path for path in linked if path not in there and path not in outside]
        found.extend([finding("links.missing", _listed(missing))] if missing else [])
    return tuple(found)


def _folders(path: str) -> Iterator[str]:
    while path := posixpath.dirname(path):
        yield path
