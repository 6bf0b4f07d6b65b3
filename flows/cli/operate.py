"""The commands to operate a root: refresh, rebuild, compact, serve, alert, schema, settings."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic_settings import BaseSettings
from typer import Argument, Option

from flows.cli import options as opt
from flows.cli.exits import end_on_interrupt
from flows.cli.helps import ASK, FILL, REPAIR, WATCH
from flows.cli.options import print_json, root_of
from flows.cli.printing import run as printing
from flows.cli.printing.cost import print_cost
from flows.commands.console import say, say_aside
from flows.settings import load, load_settings
from storage.errors import WrongInput


def refresh(
    target: Annotated[
        str, Argument(metavar="TARGET", help="A document's id, as search prints it, or OWNER/REPO.")
    ],
    accept_risk: Annotated[
        list[str] | None, Option(metavar="RULE", help="Serve what is held for this rule; repeatable.")
    ] = None,
    index: opt.IndexOption = "all",
    wait: opt.WaitOption = 0,
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Read one skill or repository again now, in its sources alone, and serve what changed."""
    from flows.commands.runs import run_refresh  # noqa: PLC0415 (Prefect: only runs pay for it)

    record = run_refresh(root_of(load_settings(), root), target, index, wait, accept_risk or ())
    print_json(record) if as_json else printing.print_run(record)
    raise typer.Exit(0 if record["state"] in ("complete", "partial") else 1)


