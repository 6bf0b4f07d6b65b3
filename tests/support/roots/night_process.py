"""One night of the stages' cores, as the nightly flow runs it, without its orchestrator."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from storage.locks import writer_lock
from storage.root import Root
from tasks.crawl.collect import collect, require_readable
from tasks.crawl.source.base import Source
from tasks.evaluate.health.regression import check_regression
from tasks.models.cached_encoder import load_kept_encoder
from tasks.models.encoder import load_encoder
from tasks.parse.classify.local import LocalClassifier
from tasks.parse.classify.protocol import Classifier
from tasks.parse.corpus import parse_partitions, plan_parse, rules_digest
from tasks.refine.batch import refine_batch
from tasks.refine.filters import FilterLimits
from tasks.refine.licences.policy import SERVE_POLICY
from tasks.refine.plan import plan_refine
from tasks.refine.update import update_corpus
from tasks.retrieve.index.build import build
from tasks.retrieve.index.gate import check_index, check_shrink, require_passed
from tasks.retrieve.index.licence_classes import classify_licences
from tasks.retrieve.versions.doctor import mend_missing
from tasks.retrieve.versions.publish import candidate, publish
from tasks.retrieve.versions.retention import retain_versions


def run_night(
    root: Root, source: Source, export: Path, run_id: str, now: datetime, classifier: Classifier | None = None
) -> str | None:
    """Crawl, refine, parse, index, check, publish and clean up; return the version, None for none."""
    with writer_lock(root):
        mend_missing(root)
        require_readable([asdict(collect(source, root, run_id=run_id, now=now))])
        return index_night(root, export, run_id, now, classifier)


def index_night(
    root: Root, export: Path, run_id: str, now: datetime, classifier: Classifier | None = None
) -> str | None:
    """Do what follows the crawl."""
    for parts in plan_refine(root, FilterLimits()).batches:
        refine_batch(root, parts, run_id=run_id, limits=FilterLimits())
    update_corpus(root, run_id=run_id, now=now)
    folder = root.folder / "models" / export.name
    encoder, types = load_kept_encoder(root.uri, str(folder)), classifier or LocalClassifier()
    revision = encoder.card["revision"]
    rules = rules_digest(types.name, revision, revision)
    for partitions in plan_parse(root, rules).batches:
        parse_partitions(root, partitions, rules=rules, classifier=types, tokenizer=encoder, encoder=encoder)
    built = build(root, encoder=encoder, with_nodes=True)
    classify_licences(root, built.skills, SERVE_POLICY)
    if not built.changed:
        return None
    made: dict[str, Any] = {
        "card": encoder.card,
        "path": f"models/{export.name}",
        "run_id": run_id,
        "now": now,
    }
    fresh = load_encoder(str(folder))
    checks = check_index(root, built, encoder=fresh) + check_shrink(root, built, max_shrink=0.05, few=10)
    require_passed([asdict(check) for check in checks])
    new = candidate(root, built, **made)
    require_passed([asdict(c) for c in check_regression(root, new, encoder=fresh, count=20, max_loss=0.02)])
    version = publish(root, built, **made).version
    retain_versions(root, 3, now=now)
    return version
