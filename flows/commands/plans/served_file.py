"""A served file: a corpus in one file, served from a folder of its own as long as it is measured."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path

from flows.commands.console import say_aside
from flows.settings import Settings
from storage.errors import WrongInput
from storage.root import Root
from tasks.crawl.collect import collect
from tasks.crawl.source.base import CrawlContext
from tasks.crawl.sources import open_source
from tasks.models.encoder import OnnxEncoder
from tasks.models.onnx_export import exported_encoder
from tasks.refine.batch import refine_batch
from tasks.refine.filters import FilterLimits
from tasks.refine.licences.policy import LicencePolicy
from tasks.refine.plan import plan_refine
from tasks.refine.update import update_corpus
from tasks.retrieve.index.build import build
from tasks.retrieve.index.licence_classes import classify_licences
from tasks.retrieve.versions.publish import publish

_SPECS = {".md": "awesome", ".parquet": "parquet"}


def served_corpus(corpus: str | None, root: Root, settings: Settings) -> AbstractContextManager[Root]:
    """Return the context of the root that serves a corpus: another root, a file, or `root` itself."""
    if not corpus or not Path(corpus).is_file():
        return nullcontext(Root(corpus) if corpus else root)
    return served_file(Path(corpus), root, settings)


@contextmanager
def served_file(file: Path, root: Root, settings: Settings) -> Iterator[Root]:
    """Yield a root that serves the rows of a file, without nodes; it is removed at the end.

    The file is a list of servers (`.md`, as the source `awesome:` reads it), or skills (`.parquet`); `root`
    keeps the encoder. Raises `WrongInput` if the file is none of these, or holds nothing that could be
    served.
    """
    if file.suffix not in _SPECS:
        msg = f"--corpus {file}: give a root, a list of servers (.md) or a corpus of skills (.parquet)"
        raise WrongInput(msg)
    models = exported_encoder(root.folder / "models", settings.encoder)
    with tempfile.TemporaryDirectory(prefix="skillery-measured-") as folder:
        own = Root(folder)
        (own.folder / "models").mkdir()
        (own.folder / "models" / models.name).symlink_to(models.absolute())
        say_aside(f"{file} is indexed for these measures")
        _publish(f"{_SPECS[file.suffix]}:{file.absolute()}", own, f"models/{models.name}", settings)
        yield own


def _publish(spec: str, root: Root, model: str, settings: Settings) -> None:
    now, limits = datetime.now(UTC), FilterLimits()
    run = f"{now:%Y%m%dT%H%M%S}"
    report = collect(open_source(spec, CrawlContext(root, now)), root, run_id=run, now=now)
    for parts in plan_refine(root, limits).batches:
        refine_batch(root, parts, run_id=run, limits=limits)
    update_corpus(root, run_id=run, now=now)
    encoder = OnnxEncoder(root.folder / model)
    built = build(root, encoder=encoder, with_nodes=False)
    if not built.skills_rows:
        raise WrongInput(f"--corpus: {spec} holds nothing that can be served ({report.state})")
    classify_licences(root, built.skills, LicencePolicy(**settings.licence_policies()["serve"]))
    publish(root, built, card=encoder.card, path=model, run_id=run, now=now)
