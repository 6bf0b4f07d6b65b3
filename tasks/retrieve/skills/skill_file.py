"""The file SKILL.md of a skill as it is served: its author's bytes, or mended where parsers refuse them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import yaml

from tasks.refine.frontmatter.frontmatter import MAX_FRONTMATTER_CHARS
from tasks.refine.text.strict_yaml import StrictYamlError, load_strict
from tasks.retrieve.revisions.edition import Edition

_FRONT = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*\r?(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class JsonLoader(_BASE):  # type: ignore[misc] # whether libyaml is there decides which class it is
    """Reads YAML as JSON holds it: a date stays the text that its author wrote."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (as the class above has it)
        first: [(tag, pattern) for tag, pattern in rules if tag != "tag:yaml.org,2002:timestamp"]
        for first, rules in _BASE.yaml_implicit_resolvers.items()
    }


@dataclass(frozen=True, slots=True)
class SkillFile:
    """A SKILL.md as served, and the front matter that these bytes hold; `mended`: it was rewritten."""

    content: bytes
    front_matter: dict[str, Any]
    mended: bool


def skill_file_of(edition: Edition) -> SkillFile | None:
    """Return the SKILL.md of a skill as it is served, None if its bytes are not kept.

    Where its front matter is no YAML that any parser reads alike, or lacks a name or a description, it is
    written anew of what refine read of it; the body is the refined one then.
    """
    if edition.skill_file is None:
        return None
    stated = front_matter_of(edition.skill_file)
    if stated is not None:
        return SkillFile(edition.skill_file, stated, mended=False)
    fields = {**edition.front_matter, "name": edition.row["name"], "description": edition.row["description"]}
    front = yaml.safe_dump(fields, allow_unicode=True, sort_keys=False, width=1_000_000)
    content = f"---\n{front}---\n\n{edition.row['body']}\n".encode()
    stated = front_matter_of(content)
    return None if stated is None else SkillFile(content, stated, mended=True)


def front_matter_of(content: bytes) -> dict[str, Any] | None:
    """Return the front matter of a SKILL.md as JSON; None if hosts may read it otherwise, or not at all.

    It must be UTF-8 and begin with a closed block of YAML 1.1 without anchors, repeated keys or values that
    JSON has no form for, which gives `name` and `description` as texts.
    """
    try:
        found = _FRONT.match(content.decode())
        if found is None or len(found[1]) > MAX_FRONTMATTER_CHARS:
            return None
        _, repeated = load_strict(found[1])
        fields = yaml.load(found[1], Loader=JsonLoader)  # noqa: S506 (made of the safe one)
        texts = [fields.get(name) for name in ("name", "description")] if isinstance(fields, dict) else [None]
        stated: dict[str, Any] = json.loads(json.dumps(fields, allow_nan=False))
    except (ValueError, TypeError, RecursionError, StrictYamlError, yaml.YAMLError):
        return None
    # JSON has no keys but texts: what it turns into one was another value.
    same = stated == fields
    return stated if same and not repeated and all(isinstance(t, str) and t.strip() for t in texts) else None
