"""One night of the stages' cores, as the nightly flow runs it, without its orchestrator.

`python -m tests.support.roots.night_process ROOT MARKET EXPORT RUN_ID [STEP]` kills itself before that step.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from storage.errors import Locked
from storage.locks import writer_lock
from storage.root import Root
from tasks.crawl.collect import collect, require_readable
from tasks.crawl.local.directory import DirectorySource
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

LOCKED = 75
# What changes something on disk, in storage/: each is a moment to die at, and so is every rename.
_STEPS = {"write", "delete", "put_file", "delete_path", "add", "_begin", "_index", "tag", "prune"}


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


def watch(reached: Callable[[], None]) -> None:
    """Call `reached` before every step of this thread."""

    def look(frame: FrameType, event: str, arg: Any) -> None:  # noqa: ANN401 (the interpreter's own)
        code = frame.f_code
        ours = code.co_name in _STEPS and Path(code.co_filename).parent.name == "storage"
        if (event == "call" and ours) or (event == "c_call" and arg is os.replace):
            reached()

    sys.setprofile(look)


def _die_at(step: int) -> Callable[[], None]:
    left = [step]

    def reached() -> None:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return reached


def main() -> None:
    folder, market, export, run_id, *step = sys.argv[1:]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if step:
        watch(_die_at(int(step[0])))
    try:
        run_night(Root(folder), DirectorySource(market), Path(export), run_id, datetime.now(UTC))
    except Locked:
        sys.exit(LOCKED)


if __name__ == "__main__":
    main()
