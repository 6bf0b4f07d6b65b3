"""A root on which nights run that something happens to, and what must hold of it afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from storage.lance.served import require_served
from storage.lance.tables import NODES, SKILLS
from storage.root import Root
from storage.state import (
    aliases_table,
    documents_table,
    edges_table,
    folded_table,
    nodes_table,
    parsed_table,
    refined_table,
    seen_table,
)
from tasks.crawl.local.directory import DirectorySource
from tasks.retrieve.served_index import ServedIndex
from tasks.retrieve.versions.doctor import examine
from tests.support.roots.many_skills import many_skills
from tests.support.roots.night_process import run_night
from tests.support.roots.skill_root import MINILM
from tests.support.roots.vendor import connect, open_at

EDITIONS = ("first", "second")
ASKED = "local/market/baker-mend"
STARTS_AT = datetime(2026, 5, 1, 2, tzinfo=UTC)


class Place(NamedTuple):
    """A root, the folder of skills that it is filled from, and the encoder's export."""

    root: Root
    market: Path
    export: Path

    def write(self, edition: str) -> None:
        """Put an edition of the skills in the market: others than the first lack one and change and add some.

        Beside them lie a copy of the one that they lack, one that is almost the first, and one of nothing.
        """
        texts = many_skills(12, edition="first")
        names = list(texts)
        copies = {f"{names[2]}-again": texts[names[2]], f"{names[0]}-nearly": f"{texts[names[0]]}Mind it.\n"}
        if edition != EDITIONS[0]:
            others = many_skills(14, edition=edition)
            texts = {n: texts[n] for n in names[3:]} | {n: others[n] for n in others if n not in names[2:]}
        shutil.rmtree(self.market, ignore_errors=True)
        for name, text in {**texts, **copies, "nothing": ""}.items():
            file = self.market / name / "SKILL.md"
            file.parent.mkdir(parents=True)
            file.write_text(text, "utf-8")
            # A market that goes back to an edition looks as it did then.
            os.utime(file, ns=(zlib.crc32(edition.encode()), zlib.crc32(edition.encode())))

    def night(self, run_id: str = "", now: datetime | None = None, **more: Any) -> str | None:  # noqa: ANN401
        now = now or datetime.now(UTC)
        source = DirectorySource(str(self.market))
        return run_night(self.root, source, self.export, run_id or f"{now:%Y%m%dT%H%M%S%f}", now, **more)


def index_of(root: Root) -> ServedIndex:
    return ServedIndex(root, encoder=MINILM)


def answers(root: Root) -> tuple[Any, ...]:
    index = index_of(root)
    found = index.search("mend a cracked dough", 5)["results"]
    paged = index.page(ASKED, "what to do with the oven", budget=1, method="facets")
    return [(r["doc_id"], r["content_hash"]) for r in found], paged["context"]


def contents(root: Root) -> dict[str, Any]:
    """Return all that a root holds and serves, without times and runs; nothing may stand there twice."""
    served, db = require_served(root), connect(root)
    assert served.nodes is not None
    skills = open_at(db, SKILLS, served.skills).search().select(["doc_id", "content_hash", "text"]).to_arrow()
    nodes = open_at(db, NODES, served.nodes).search().select(["node_id", "node_type", "text"]).to_arrow()
    seen = seen_table(root).read().filter(pl.col("retired_at").is_null())
    tables = {
        "documents": documents_table(root).read(columns=["doc_id", "content_hash", "body"]).rows(),
        "nodes": nodes_table(root).read(columns=["node_id", "node_type", "text"]).rows(),
        "edges": edges_table(root).read(columns=["src_id", "dst_id", "edge_type"]).rows(),
        "seen": seen.select("doc_id", "source").rows(),
        "aliases": aliases_table(root).read(columns=["doc_id", "survivor"]).rows(),
        "refined": refined_table(root).read(columns=["doc_id", "source", "outcome", "digest"]).rows(),
        "folded": folded_table(root).read(columns=["doc_id", "body_hash"]).rows(),
        "parsed": parsed_table(root).read().rows(),
        "served skills": [tuple(row.values()) for row in skills.to_pylist()],
        "served nodes": [tuple(row.values()) for row in nodes.to_pylist()],
    }
    for name, rows in tables.items():
        assert len(rows) == len(set(rows)), f"{name} holds a row twice"
    return {name: sorted(rows) for name, rows in tables.items()}


def require_mended(place: Place, expected: dict[str, Any], **more: Any) -> None:  # noqa: ANN401
    """Let the doctor look, the next night run and the doctor look again: all is as if nothing had failed."""
    assert all(found.mended for found in examine(place.root))
    place.night(**more)
    assert contents(place.root) == expected
    assert examine(place.root) == []
    assert place.night() is None


@contextlib.contextmanager
def reading(root: Root, threads: int = 1, pause: float = 0.02) -> Iterator[list[tuple[str, tuple[Any, ...]]]]:
    """Search and page all the while, in threads that share an index; yield versions with their answers."""
    index, ended, errors = index_of(root), threading.Event(), list[BaseException]()
    given: list[tuple[str, tuple[Any, ...]]] = []

    def read() -> None:
        try:
            while not ended.is_set():
                found = index.search("mend a cracked dough", 5)["results"]
                versions = {r["index_version"] for r in found}
                assert len(versions) == 1, f"one answer of {versions}"
                given.append((versions.pop(), ([(r["doc_id"], r["content_hash"]) for r in found], None)))
                paged = index.page(ASKED, "what to do with the oven", budget=1, method="facets")
                given.append((paged["index_version"], (None, paged["context"])))
                time.sleep(pause)  # the nights need the processor too
        except BaseException as error:
            errors.append(error)

    readers = [threading.Thread(target=read) for _ in range(threads)]
    for reader in readers:
        reader.start()
    try:
        yield given
    finally:
        ended.set()
        for reader in readers:
            reader.join()
    if errors:
        raise errors[0]


def require_whole(given: list[tuple[str, tuple[Any, ...]]]) -> None:
    """Let answers pass of which each version has given one search result and one context only."""
    by_version: dict[str, tuple[set[str], set[str]]] = {}
    for version, (found, context) in given:
        searched, paged = by_version.setdefault(version, (set(), set()))
        (paged if found is None else searched).add(str(context if found is None else found))
    assert given
    for version, (searched, paged) in by_version.items():
        assert (len(searched) <= 1, len(paged) <= 1) == (True, True), f"{version} gave several answers"
