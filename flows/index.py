"""Index: writes the corpus to LanceDB, checks the new version, and serves it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from prefect import flow
from prefect.events import emit_event

from flows.run_page import counted, flat, on_page, show_table, tell
from flows.run_record import new_run_id
from flows.runners import run_batches, runs_elsewhere
from flows.settings import load_settings, run_expansion
from storage.lance.tables import NODES, SKILLS
from storage.locks import writer_lock
from storage.root import Root
from storage.state import expansions_table
from tasks.models.llm.budget import Carried
from tasks.parse.classify.options import TypingOptions
from tasks.parse.shells import prepare_encoder
from tasks.retrieve.index.licence_classes import by_class, licence_table
from tasks.retrieve.shells import (
    build_tables,
    check_tables,
    class_licences,
    embed_batch,
    expand_skills,
    keep_versions,
    plan_embeddings,
    publish_tables,
)

PUBLISHED = "skillery.published"


@flow(name="index", flow_run_name="index {root}")
def index(
    root: str = "data", index: Literal["all", "skills"] = "all", run_id: str | None = None,
    anew: bool = False, corpus: str | None = None, spent: Carried | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Update the tables to the corpus, check them and serve them; return what was built, and the checks.

    `expansion` says what an LLM was asked to foretell; null without one.

    A version that fails a check is not served: the run fails, and the old version is still served. Licence
    classes are computed in any case, because a setting may be all that changed.

    Args:
        root: Folder of all that Skillery keeps.
        index: `skills` leaves the table `nodes` for later.
        run_id: Filled in by nightly.
        anew: Write every row to new files, instead of only what changed since the served version.
        corpus: The folder of the documents if it is not the root: a day's folder below backfill/.
        spent: What this run has asked of an LLM before.
    """
    run, settings = run_id or new_run_id(), load_settings()
    policy = settings.licence_policies()["serve"]
    with writer_lock(Root(root)):
        encoder = prepare_encoder(root, settings.encoder)
        if corpus is None and runs_elsewhere():
            _embed(root, encoder)
        expansion = None if corpus else _expanded(root, run_expansion(settings), spent)
        built = build_tables(root, encoder, with_nodes=index == "all", anew=anew, corpus=corpus)
        licences = class_licences(root, built, policy)
        show_table(
            "skillery-licences",
            licence_table(licences),
            "What licences allow when answering on this machine; an export has its own classes.",
        )
        now = datetime.now(UTC)
        given: dict[str, Any] = {"run_id": run, "now": now, "workers": settings.workers}
        checks = check_tables(root, built, encoder, settings.gate(), corpus)
        if built["changed"] and all(check["passed"] for check in checks):  # a broken table answers no probes
            from tasks.evaluate.shells import compare_with_served  # noqa: PLC0415 (loads what measures)

            probes = settings.gate_probes()
            checks += compare_with_served(root, built, encoder, probes, corpus=corpus, **given)
        show_table("skillery-checks", checks, "The gate: what the new version had to pass.")
        version = publish_tables(root, built, checks, encoder, **given)
        if version:
            keep_versions(root, settings.keep_versions, now=now)
    tell(f"skills {built['skills_rows']}, nodes {built['nodes_rows']}, vectors made {built['vectors_new']}")
    tell(f"published: {version}" if version else "nothing changed; the served version stays")
    show_table("skillery-index", _tables(root, built), f"The tables; published: {version or 'unchanged'}.")
    announce(root, version)
    return {
        "built": built, "licences": by_class(licences), "checks": checks, "version": version,
        "expansion": expansion,
    }  # fmt: skip


def _expanded(root: str, llm: TypingOptions | None, spent: Carried | None) -> dict[str, Any] | None:
    """Have requests foretold about what has none; without a model, what was foretold goes."""
    if llm is None:
        expansions_table(Root(root)).drop()
        return None
    found = expand_skills(root, llm, spent)
    tell(f"requests foretold {found['written']}, about {found['asked']} documents")
    show_table("skillery-expansion", counted(flat(found)), "What an LLM was asked to foretell.")
    return found


def _tables(root: str, built: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row a table, which `database_uri` and `table` name as tools that follow data do."""
    return [
        {
            "database_uri": _database(root), "table": table, "version": built[table],
            "rows": built[f"{table}_rows"],
        }
        for table in (SKILLS, NODES)
        if built[table] is not None
    ]  # fmt: skip


def _database(root: str) -> str:
    place = Root(root).at("lance")
    return place if "://" in place else Path(place).absolute().as_uri()


def _embed(root: str, encoder: str) -> None:
    """Encode the skills on the cluster's workers, so that the build finds their vectors in the store."""
    given = {"root": root, "encoder": encoder}
    plan = plan_embeddings(root, encoder)
    calls = ((embed_batch, {**given, "partitions": p}) for p in plan)
    tell(f"{sum(run_batches('embed', calls, len(plan)))} skills encoded")


def announce(root: str, version: str | None) -> None:
    """Emit the event of a publication, which starts the evaluation; None: nothing was published."""
    if version and on_page():
        resource = {
            "prefect.resource.id": "skillery.index", "prefect.resource.name": version, "skillery.root": root
        }  # fmt: skip
        payload = {"root": root, "version": version, "database_uri": _database(root)}
        emit_event(event=PUBLISHED, resource=resource, payload=payload)
