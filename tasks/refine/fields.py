"""Findings on front matter fields other than name and description, and the tools that a skill asks for."""

from __future__ import annotations

import re

from storage.schemas import Finding
from tasks.refine.findings import finding
from tasks.refine.frontmatter import SPEC_KEYS
from tasks.refine.strict_yaml import Value

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
