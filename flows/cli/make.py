"""Make: the commands `skillery bench NAME` and `skillery train NAME` make benches and models of a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from flows.cli.helps import GroupedHelp
from flows.cli.options import JsonOption, PresetOption, RootOption, print_json, require_command, root_of
from flows.cli.printing import measures as printing_bench
from flows.commands.console import say
from flows.settings import load_settings
from storage.errors import WrongInput

bench_app = typer.Typer(cls=GroupedHelp, invoke_without_command=True, rich_markup_mode=None)


@bench_app.callback()
def _bench(context: typer.Context) -> None:
    """Grow a bench from what is served, to measure on a corpus of one's own."""
    require_command(context)


@bench_app.command("paging")
def bench_paging(
    skills: Annotated[int, Option(metavar="N", min=1, help="About how many skills.")],
    out: Annotated[Path, Option(help="A folder; what is there is kept.")],
    _preset: PresetOption = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write five requests with evidence a skill through an LLM, check every passage, and report."""
    from flows.commands.generate import grow_paging_bench  # noqa: PLC0415

    settings = load_settings()
    found = grow_paging_bench(root_of(settings, root), settings, skills, out)
    print_json(found) if as_json else printing_bench.print_growth(found)


@bench_app.command("distractors")
def bench_distractors(
    documents: Annotated[Path, Option(help="A root, Parquet or JSON lines of skills.")],
    queries: Annotated[Path, Option(help="JSON lines {query_id, text}.")],
    qrels: Annotated[Path, Option(help="JSON lines {query_id, doc_id, relevance}.")],
    out: Annotated[Path, Option(help="A folder; what is there is kept.")],
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make skills that look relevant to a routing bench's tasks and are not, three a relevant skill."""
    from flows.commands.generate import grow_distractors  # noqa: PLC0415

    settings = load_settings()
    found = grow_distractors(root_of(settings, root), settings, documents, queries, qrels, out)
    print_json(found) if as_json else printing_bench.print_distractors(found)


_Corpora = Annotated[
    list[Path], Option("--corpus", metavar="PATH", help="A root, Parquet or JSON lines; repeatable.")
]


@bench_app.command("requests")
def bench_requests(
    corpus: _Corpora,
    out: Annotated[Path, Option(help="A folder; what is there is kept.")],
    pairs: Annotated[int, Option(metavar="N", min=1, help="Skills, one request each, at most.")] = 2500,
    _preset: PresetOption = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have the LLM that is set up write a request a skill, for `train routing --requests`."""
    from flows.commands.generate import grow_requests  # noqa: PLC0415

    settings = load_settings()
    found = grow_requests(root_of(settings, root), settings, corpus, pairs, out)
    print_json(found) if as_json else say(f"{found['pairs']} requests: train routing --requests {out}")


@bench_app.command("nodes")
def bench_nodes(
    out: Annotated[Path, Option(help="A file that is not there yet.")],
    nodes: Annotated[int, Option(metavar="N", min=1, help="How many.")] = 96,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw parsed nodes for people to label, balanced by type, source and size, for `evaluate nodes`."""
    from flows.commands.classify import write_sample  # noqa: PLC0415

    found = write_sample(root_of(load_settings(), root), out, nodes)
    print_json(found) if as_json else say(f"{found['nodes']} nodes: write the node_type of each in {out}")


@bench_app.command("compose")
def bench_compose(
    out: Annotated[Path, Option(help="A folder for requests.jsonl and bench.json.")],
    queries: Annotated[
        int, Option(metavar="N", min=1, help="Half of 2 steps, a third of 3, others of 4, 5.")
    ] = 300,
    seed: Annotated[int, Option(metavar="N", min=0, help="Draws what each request needs.")] = 42,
    templates: Annotated[
        bool, Option("--templates", help="SkillWeaver's way: no LLM, a phrase for each category.")
    ] = False,
    paraphrases: Annotated[int, Option(metavar="N", min=0, help="An LLM says N in other words too.")] = 0,
    _preset: PresetOption = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have the LLM that is set up write requests of several steps, for `evaluate compose --queries`."""
    from flows.commands.generate import grow_compose_bench  # noqa: PLC0415

    settings = load_settings()
    found = grow_compose_bench(
        root_of(settings, root), settings, queries, seed, out, templates=templates, paraphrases=paraphrases
    )
    print_json(found) if as_json else printing_bench.print_plan_bench(found)


train_app = typer.Typer(cls=GroupedHelp, invoke_without_command=True, rich_markup_mode=None)


@train_app.callback()
def _train(context: typer.Context) -> None:
    """Train models on a corpus, and measure whether that helps."""
    require_command(context)


@train_app.command("routing")
def train_routing(
    corpus: _Corpora,
    out: Annotated[Path, Option(help="A folder, empty or of the same training.")],
    pairs: Annotated[int, Option(metavar="N", min=1, help="Queries to train with at most.")] = 2500,
    requests: Annotated[
        Path | None, Option(metavar="FOLDER", help="With pairs.parquet: its requests are the queries.")
    ] = None,
    reranker: Annotated[
        str | None,
        Option(metavar="MODEL", help="A reranker to train too, a cross-encoder or a causal model."),
    ] = None,
    seed: Annotated[int, Option(metavar="N", min=0, help="Decides all that chance does.")] = 0,
    _preset: PresetOption = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train the encoder on sentences of bodies, or on authors' requests, against hard negatives."""
    from flows.cli.printing.measures import print_training  # noqa: PLC0415
    from flows.commands.routing.training import train_routing  # noqa: PLC0415

    settings = load_settings()
    found = train_routing(
        root_of(settings, root), settings, corpus, out,
        pairs=pairs, requests=requests, reranker=reranker, seed=seed,
    )  # fmt: skip
    print_json(found) if as_json else print_training(found)


@train_app.command("requests")
def train_requests(
    requests: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="JSON lines {query, doc_id, kept}.  [usage log]")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Go back to the packaged numbers.")] = False,
    _preset: PresetOption = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tune what `search` reads on your own requests; it is used if it is better on some held out.

    `kept` says whether the skill served the query. Without FILE it is what the usage log has: skills paged or
    installed within half an hour after a search found them. Two fifths of the requests decide, by skill:
    their log loss has to gain by more than chance gives, and no other figure may fall by more than .005 or
    two requests, nor may those of the package's own. The last 20,000 lines are used.
    """
    settings = load_settings()
    where = root_of(settings, root)
    if remove and requests:
        raise WrongInput(f"--remove takes no FILE: leave out {requests}, or --remove")
    if remove:
        from tasks.retrieve.routing.tuned import write_tuned  # noqa: PLC0415

        was = write_tuned(where, None)
        print_json({"removed": was}) if as_json else say("removed" if was else "nothing was tuned here")
        return
    from flows.cli.printing.measures import print_tuning  # noqa: PLC0415
    from flows.commands.routing.training import train_on_requests  # noqa: PLC0415

    found = train_on_requests(where, settings, requests)
    print_json(found) if as_json else print_tuning(found)
