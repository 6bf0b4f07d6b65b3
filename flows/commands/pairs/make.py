"""Makes pairs of request and skill for the command: reads corpora and benches, writes Parquet and counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from flows.commands.console import folder_at, progress
from flows.commands.generate import grow_training_tasks
from flows.settings import Settings
from storage.blobs import BlobStore, blobs_named
from storage.parquet import sealed_parquet
from storage.root import Root
from tasks.evaluate.corpus.read import corpus_texts, read_categories, scan_corpus
from tasks.evaluate.corpus.skill_sample import stratified
from tasks.evaluate.generate.tasks import read_written
from tasks.evaluate.routing.data import read_skills, skill_of
from tasks.refine.frontmatter.name import folder_of
from tasks.retrieve.routing.skill import Skill
from tasks.retrieve.train.pairs.evals import FILE
from tasks.retrieve.train.pairs.held_out import read_benches
from tasks.retrieve.train.pairs.make import PAIRS_FILE, PairSettings, PairSource, free_rows, make_pairs

_COUNTS = "pairs.json"


@dataclass(frozen=True, slots=True)
class PairWishes:
    """The options of the command: corpora, benches whose skills and requests stay out, a folder, the seed.

    `written` counts the skills that a language model writes a task about too.
    """

    corpora: Sequence[Path]
    benches: Sequence[Path]
    out: Path
    seed: int = 0
    written: int = 0


def train_pairs(root: Root, settings: Settings, wishes: PairWishes) -> dict[str, Any]:
    """Write `pairs.parquet` and, last, `pairs.json` into a folder; both are replaced where they are there.

    Tasks of a language model are kept in the folder too; a later call asks about new and changed skills only.

    Returns:
        `out`, the counts of `PairSet.counts`, and `written` (null, or as `grow_training_tasks`), as
        `pairs.json` has them.

    Raises:
        WrongInput: A corpus or a bench cannot be read, the folder cannot be made, or no language model is set
            up for `written`.
        LlmDenied: The server denies access, or has no such model.
    """
    sources = _sources(wishes.corpora)
    benches = [bench for path in wishes.benches for bench in read_benches(path)]
    gold = _gold(wishes.benches)
    folder = folder_at(wishes.out)
    written = None
    if wishes.written:
        free = free_rows(sources, benches, gold, defaultdict(Counter), Counter())
        written = _write(root, settings, wishes, [sources[row] for row in free], folder)
    kept = read_written(folder, [source.skill for source in sources])
    tasks = {one.doc_id: one.task for one in kept if one.task}
    sources = [source._replace(written=tasks.get(source.skill.doc_id)) for source in sources]
    with progress("skills searched for requests") as report:
        found = make_pairs(sources, benches, gold, PairSettings(), wishes.seed, report)
    folder.write(PAIRS_FILE, sealed_parquet(found.pairs.to_arrow()))
    counts = {"out": str(wishes.out), "seed": wishes.seed, **found.counts(), "written": written}
    folder.write_json(_COUNTS, counts)
    return counts


def _write(
    root: Root, settings: Settings, wishes: PairWishes, sources: Sequence[PairSource], folder: Root
) -> dict[str, Any]:
    """Have tasks written about some of these skills, spread over repositories."""
    by_id = {source.skill.doc_id: source for source in sources}
    chosen = [by_id[doc_id].skill for doc_id in stratified(by_id, wishes.written)]
    names = {skill.doc_id: by_id[skill.doc_id].names for skill in chosen}
    return grow_training_tasks(root, settings, chosen, names, read_categories(wishes.corpora), folder)


def _sources(corpora: Sequence[Path]) -> list[PairSource]:
    with progress("skills read") as report:
        skills = [Skill(*row) for row in read_skills(corpora, report).sort("doc_id").iter_rows()]
    places, evals = _places(corpora), _evals(corpora)
    sources = []
    for skill in skills:
        repo, path = places.get(skill.doc_id, (None, None))
        names = {folder_of(skill.doc_id, None), folder_of(skill.doc_id, path)}
        known = repo or _repo_in(skill.doc_id)
        sources.append(PairSource(skill, known, tuple(sorted(names)), evals.get(skill.doc_id)))
    return sources


def _places(corpora: Iterable[Path]) -> dict[str, tuple[str | None, str | None]]:
    """Return the repository and the path of each skill, by doc_id; the first corpus wins."""
    found: dict[str, tuple[str | None, str | None]] = {}
    repo = pl.when(pl.col("owner").is_null()).then("repo").otherwise(pl.format("{}/{}", "owner", "repo"))
    for path in corpora:
        for frame in scan_corpus(path, [()], optional=("owner", "repo", "path")):
            for doc_id, *place in frame.select("doc_id", repo.alias("repo"), "path").collect().iter_rows():
                found.setdefault(doc_id, (place[0], place[1]))
    return found


def _evals(corpora: Iterable[Path]) -> dict[str, bytes]:
    """Return the content of each file of evals that a root keeps, by doc_id."""
    found: dict[str, bytes] = {}
    for path in corpora:
        if path.is_dir():
            root = Root(path)
            blobs = blobs_named(root).filter(pl.col("path") == FILE)
            for doc_id, digest in blobs.select("doc_id", "sha256").iter_rows():
                found.setdefault(doc_id, BlobStore(root).read(digest))
    return found


def _gold(benches: Iterable[Path]) -> dict[str, str]:
    files = [file for path in benches for file in sorted(path.rglob("documents.*"))]
    texts = {doc_id: text for file in files for doc_id, text in corpus_texts(str(file)).items()}
    return {doc_id: skill_of(doc_id, text)[3] for doc_id, text in texts.items()}


def _repo_in(doc_id: str) -> str:
    """Return owner and repository of an id, or what stands in their place."""
    joint = "/" if "/" in doc_id else "--"
    return joint.join(doc_id.split(joint)[:2])