def rebuild(
    index: opt.IndexOption = "all",
    keep_vectors: Annotated[
        bool, Option("--keep-vectors", help="Encode no text again whose vector is kept.")
    ] = False,
    dry_run: opt.DryRunOption = False,
    wait: opt.WaitOption = 0,
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Make everything anew from raw snapshots, and serve it if it passes the gate."""
    if dry_run:
        from flows.commands.foresee import foresee  # noqa: PLC0415

        settings = load_settings()
        place = root_of(settings, root)
        cost = foresee(place, settings, (), index=index, again=True, keep_vectors=keep_vectors)
        print_json(cost) if as_json else print_cost(cost)
        return
    from flows.commands.runs import run_rebuild  # noqa: PLC0415

    record = run_rebuild(root_of(load_settings(), root), index, wait, keep_vectors=keep_vectors)
    print_json(record) if as_json else printing.print_run(record)
    raise typer.Exit(0 if record["state"] in ("complete", "partial") else 1)


def compact(wait: opt.WaitOption = 0, root: opt.RootOption = None, as_json: opt.JsonOption = False) -> None:
    """Merge small files of the tables, and remove those of versions that are kept no more."""
    from flows.commands.runs import run_compaction  # noqa: PLC0415

    found = run_compaction(root_of(load_settings(), root), wait)
    print_json(found) if as_json else printing.print_compaction(found)


def up(
    port: Annotated[int, Option(metavar="PORT", min=1, max=65535, help="Port of Prefect's page.")] = 4200,
    root: Annotated[
        list[str] | None, Option(metavar="FOLDER", help="As elsewhere; repeatable: nights of each.  [data]")
    ] = None,
) -> None:
    """Run Prefect's server, its page, the schedules and a worker here, until Ctrl-C."""
    from flows.server.up import serve_flows  # noqa: PLC0415

    try:
        settings = load_settings()
        serve_flows([root_of(settings, one) for one in root or [settings.root]], port, typer.echo)
    except KeyboardInterrupt:
        typer.echo("stopped")


def alert(
    block: Annotated[str, Argument(metavar="TYPE/NAME", help="A notification block of your server.")],
    as_json: opt.JsonOption = False,
) -> None:
    """Have your Prefect server tell somebody, through a block of it, when a run fails."""
    from flows.commands.monitoring import NAME, register_alert  # noqa: PLC0415

    done = register_alert(block)
    found = {"automation": NAME, "block": block, "done": done}
    print_json(found) if as_json else printing.print_alert(found)


def settings(
    everything: Annotated[
        bool, Option("--all", help="Those of pipelines, training, inducing and serving too.")
    ] = False,
    as_json: opt.JsonOption = False,
) -> None:
    """Print every setting: its variable, its value, where that comes from, what it means."""
    from flows.commands.induction.induce import InductionSettings  # noqa: PLC0415
    from flows.commands.installing import InstallSettings  # noqa: PLC0415
    from flows.commands.routing import settings as more  # noqa: PLC0415
    from flows.commands.routing.training import TrainingEnvironment  # noqa: PLC0415 (loads what training needs)
    from flows.serve.answers.service import load_serving  # noqa: PLC0415

    rows = _described(load_settings()) + _described(load(InstallSettings))
    if everything:
        kinds = (more.SkillFlowSettings, more.SkillRouterSettings, TrainingEnvironment, InductionSettings)
        rows += [row for kind in kinds for row in _described(load(kind))] + _described(load_serving())
    print_json({"settings": rows}) if as_json else printing.print_settings(rows)


def serve_metrics(
    port: Annotated[int, Option(metavar="PORT", min=0, max=65535, help="0 takes a free one.")] = 9108,
    address: Annotated[
        str, Option(metavar="HOST", help="Where to listen; the default is this machine alone.")
    ] = "127.0.0.1",
    root: opt.RootOption = None,
) -> None:
    """Serve the figures of status to Prometheus, under /metrics, until Ctrl-C."""
    from flows.commands.monitoring import serve_metrics as serve  # noqa: PLC0415

    at, end = serve(root_of(load_settings(), root), address, port)
    say_aside(f"metrics at http://{address}:{at}/metrics")
    try:
        while not threading.Event().wait(1):  # Polars' handler of signals lets a wait without end go on
            pass
    finally:
        end()


def serve(
    host: Annotated[
        str, Option(metavar="HOST", help="Where to listen; beyond loopback it needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, Option(metavar="PORT", min=0, max=65535, help="0 takes a free one.")] = 8765,
    stdio: Annotated[bool, Option("--stdio", help="Speak MCP on standard input and output instead.")] = False,
    public_url: opt.PublicUrlOption = None,
    workers: Annotated[
        int, Option(metavar="N", min=1, help="Processes that answer; each has models and limits of its own.")
    ] = 1,
    root: opt.RootOption = None,
) -> None:
    """Serve skills over MCP and HTTP, to a browser, and as a registry, until Ctrl-C."""
    from flows.serve.run import serve_http, serve_stdio  # noqa: PLC0415 (what servers need, others do not load)

    place = root_of(load_settings(), root)
    if stdio:
        # Nothing is waited for: a thread reads input that may never come.
        end_on_interrupt("stopped")
        serve_stdio(place)
        return
    try:
        serve_http(place, host, port, say_aside, public_url, workers)
    except KeyboardInterrupt:
        say_aside("stopped")


def publish(
    out: Annotated[str, Option(metavar="PLACE", help="A folder, or s3://bucket/prefix; its own alone.")],
    licence: opt.LicenceOption = None,
    source: opt.FromOption = None,
    risk: opt.RiskOption = None,
    public_url: opt.PublicUrlOption = None,
    keep: Annotated[
        int, Option(metavar="N", min=1, help="How long an archive stays: this and N-1 more times.")
    ] = 3,
    sign: Annotated[
        Path | None, Option(metavar="KEY.pem", help="Sign all of it with this private key.")
    ] = None,
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Write what is served as a registry of files, which any web server serves.

    Clients install from /.well-known/agent-skills/ and /.well-known/skills/, and
    Claude from the folder as a marketplace. Only what changed is written. What
    licences withhold, or SKILLERY_INSTALL_REFUSE refuses, is not in it.
    """
    from flows.cli.printing.skill import print_published  # noqa: PLC0415
    from flows.commands.registries import publish_registry  # noqa: PLC0415

    found = publish_registry(
        root_of(load_settings(), root), out, licences=licence or (), sources=source or (),
        risks=risk or (), public_url=public_url, keep=keep, sign=sign,
    )  # fmt: skip
    print_json(found) if as_json else print_published(found)


def _described(settings: BaseSettings) -> list[dict[str, Any]]:
    """Return each setting as `{name, value, origin, description}`, as JSON takes it.

    `name` is its environment variable; `origin` is `environment` or `default`. A secret shows as asterisks.
    """
    prefix = str(settings.model_config.get("env_prefix", ""))
    values = settings.model_dump(mode="json")
    # Only what the environment sets is among the fields that were set.
    return [
        {
            "name": f"{prefix}{field.upper()}",
            "value": values[field],
            "origin": "environment" if field in settings.model_fields_set else "default",
            "description": info.description or "",
        }
        for field, info in type(settings).model_fields.items()
    ]


def usage(
    days: Annotated[int, Option(metavar="N", min=1, max=90, help="The last N days.")] = 7,
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Show what was asked, found, paged and installed by day, and what was asked in vain.

    Kept is what SKILLERY_QUERY_LOG says: counts by default, `texts` of what was asked too, `off` nothing. It
    is kept for 90 days, and `forget` removes what names a document.
    """
    from flows.commands.usage import lines_of, usage_of  # noqa: PLC0415 (what servers ask does without)

    settings = load_settings()
    found = usage_of(root_of(settings, root), settings, days)
    print_json(found) if as_json else typer.echo("\n".join(lines_of(found)))


def schema(
    table: Annotated[
        str | None, Argument(metavar="TABLE", help="Its folder below the root  [list all tables]")
    ] = None,
    markdown: Annotated[bool, Option("--markdown", help="As tables of Markdown, columns and all.")] = False,
    as_json: opt.JsonOption = False,
) -> None:
    """Print the tables that lie on disk, and the columns of each with type, unit and meaning."""
    from flows.commands.open_formats.schema import schema_told  # noqa: PLC0415

    if as_json and markdown:
        raise WrongInput("--json and --markdown are two forms of one answer: give one of them")
    found = schema_told(table)
    if as_json:
        print_json(found)
    else:
        _print_schema(found, whole=table is not None or markdown, markdown=markdown)


_WIDEST = 21  # the widest name of a table, and a blank


def _print_schema(found: dict[str, Any], *, whole: bool, markdown: bool = False) -> None:
    """Print what `schema_told` returns, for a person or as Markdown; not `whole`: what each table holds."""
    for one in found["tables"]:
        if not whole:
            say(one["holds"], indent=_WIDEST, mark=one["table"].ljust(_WIDEST))
        elif markdown:
            _print_schema_markdown(one)
        else:
            say(f"{one['table']}: {one['holds']}", style="bold")
            for column in one["columns"]:
                say(f"{column['column']}: {', '.join(_facts(column))}", indent=2)
                say(column["meaning"], indent=4)


def _facts(column: dict[str, Any]) -> list[str]:
    unit = [f"in {column['unit']}"] if column["unit"] else []
    null = ["may be null"] if column["nullable"] else []
    return [column["type"], *unit, *null, f"since schema version {column['since']}"]


def _print_schema_markdown(one: dict[str, Any]) -> None:
    typer.echo(f"## {one['table']}\n\n{one['holds']}\n")
    typer.echo("| column | type | unit | null | since | meaning |\n|---|---|---|---|---|---|")
    for column in one["columns"]:
        null, unit = "yes" if column["nullable"] else "no", column["unit"] or ""
        cells = (f"`{column['column']}`", f"`{column['type']}`", unit, null, column["since"])
        typer.echo(f"| {' | '.join(map(str, cells))} | {column['meaning']} |")
    typer.echo("")


COMMANDS: dict[Callable[..., None], str] = {
    serve: ASK, publish: ASK, refresh: FILL, rebuild: REPAIR, compact: REPAIR, up: WATCH, settings: WATCH,
    serve_metrics: WATCH, alert: WATCH, usage: WATCH, schema: WATCH,
}  # fmt: skip
