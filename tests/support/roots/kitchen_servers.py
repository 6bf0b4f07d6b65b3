"""Servers of a kitchen in four sections, written for the tests, and requests that need several of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from storage.schemas import Dropped, RawDocument
from tasks.crawl.local.directory import DirectorySource
from tasks.crawl.mcp.awesome import servers_of
from tests.support.roots.skill_root import SPEC, Export, SkillRoot

LIST = """# Servers

### Baking

- [ann/oven](https://github.com/ann/oven) - Bakes bread and cakes in an oven
- [bob/dough](https://github.com/bob/dough) - Kneads dough for bread with yeast

### Drinks

- [ann/kettle](https://github.com/ann/kettle) - Boils water and brews green tea
- [cat/coffee](https://github.com/cat/coffee) - Grinds beans and brews coffee

### Shopping

- [dan/grocer](https://github.com/dan/grocer) - Orders groceries such as flour and milk
- [eve/prices](https://github.com/eve/prices) - Compares prices of groceries between shops

### Messages

- [fay/telegram](https://github.com/fay/telegram) - Sends messages to Telegram chats
- [gus/mail](https://github.com/gus/mail) - Sends email with attachments
"""
REQUESTS: list[dict[str, Any]] = [
    {
        "query_id": "a", "difficulty": "easy", "tags": ["context"],
        "query": "Bake a loaf of bread in the oven, and then brew a pot of green tea.",
        "paraphrase": "Brew some green tea after a loaf of bread was baked in the oven.",
        "steps": [
            {"description": "bake bread in an oven", "servers": ["Ann/Oven"], "categories": ["Baking"]},
            {"description": "brew green tea", "servers": ["ann/kettle"], "categories": ["Drinks"]},
        ],
        "edges": [[1, 2]],
    },
    {
        "query_id": "b", "difficulty": "medium", "tags": [],
        "query": "Compare the prices of groceries, order flour and milk, then send a message to Telegram.",
        "steps": [
            {
                "description": "compare prices of groceries", "servers": ["eve/prices"],
                "categories": ["Shopping"],
            },
            {"description": "order flour and milk", "servers": ["dan/grocer"], "categories": ["Shopping"]},
            {
                "description": "send a message to Telegram", "servers": ["fay/telegram"],
                "also": ["gus/mail"], "categories": ["Messages"],
            },
        ],
        "edges": [[1, 2], [2, 3]],
    },
    {
        "query_id": "c", "difficulty": "easy", "tags": ["context"],
        "query": "Brew coffee.",
        "steps": [{"description": "brew coffee", "servers": ["cat/coffee"], "categories": ["Drinks"]}],
        "edges": [],
    },
]  # fmt: skip


class KitchenList(DirectorySource):
    """The list as a source whose rows have the sections of the list as categories."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.spec = SPEC

    def read(self) -> Iterator[RawDocument | Dropped]:
        yield from servers_of(LIST, self.spec)


def serve_kitchen(folder: Path, export: Export) -> SkillRoot:
    """Return a root below a folder that serves the servers."""
    root = SkillRoot(folder / "market", folder / "root", export.folder)
    root.market.mkdir()
    root.source = KitchenList
    root.publish()
    return root
