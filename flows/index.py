"""Index: the corpus into LanceDB, checked, then served."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any, Literal

from prefect import flow
from prefect.events import emit_event

from flows.artifacts import show_table
from flows.record import new_run_id
from flows.settings import load_settings
from storage.locks import writer_lock
from storage.root import Root
from tasks.parse.shells import prepare_encoder
from tasks.retrieve.licences import by_class, licence_table
from tasks.retrieve.shells import build_tables, check_tables, class_licences, keep_versions, publish_tables

log = logging.getLogger(__name__)

PUBLISHED = "skillery.published"


@flow(name="index", flow_run_name="index {root}")
def index(
    root: str = "data", index: Literal["all", "skills"] = "all", run_id: str | None = None
) -> dict[str, Any]:
    """Bring the tables in step with the corpus, check and serve them; return what was built, and the checks.

    A version that fails a check is not served: the run fails, and the old version goes on being served. What
    licences allow is worked out anew in any case, since a setting may be all that changed.

    Args:
        root: Folder of all that Skillery keeps.
        index: `skills` leaves the table `nodes` for later.
        run_id: Filled in by nightly.
    """
    run, settings = run_id or new_run_id(), load_settings()
    policy = settings.licence_policies()["serve"]
    with writer_lock(Root(root)):
        encoder = prepare_encoder(root, settings.encoder, settings.encoder_precision)
        built = build_tables(root, encoder, with_nodes=index == "all")
        licences = class_licences(root, built, policy)
        show_table("skillery-licences", licence_table(licences), "What licences allow, by documents.")
        checks = check_tables(root, built, encoder, settings.gate())
        show_table("skillery-checks", checks, "The gate: what the new version had to pass.")
        version = publish_tables(root, built, checks, encoder, run_id=run, now=datetime.now(UTC))
        if version:
            keep_versions(root, settings.keep_versions, now=datetime.now(UTC))
    log.info("index: %s", f"{version} is served" if version else "nothing changed, the served version stays")
    show_table("skillery-index", [{"published": version or "unchanged", **built}], "The tables.")
    if version:
        resource = {"prefect.resource.id": "skillery.index", "prefect.resource.name": version}
        emit_event(event=PUBLISHED, resource=resource, payload={"root": root, "version": version})
    return {"built": built, "licences": by_class(licences), "checks": checks, "version": version}
