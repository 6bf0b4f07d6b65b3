"""Skills and tasks written for the tests of routing, small enough to be known by heart."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from tasks.retrieve.routing.skill import Skill
from tests.support.roots.hand_written import skill

SKILLS = (
    Skill("home/sourdough", "sourdough", "Bakes rye bread with a sour starter",
          "# Sourdough\n\nFeed the starter, knead the dough, bake the loaf in a hot oven."),
    Skill("home/bees", "bees", "Looks after honey bees",
          "# Bees\n\nOpen the hive on a warm day and treat the colony against mites."),
    Skill("home/tyre", "tyre", "Mends a flat bicycle tyre",
          "# Tyre\n\nFind the hole, roughen the rubber, glue a patch on, pump it up."),
    Skill("home/roses", "roses", "Prunes roses in spring",
          "# Roses\n\nCut above a bud with a sharp knife and clear dead wood away."),
    Skill("home/knife", "knife", "Sharpens kitchen knives on a stone",
          "# Knife\n\nHold the edge at fifteen degrees and draw it over the wet stone."),
    Skill("home/candles", "candles", "Makes candles from wax",
          "# Candles\n\nMelt the wax of the hive in a water bath and dip the wicks."),
    Skill("copy/tyre", "tyre-repair", "Mends a flat bicycle tyre",
          "# Tyre\n\nFind the hole, roughen the rubber, glue a patch on, pump it up well."),
)  # fmt: skip

TASKS: tuple[dict[str, Any], ...] = (
    {"query_id": "t1", "text": "My bicycle has a flat tyre.", "length": "short", "distinctive": "unique"},
    {"query_id": "t2", "text": "Prune the roses with a sharp knife.\nThe knife needs an edge first.",
     "length": "long", "distinctive": "few"},
    {"query_id": "t3", "text": "Bake a rye bread for Sunday.", "length": "short", "distinctive": "few"},
)  # fmt: skip
QRELS = (
    {"query_id": "t1", "doc_id": "home/tyre", "relevance": 3},
    {"query_id": "t2", "doc_id": "home/roses", "relevance": 3},
    {"query_id": "t2", "doc_id": "home/knife", "relevance": 3},
    {"query_id": "t3", "doc_id": "home/sourdough", "relevance": 3},
)
COPIES = ({"copy_id": "copy/tyre", "doc_id": "home/tyre"},)


class Written(NamedTuple):
    """A bench in files."""

    corpus: Path
    queries: Path
    qrels: Path
    copies: Path

    def options(self) -> list[str]:
        return [part for name in self._fields for part in (f"--{name}", str(getattr(self, name)))]


def write_bench(folder: Path) -> Written:
    folder.mkdir(parents=True, exist_ok=True)
    contents = ({"doc_id": s.doc_id, "content": skill(s.name, s.description, s.body)} for s in SKILLS)
    return Written(
        _lines(folder / "corpus.jsonl", contents),
        _lines(folder / "queries.jsonl", TASKS),
        _lines(folder / "qrels.jsonl", QRELS),
        _lines(folder / "copies.jsonl", COPIES),
    )


REPOSITORIES = {
    "home/garden": ("home/bees", "home/roses"),
    "home/kitchen": ("home/sourdough", "home/knife", "home/candles"),
}
ASKED = (
    {"query_id": "g1", "text": "Cut the dead wood above a bud", "repo": "home/garden", "skill": "roses"},
    {"query_id": "g2", "text": "Treat the colony against mites", "repo": "home/garden", "skill": "bees"},
    {"query_id": "k1", "text": "Knead the dough and heat the oven", "repo": "home/kitchen",
     "skill": "sourdough"},
    {"query_id": "k2", "text": "Draw the edge over the wet stone", "repo": "home/kitchen", "skill": "knife"},
)  # fmt: skip
NOT_ASKED = (
    {"query_id": "n1", "text": "Buy a honey cake", "repo": "home/kitchen",
     "not_doc_id": "home/kitchen/sourdough"},
    {"query_id": "n2", "text": "Open a bank account", "repo": "home/garden",
     "not_doc_id": "home/garden/bees"},
)  # fmt: skip


def write_bench_folder(folder: Path) -> Path:
    """Write a bench whose skills are of two repositories, with a copy and with tasks that no skill serves."""
    folder.mkdir(parents=True)
    by_id = {s.doc_id: s for s in SKILLS}
    placed = [(repo, by_id[doc_id]) for repo, inside in REPOSITORIES.items() for doc_id in inside]
    own = [(f"{repo}/{s.name}", skill(s.name, s.description, s.body)) for repo, s in placed]
    pl.DataFrame(own, ["doc_id", "content"], orient="row").write_parquet(folder / "documents.parquet")
    qrels = ({"query_id": task["query_id"], "doc_id": f"{task['repo']}/{task['skill']}"} for task in ASKED)
    _lines(folder / "queries.jsonl", ASKED)
    _lines(folder / "qrels.jsonl", qrels)
    _lines(folder / "copies.jsonl", [{"copy_id": "home/bees", "doc_id": "home/garden/bees"}])
    _lines(folder / "negatives.jsonl", NOT_ASKED)
    return folder


def _lines(path: Path, records: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


Set = Callable[[dict[str, str]], None]  # puts variables into the environment


def rows(found: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the rows of methods by their names."""
    return {row["method"]: row for row in found["methods"]}


def untimed(found: object) -> object:
    """Return an answer without what differs from run to run: times, and what was asked of a server."""
    if isinstance(found, dict):
        differs = ("mean_ms", "median_ms", "p95_ms", "llm", "report")
        return {k: untimed(v) for k, v in found.items() if k not in differs}
    return [untimed(part) for part in found] if isinstance(found, list) else found
