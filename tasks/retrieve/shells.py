"""Prefect shells of retrieve: tasks that build, check, publish and compact the index."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage.lance.served import require_served
from storage.root import Root
from storage.usage import tidy_usage
from tasks.crawl.raw_retention import trim_raw
from tasks.models.cached_encoder import load_kept_encoder
from tasks.models.encoder import card_of, load_encoder
from tasks.models.llm.ask import open_llm
from tasks.models.llm.budget import Carried, Ledger
from tasks.models.retry import task_retries
from tasks.parse.classify.options import TypingOptions
from tasks.refine.licences.policy import LicencePolicy
from tasks.refine.shells import slot_of
from tasks.retrieve.index.build import Built, build, embed_partitions, plan_embedding, redo_all
from tasks.retrieve.index.gate import check_index, check_shrink, require_passed
from tasks.retrieve.index.licence_classes import classify_licences
from tasks.retrieve.routing.expansion import expand
from tasks.retrieve.routing.store import prepare_routing
from tasks.retrieve.versions.publish import publish
from tasks.retrieve.versions.retention import (
    check_compacted,
    clean_tables,
    compact_tables,
    drop_blobs,
    retain_versions,
    table_files,
)

if TYPE_CHECKING:  # a night induces nothing
    from tasks.induce.skills.texts import StateWords


@task(name="build-tables", cache_policy=NO_CACHE, **task_retries())
def build_tables(
    root: str, encoder: str, *, with_nodes: bool, anew: bool = False, corpus: str | None = None
) -> dict[str, Any]:
    """Write to `skills` and `nodes` what changed since the served version, or every row."""
    kept, source = load_kept_encoder(root, encoder), Root(corpus or root)
    return asdict(build(Root(root), encoder=kept, with_nodes=with_nodes, anew=anew, corpus=source))


@task(name="plan-embedding", cache_policy=NO_CACHE)
def plan_embeddings(root: str, encoder: str) -> list[list[int]]:
    """Return batches of the partitions that hold skills to encode."""
    return plan_embedding(Root(root), encoder=load_kept_encoder(root, encoder))


@task(name="expand-skills", cache_policy=NO_CACHE, **task_retries())
def expand_skills(root: str, llm: TypingOptions, spent: Carried | None) -> dict[str, Any]:
    """Have requests foretold about the documents that have none; return what was asked, and what it cost."""
    ledger = Ledger(llm.prices, llm.ceiling, spent)
    with open_llm(Root(root), llm, ledger=ledger, slot=slot_of(llm)) as asked:
        return expand(Root(root), asked)


@task(name="embed-batch", cache_policy=NO_CACHE, **task_retries())
def embed_batch(root: str, partitions: list[int], encoder: str) -> int:
    """Encode the skills of a few partitions; return how many there are."""
    return embed_partitions(Root(root), partitions, encoder=load_kept_encoder(root, encoder))


@task(name="class-licences", cache_policy=NO_CACHE)
def class_licences(root: str, built: dict[str, Any], policy: dict[str, Any]) -> list[dict[str, Any]]:
    """Write the class of each licence, which queries look up; return the documents by licence."""
    return classify_licences(Root(root), built["skills"], LicencePolicy(**policy))


@task(name="check-tables", cache_policy=NO_CACHE)
def check_tables(
    root: str, built: dict[str, Any], encoder: str, gate: dict[str, Any], corpus: str | None = None
) -> list[dict[str, Any]]:
    """Run the gate's checks on the versions built, if anything changed; the served ones have passed them."""
    found, place = Built(**built), Root(root)
    if not found.changed:
        return []
    checks = check_index(place, found, encoder=load_encoder(encoder), corpus=Root(corpus or root))
    return [asdict(check) for check in [*checks, *check_shrink(place, found, **gate)]]


@task(name="publish-tables", cache_policy=NO_CACHE)
def publish_tables(
    root: str, built: dict[str, Any], checks: list[dict[str, Any]], encoder: str, *, run_id: str,
    now: datetime, workers: int | None = 1,
) -> str | None:  # fmt: skip
    """Serve the versions built, if they passed the gate; return their name, None if nothing changed."""
    require_passed(checks)
    found = Built(**built)
    if not found.changed:
        # A newer release may cut terms differently; without its index, every reader would make its own.
        prepare_routing(Root(root), require_served(Root(root)), workers)
        return None
    made = made_by(root, encoder)
    return publish(Root(root), found, **made, run_id=run_id, now=now, workers=workers).version


def made_by(root: str, encoder: str) -> dict[str, Any]:
    """Return what a version records of its encoder: `card`, and `path` relative to the root."""
    return {"card": card_of(encoder), "path": Path(encoder).relative_to(Root(root).folder).as_posix()}


@task(name="serve-learned-skills", cache_policy=NO_CACHE)
def serve_learned_skills(
    root: str, encoder: str, settings: dict[str, Any], run_id: str, how: str, words: StateWords
) -> dict[str, Any]:
    """Bring the table of learned skills up to their libraries, and serve it if it passes the gate."""
    from tasks.retrieve.versions.learned import serve_learned  # noqa: PLC0415 (as above)

    return serve_learned(Root(root), encoder, run_id, how, words=words, **settings)


@task(name="retain-versions", cache_policy=NO_CACHE)
def keep_versions(root: str, keep: int, *, now: datetime) -> list[str]:
    """Remove published versions beyond the last `keep`, and old usage; return the names of the versions."""
    tidy_usage(Root(root), now)
    return retain_versions(Root(root), keep, now=now)


@task(name="redo-everything", cache_policy=NO_CACHE)
def redo_everything(root: str, *, keep_vectors: bool) -> int:
    """Make refine, parse and the encoder repeat all their work; return the number of documents."""
    return redo_all(Root(root), keep_vectors=keep_vectors)


@task(name="compact-tables", cache_policy=NO_CACHE)
def compact_served(root: str) -> dict[str, Any]:
    """Merge small files into new versions beside those served; return them and their checks."""
    place = Root(root)
    files = table_files(place)
    built, tables = compact_tables(place)
    return {
        "built": asdict(built),
        "checks": [asdict(check) for check in check_compacted(place, built)],
        "tables": [asdict(found) for found in tables],
        "files_before": files,
    }


@task(name="clean-tables", cache_policy=NO_CACHE)
def clean_files(root: str) -> int:
    """Remove files that no published version needs; return the number of those that are left."""
    clean_tables(Root(root))
    return table_files(Root(root))


@task(name="drop-blobs", cache_policy=NO_CACHE)
def drop_unnamed_blobs(root: str) -> int:
    """Remove blobs that no document names; return how many."""
    return drop_blobs(Root(root))


@task(name="served-encoder", cache_policy=NO_CACHE, **task_retries())
def served_encoder(root: str) -> str:
    """Return the folder of the encoder that made what is served."""
    return str(Root(root).fetch(str(require_served(Root(root)).model["path"])))


@task(name="trim-raw", cache_policy=NO_CACHE)
def trim_snapshots(root: str, days: int | None, *, now: datetime) -> dict[str, Any] | None:
    """Remove raw snapshots that are older than so many days and not needed; None: they stay for ever."""
    from tasks.refine.document import content_hash_of  # noqa: PLC0415 (takes a second to load)

    return None if days is None else trim_raw(Root(root), days, now, content_hash_of)
