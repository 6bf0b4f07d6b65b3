"""Refresh one: reads one skill or repository again now, outside the schedule."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from prefect import flow
from pydantic import Field

from flows.nightly import ready, refine_to_served, summary
from flows.run_page import named, recorded_on_page, show_table, writing
from flows.run_record import this_run
from storage.root import Root
from tasks.crawl.collect import require_readable
from tasks.crawl.shells import find_sources, refresh_source
from tasks.crawl.source_list import specs_to_read


@flow(name="refresh-one", flow_run_name=named("refresh {target} in {root}"))
def refresh_one(
    target: Annotated[
        str, Field(min_length=1, examples=["anthropics/skills/skills/pdf", "anthropics/skills"])
    ],
    root: str = "data",
    index: Literal["all", "skills"] = "all",
    wait_minutes: Annotated[float, Field(ge=0)] = 60,
) -> dict[str, Any]:
    """Read one skill or repository again from the sources it came from, and serve what changed.

    Only these sources are asked, and a marketplace only about this repository. No other document retires. The
    new version must pass the gate, as every night's version. Returns the run's record, as `nightly` does.

    Args:
        target: A document's id as `skillery search` prints it, or OWNER/REPO.
        root: Folder of all that Skillery keeps.
        index: `skills` makes what routing needs and leaves the nodes' vectors for later.
        wait_minutes: How long to wait for another run that writes to this root.

    Raises:
        WrongInput: No source has such a document.
        NothingReadable: None of its sources could be read.
    """
    (settings, spent), now = ready(root), datetime.now(UTC)
    place, run = Root(root), this_run()
    with writing(place, wait_minutes, run):
        specs = find_sources(root, target)
        with recorded_on_page(place, run, specs_to_read(place), flow="refresh-one") as record:
            with record.stage("crawl"):
                record.sources = [
                    refresh_source(root, spec, target, run_id=run, now=now, settings=settings.crawl())
                    for spec in specs
                ]
                require_readable(record.sources)
            refine_to_served(record, root, index, spent)
    found = record.as_dict()
    show_table("skillery-refresh", summary(found), f"{target}, run {run}: {found['state']}.")
    return found
