"""Nightly: crawls, refines, parses, indexes, checks and publishes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from prefect import flow
from pydantic import Field

from flows.commands.foresee import foreseen_of
from flows.crawl import crawl
from flows.index import index as index_tables
from flows.parse import parse, require_believed
from flows.refine import refine
from flows.run_page import counted, flat, named, recorded_on_page, show_table, writing
from flows.run_record import RunRecord, this_run
from flows.runners import require_runner, shared_runner
from flows.settings import Settings, load_settings, run_expansion, run_opinions
from storage.root import Root
from tasks.crawl.source_list import specs_to_read
from tasks.crawl.sources import normal_spec
from tasks.models.llm.budget import Carried
from tasks.models.onnx_export import require_encoder


@flow(name="nightly", flow_run_name=named("nightly {root}"))
def nightly(
    root: str = "data", sources: list[str] | None = None, limit: int | None = None,
    index: Literal["all", "skills"] = "all", wait_minutes: Annotated[float, Field(ge=0)] = 60,
) -> dict[str, Any]:  # fmt: skip
    """Update the index from its sources, processing only what changed; return the run's record.

    Args:
        root: Folder of all that Skillery keeps.
        sources: Specs such as `git+URL[@REF]`, `dir:PATH`, `parquet:PATH`; empty: all on the list.
        limit: How many documents of each source to read, from its first on; empty: all.
        index: `skills` makes what routing needs and leaves the nodes' vectors for later.
        wait_minutes: How long to wait for another run that writes to this root.

    Raises:
        WrongInput: A setting or a source cannot be used.
        Locked: Another run wrote to this root for the whole wait.
        NothingReadable: None of the sources could be read.
        GateRefused: The new version failed a check; what was served stays.
    """
    (settings, spent), place, run = ready(root), Root(root), this_run()
    given = [normal_spec(spec) for spec in sources or []]
    with (
        writing(place, wait_minutes, run),
        recorded_on_page(place, run, given or specs_to_read(place), flow="nightly") as record,
    ):
        record.foreseen = foreseen_of(place, settings, record.specs, index=index, limit=limit)
        with record.stage("crawl"):
            record.sources = crawl(root, record.specs, limit, run)
        refine_to_served(record, root, index, spent)
    found = record.as_dict()
    show_table("skillery-nightly", summary(found), f"Run {run}: {found['state']}.")
    return found


def ready(root: str) -> tuple[Settings, Carried | None]:
    """Return the settings of a run that ends with a version, and what measuring a model has asked so far.

    Raises:
        WrongInput: One cannot be used: it is reported now, not after hours of crawling.
    """
    settings = load_settings()
    settings.licence_policies()
    require_runner(settings)
    run_opinions(settings)
    run_expansion(settings)
    require_encoder(Root(root).fetch("models"), settings.encoder)
    return settings, require_believed(root)


def refine_to_served(
    record: RunRecord, root: str, index: Literal["all", "skills"], spent: Carried | None = None, *,
    anew: bool = False,
) -> None:  # fmt: skip
    """Refine, parse, index, check and publish, and write the results to the run's record.

    The caller holds the root's writer lock. `index="skills"` leaves the vectors of nodes for later, `anew`
    writes every row of the tables to new files; `spent` is what `ready` returned.
    """
    with shared_runner():
        with record.stage("refine"):
            refined = refine(root, record.run_id, spent)
            record.risks_added, record.opinions = refined["risks_added"], refined["opinions"]
        with record.stage("parse"):
            parsed = parse(root, index, refined["account"] or spent)
            record.vectors_new, record.llm = parsed["vectors"], parsed["llm"]
        with record.stage("index"):
            indexed = index_tables(root, index, record.run_id, anew, spent=parsed["account"])
            record.expansion = indexed["expansion"]
    record.vectors_new += indexed["built"]["vectors_new"]
    record.checks, record.published = indexed["checks"], indexed["version"] is not None


def summary(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a run's record as rows of a table for a person: what, and how much."""
    names = ("state", "published", "served", "documents", "nodes", "edges", "vectors_new")
    shown = {k: record[k] for k in names}
    llm = {f"llm: {name}": value for name, value in flat(record["llm"] or {}).items()}
    for asked in ("opinions", "expansion"):
        llm |= {f"{asked}: {name}": value for name, value in flat(record[asked] or {}).items()}
    dropped = {f"dropped: {reason}": n for reason, n in record["dropped"].items()}
    risks = {f"risks added: {one['doc_id']}": one["message"] for one in record["risks_added"]}
    seconds = {f"seconds: {stage}": s for stage, s in record["seconds"].items()}
    return counted({**shown, **risks, **llm, **dropped, **seconds}, value="value")
