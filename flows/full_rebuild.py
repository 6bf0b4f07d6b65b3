"""Full rebuild: makes everything again from raw snapshots, beside what is served."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from prefect import flow
from pydantic import Field

from flows.commands.foresee import foreseen_of
from flows.nightly import ready, refine_to_served, summary
from flows.run_page import named, recorded_on_page, show_table, writing
from flows.run_record import this_run
from storage.root import Root
from tasks.crawl.source_list import specs_to_read
from tasks.retrieve.shells import redo_everything


@flow(name="full-rebuild", flow_run_name=named("full-rebuild {root}"))
def full_rebuild(
    root: str = "data",
    index: Literal["all", "skills"] = "all",
    keep_vectors: bool = False,
    wait_minutes: Annotated[float, Field(ge=0)] = 60,
) -> dict[str, Any]:
    """Refine, parse, encode and index everything again, without crawling; serve it if it passes the gate.

    The served version answers meanwhile, and stays if the gate refuses the new one. A rebuild that is killed
    or refused is finished by the next run of any kind, which then writes every row again.

    Args:
        root: Folder of all that Skillery keeps.
        index: `skills` makes what routing needs and leaves the nodes' vectors for later.
        keep_vectors: Use the vectors that are kept by text, instead of encoding every text again.
        wait_minutes: How long to wait for another run that writes to this root.
    """
    (settings, spent), place, run = ready(root), Root(root), this_run()
    with (
        writing(place, wait_minutes, run),
        recorded_on_page(place, run, specs_to_read(place), flow="full-rebuild") as record,
    ):
        given: dict[str, Any] = {"index": index, "keep_vectors": keep_vectors}
        record.foreseen = foreseen_of(place, settings, (), again=True, **given)
        redo_everything(root, keep_vectors=keep_vectors)
        refine_to_served(record, root, index, spent, anew=True)
    found = record.as_dict()
    show_table("skillery-full-rebuild", summary(found), f"Run {run}: {found['state']}.")
    return found
