"""Findings against the Agent Skills specification (spec), on everything but the name."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath
from urllib.parse import unquote

from storage.schemas import BundledFile, Finding
from tasks.refine.frontmatter.place import CLIENT_KEYS, SPEC_KEYS
from tasks.refine.text.markdown import has_open_fence, outside_fences, without_code
from tasks.refine.text.rules import finding
from tasks.refine.text.strict_yaml import Value
from tasks.refine.text.words import fold

MAX_COMPATIBILITY_CHARS = 500
# Values are texts here: these are true in YAML.
_TRUE = frozenset({"true", "yes", "on"})
_MAX_SHOWN_CHARS, _MAX_SHOWN_PATHS = 300, 5
# The specification's advice: under 500 lines and 5,000 tokens.
MAX_BODY_LINES, MAX_BODY_TOKENS = 500, 5_000
# English prose and code have three to five characters a token.
_CHARS_PER_TOKEN = 4
_FILLER = re.compile(
    r"(?:this|the|a|an)\s+(?:\w+\s+){0,2}?(?:skill|tool|document|file|guide)\b(?:\s+(?:that|which|to|for|is|provides|helps))?"
    r"|(?:skill|guide|instructions)\s+(?:for|to|that|on)\b|welcome\b",
    re.IGNORECASE,
)
_WIDE = re.compile("[\u0e00-\u0eff\u3041-\u30ff\u3400-\u9fff\uac00-\ud7a3]+")
_TAG = re.compile(r"</?[A-Za-z][\w-]*(?:\s[^<>]*)?>")
# The target of `[text](target "title")` and of `[label]: target`; the text may hold brackets of its own.
_INLINE = re.compile(
    r"\]\([ \t]*(?:<(?P<angled>[^<>\n]{1,500})>|(?P<plain>[^\s()<>]{1,500}))[^()\n]{0,200}\)"
)
_REFERENCE = re.compile(r"\A {0,3}\[[^\]\n]{1,200}\]:[ \t]+<?(?P<plain>[^\s<>]{1,500})")
_ELSEWHERE = re.compile(r"\A(?:[A-Za-z][A-Za-z0-9+.-]*:|/|#|\\|~|www\.)")
# A gap in a template, a pattern or an example's dots are not the name of a file.
_NO_NAME = re.compile(r"[{}*$|]|\.\.\.|…")


def _split(text: str) -> list[str]:
    """Split at spaces and commas outside round brackets: `Bash(git add:*), Read` is two tools."""
    tools, depth = [""], 0
    for character in text:
        depth = max(depth + (character == "(") - (character == ")"), 0)
        if not depth and (character == "," or character.isspace()):
            tools.append("")
        else:
            tools[-1] += character
    return [tool for tool in tools if tool]


def allowed_tools(value: Value | None) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
    """Return the tools that `allowed-tools` names, and findings on them.

    The specification wants a string separated by spaces; strings with commas and lists are read as well. The
    finding `tools.declared` holds the tools as the specification would write them.
    """
    if not value:
        return (), ()
    if isinstance(value, dict):
        return (), (finding("tools.not-text", "a mapping"),)
    texts = [value] if isinstance(value, str) else [item for item in value if isinstance(item, str)]
    tools = tuple(dict.fromkeys(tool for text in texts for tool in _split(text)))
    shown = " ".join(tools)
    found = [finding("tools.declared", shown[:_MAX_SHOWN_CHARS])] if tools else []
    if isinstance(value, list):
        found.append(finding("tools.list"))
        found.extend([finding("tools.not-text", "an item is no text")] if len(texts) < len(value) else [])
    elif "," in re.sub(r"\([^()]*\)", "", value):
        found.append(finding("tools.comma"))
    return tools, tuple(found)


def _on_compatibility(value: Value | None) -> Iterator[Finding]:
    if isinstance(value, list | dict):
        yield finding("compatibility.not-text")
    elif value is not None and not 1 <= len(value) <= MAX_COMPATIBILITY_CHARS:
        yield finding("compatibility.length", f"{len(value):,} characters, 1 to {MAX_COMPATIBILITY_CHARS}")


def _on_metadata(value: Value | None) -> Iterator[Finding]:
    if isinstance(value, dict):
        if nested := sorted(key for key, item in value.items() if not isinstance(item, str)):
            yield finding("metadata.nested", ", ".join(nested)[:_MAX_SHOWN_CHARS])
    elif value is not None and value != "":
        yield finding("metadata.not-mapping")


def on_fields(fields: dict[str, Value]) -> tuple[Finding, ...]:
    """Return findings on unknown keys, `allowed-tools`, `compatibility` and `metadata`."""
    unknown = ", ".join(sorted(fields.keys() - SPEC_KEYS - CLIENT_KEYS))
    return (
        *((finding("keys.unknown", unknown[:_MAX_SHOWN_CHARS]),) if unknown else ()),
        *allowed_tools(fields.get("allowed-tools"))[1],
        *_on_compatibility(fields.get("compatibility")),
        *_on_metadata(fields.get("metadata")),
    )


def on_offering(fields: dict[str, Value]) -> tuple[Finding, ...]:
    """Return a finding for each wish of the author that a skill is not offered to everyone."""
    metadata = fields.get("metadata")
    wishes = {
        "offer.internal": metadata.get("internal") if isinstance(metadata, dict) else None,
        "offer.person-only": fields.get("disable-model-invocation"),
    }
    return tuple(finding(code) for code, value in wishes.items() if str(value).strip().lower() in _TRUE)


def on_description(description: str, name: str) -> tuple[Finding, ...]:
    """Return findings on a stated description that does not help to choose the skill."""
    found = []
    if filler := _FILLER.match(description):
        found.append(finding("description.filler", f"it begins with {filler[0]!r}"))
    if fold(description) == fold(name):
        found.append(finding("description.name-only"))
    if tag := _TAG.search(description):
        found.append(finding("description.markup", tag[0][:80]))
    return tuple(found)


def about_tokens(text: str) -> int:
    """Estimate a text's tokens: 1/4 a character, in scripts of wide characters 3/4."""
    if text.isascii():
        return len(text) // _CHARS_PER_TOKEN
    wide = sum(len(run) for run in _WIDE.findall(text))
    return (len(text) - wide) // _CHARS_PER_TOKEN + wide * 3 // 4


