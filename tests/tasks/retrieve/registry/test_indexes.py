"""The marketplaces of a registry: a plugin is a skill, and nothing that an agent would run beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest

from tasks.retrieve.registry.indexes import folder_marketplace, hosted_marketplace
from tasks.retrieve.registry.offers import OfferedSkill

DIGEST = "sha256:" + "ab" * 32


def offers(**files: str) -> dict[str, OfferedSkill]:
    """Return the offers of skills, each with one file beside SKILL.md."""
    return {
        name: OfferedSkill(name, name, "", "2026", {}, "", DIGEST, {"SKILL.md": "0" * 64, path: "1" * 64})
        for name, path in files.items()
    }


@pytest.mark.parametrize("made", [folder_marketplace, lambda held: hosted_marketplace(held, "https://e.org")])
def test_a_folder_of_which_more_than_the_skill_is_loaded_is_no_plugin(
    made: Callable[[Mapping[str, OfferedSkill]], bytes],
) -> None:
    loaded = offers(
        a="hooks/hooks.json", b="Hooks/x.json", c=".mcp.json", d="commands/x.md", e="agents/x.md",
        f="bin/git", g="settings.json", h=".lsp.json", i="monitors/x", j="plugin.json",
    )  # fmt: skip
    plain = offers(k="agents/openai.yaml", l="scripts/hooks/x.json", m="binary.md", n="data/settings.json")
    listed = json.loads(made(loaded | plain))["plugins"]
    assert [plugin["name"] for plugin in listed] == [*plain]
    assert {plugin["version"] for plugin in listed} == {"ab" * 6}
