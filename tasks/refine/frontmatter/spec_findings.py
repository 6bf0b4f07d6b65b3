"""Findings against the Agent Skills specification (spec), on fields other than name and description."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from urllib.parse import unquote

from storage.schemas import BundledFile, Finding
from tasks.refine.frontmatter.frontmatter import SPEC_KEYS
from tasks.refine.licences.names import folded
from tasks.refine.text.canonical import fenced, has_open_fence
from tasks.refine.text.findings import finding
from tasks.refine.text.strict_yaml import Value

MAX_COMPATIBILITY_CHARS = 500
_MAX_SHOWN_CHARS = 300


def _split(text: str) -> list[str]:
    """Split at spaces and commas that stand outside round brackets: `Bash(git add:*), Read` is two tools."""
    tools, depth = [""], 0
    for character in text:
        depth = max(depth + (character == "(") - (character == ")"), 0)
        if not depth and (character == "," or character.isspace()):
            tools.append("")
        else:
            tools[-1] += character
    return [tool for tool in tools if tool]


def _has_comma(text: str) -> bool:
    return "," in re.sub(r"\([^()]*\)", "", text)


def allowed_tools(value: Value | None) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
    """Return the tools that `allowed-tools` names, whichever of its spellings, and findings on them.

    The specification wants a string with spaces; strings with commas and lists are read as well. The finding
    `tools.declared` holds them as the specification would write them.
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
    elif _has_comma(value):
        found.append(finding("tools.comma"))
    return tools, tuple(found)


def _on_compatibility(value: Value | None) -> tuple[Finding, ...]:
    if value is None:
        return ()
    if not isinstance(value, str):
        return (finding("compatibility.not-text"),)
    if 1 <= len(value) <= MAX_COMPATIBILITY_CHARS:
        return ()
    return (finding("compatibility.length", f"{len(value):,} characters, 1 to {MAX_COMPATIBILITY_CHARS}"),)


def _on_metadata(value: Value | None) -> tuple[Finding, ...]:
    if value is None or value == "":
        return ()
    if not isinstance(value, dict):
        return (finding("metadata.not-mapping"),)
    nested = sorted(key for key, item in value.items() if not isinstance(item, str))
    return (finding("metadata.nested", ", ".join(nested)[:_MAX_SHOWN_CHARS]),) if nested else ()


def on_fields(fields: dict[str, Value]) -> tuple[Finding, ...]:
    """Return findings on unknown keys, `allowed-tools`, `compatibility` and `metadata`."""
    unknown = ", ".join(sorted(fields.keys() - SPEC_KEYS))
    return (
        *((finding("keys.unknown", unknown[:_MAX_SHOWN_CHARS]),) if unknown else ()),
        *allowed_tools(fields.get("allowed-tools"))[1],
        *_on_compatibility(fields.get("compatibility")),
        *_on_metadata(fields.get("metadata")),
    )


# The specification's advice: under 500 lines and 5,000 tokens.
MAX_BODY_LINES = 500
MAX_BODY_TOKENS = 5_000
# English prose and code have three to five characters a token.
_CHARS_PER_TOKEN = 4
_FILLER = re.compile(
    r"(?:this|the|a|an)\s+(?:\w+\s+){0,2}?(?:skill|tool|document|file|guide)\b(?:\s+(?:that|which|to|for|is|provides|helps))?"
    r"|(?:skill|guide|instructions)\s+(?:for|to|that|on)\b|welcome\b",
    re.IGNORECASE,
)
_WIDE = re.compile("[\u0e00-\u0eff\u3041-\u30ff\u3400-\u9fff\uac00-\ud7a3]+")
_TAG = re.compile(r"</?[A-Za-z][\w-]*(?:\s[^<>]*)?>")


def on_description(description: str, name: str) -> tuple[Finding, ...]:
    """Return findings on a stated description that helps nobody choose the skill."""
    found = []
    if filler := _FILLER.match(description):
        found.append(finding("description.filler", f"it begins with {filler[0]!r}"))
    if folded(description) == folded(name):
        found.append(finding("description.name-only"))
    if tag := _TAG.search(description):
        found.append(finding("description.markup", tag[0][:80]))
    return tuple(found)


def about_tokens(text: str) -> int:
    """Return about how many tokens a text has, without a tokenizer: a quarter of its characters.

    A character of a script without spaces counts for three quarters of a token.
    """
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
    # No character counts for a whole token, so that most bodies need no counting.
    if len(body) > MAX_BODY_TOKENS and (tokens := about_tokens(body)) > MAX_BODY_TOKENS:
        found.append(
            finding("body.many-tokens", f"about {tokens:,} tokens, advice is at most {MAX_BODY_TOKENS:,}")
        )
    if has_open_fence(body):
        found.append(finding("body.unbalanced-fence"))
    return tuple(found)


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