def on_body(body: str) -> tuple[Finding, ...]:
    """Return findings on a body's length and on fences that are never closed."""
    found = []
    lines = body.count("\n") + 1
    if lines > MAX_BODY_LINES:
        found.append(finding("body.long", f"{lines:,} lines, advice is at most {MAX_BODY_LINES}"))
    # No character counts as more than a token, so most bodies need no counting.
    if len(body) > MAX_BODY_TOKENS and (tokens := about_tokens(body)) > MAX_BODY_TOKENS:
        advice = f"about {tokens:,} tokens, advice is at most {MAX_BODY_TOKENS:,}"
        found.append(finding("body.many-tokens", advice))
    if has_open_fence(body):
        found.append(finding("body.unbalanced-fence"))
    return tuple(found)


def _targets(body: str) -> Iterator[str]:
    if "](" not in body and "]:" not in body:
        return
    for line in outside_fences(body):
        text = without_code(line) if "]" in line else ""
        for match in _INLINE.finditer(text):
            yield match["angled"] or match["plain"]
        if reference := _REFERENCE.match(text):
            yield reference["plain"]


def relative_links(body: str) -> tuple[str, ...]:
    """Return the files that a body links to, as paths from its folder, each once, in order.

    URLs, anchors, absolute paths and gaps in templates do not count. Anchors and queries are cut off, percent
    escapes decoded. A path that leaves the folder begins with `..`.
    """
    found = (unquote(re.split(r"[#?]", target, maxsplit=1)[0]) for target in _targets(body))
    named = (path for path in found if path and not _ELSEWHERE.match(path) and not _NO_NAME.search(path))
    return tuple(dict.fromkeys(posixpath.normpath(path) for path in named))


def _listed(paths: list[str]) -> str:
    more = f" and {len(paths) - _MAX_SHOWN_PATHS:,} more" if len(paths) > _MAX_SHOWN_PATHS else ""
    return ", ".join(paths[:_MAX_SHOWN_PATHS]) + more


def on_links(
    body: str, files: tuple[BundledFile, ...] | None, nested: Collection[str] = ()
) -> tuple[Finding, ...]:
    """Return findings on links that leave the skill's folder, and on links to files that the bundle lacks.

    If `files`, with paths relative to the folder, is None, no file is called missing; `nested` are folders in
    it of other skills, whose files are in bundles of their own.
    """
    linked = relative_links(body)
    outside = [path for path in linked if path.startswith("..")]
    found = [finding("links.outside", _listed(outside))] if outside else []
    if files is not None:
        held = {posixpath.normpath(file.path) for file in files}
        folders = {str(folder) for path in held for folder in PurePosixPath(path).parents}
        folders |= {str(folder) for path in nested for folder in PurePosixPath(path).parents}
        there = held | folders | {".", "SKILL.md", *nested, *outside}
        inside = tuple(f"{folder}/" for folder in nested)
        missing = [path for path in linked if path not in there and not path.startswith(inside)]
        found.extend([finding("links.missing", _listed(missing))] if missing else [])
    return tuple(found)
