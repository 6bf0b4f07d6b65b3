"""Measure: the commands `skillery evaluate NAME`, for what is served and for methods on benches."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from flows.cli import options as opt
from flows.cli.helps import GroupedHelp
from flows.cli.options import given_or_wrong, print_json, require_command, root_of
from flows.cli.printing import measures as printing_bench
from flows.cli.printing import run as printing
from flows.settings import load_settings

evaluate_app = typer.Typer(cls=GroupedHelp, invoke_without_command=True, rich_markup_mode=None)


@evaluate_app.callback()
def _evaluate(context: typer.Context) -> None:
    """Measure what is served, or methods on a bench."""
    require_command(context)


_MethodsReport = Annotated[
    Path | None, Option("--report", help="Folder for tables and a picture of all methods.")
]


@evaluate_app.command("paging")
def evaluate_paging(
    documents: Annotated[Path, Option(help="JSON lines {doc_id, content}.")],
    queries: Annotated[Path, Option(help="JSON lines with evidence.")],
    method: Annotated[list[str] | None, Option(metavar="METHOD", help="Repeatable.")] = None,
    budget: Annotated[list[float] | None, Option(metavar="NUMBER", help="Repeatable.")] = None,
    report: _MethodsReport = None,
    all_methods: Annotated[bool, Option("--all", help="All methods; goes with --report.")] = False,
    judge: Annotated[
        str, Option(metavar="NAME", help="evidence, llm, or both: prints how far they agree.")
    ] = "evidence",
    labels: Annotated[
        Path | None, Option(help="A filled form (.md), or JSON lines {query_id, method, budget, sufficient}.")
    ] = None,
    probes: Annotated[
        str | None, Option(metavar="CORPUS", help="A root or Parquet file: probe its long documents too.")
    ] = None,
    sample_labels: Annotated[
        Path | None, Option(help="Write 96 judged contexts as a form (.md) for --labels.")
    ] = None,
    rerank: opt.RerankOption = False,
    classifier: opt.ClassifierOption = "local",
    _preset: opt.PresetOption = None,
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Measure evidence sufficiency, coverage and token reduction of paging methods on a bench."""
    from flows.commands.paging_bench import paging_bench  # noqa: PLC0415

    settings = load_settings()
    found = paging_bench(
        root_of(settings, root), settings,
        documents=documents, queries=queries, method=["all"] if all_methods else method, budget=budget,
        report=report, judge=judge, labels=labels, probes=probes, sample_labels=sample_labels, rerank=rerank,
        classifier=classifier,
    )  # fmt: skip
    print_json(found) if as_json else printing_bench.print_paging(found)


@evaluate_app.command("routing")
def evaluate_routing(
    bench: Annotated[
        Path | None, Option(help="Folder of a bench's files, for those that no option below names.")
    ] = None,
    corpus: Annotated[Path | None, Option(help="A root, Parquet or JSON lines of skills.")] = None,
    queries: Annotated[Path | None, Option(help="JSON lines {query_id, text}.")] = None,
    qrels: Annotated[Path | None, Option(help="JSON lines {query_id, doc_id, relevance}.")] = None,
    documents: Annotated[
        list[Path] | None, Option(metavar="PATH", help="More skills, as --corpus; repeatable.")
    ] = None,
    copies: Annotated[Path | None, Option(help="JSON lines {copy_id, doc_id}.")] = None,
    negatives: Annotated[Path | None, Option(help="As --queries: tasks that their skill is not for.")] = None,
    distractors: opt.DistractorsOption = None,
    pool: Annotated[
        list[str] | None, Option(metavar="POOL", help="all, bench, repository, easy or hard; repeatable.")
    ] = None,
    recall: Annotated[
        float, Option(metavar="SHARE", help="Tasks to be routed; how many negatives then are?")
    ] = 0.95,
    method: opt.VariantsOption = None,
    sweep: opt.SweepsOption = None,
    baseline: opt.BaselineOption = None,
    agents: opt.AgentsOption = None,
    attention: Annotated[
        bool, Option("--attention", help="See where the reranker of the settings looks.")
    ] = False,
    report: Annotated[Path | None, Option(help="Folder for tables and a picture.")] = None,
    _preset: opt.PresetOption = None,
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Measure how well methods rank the skills that tasks need, copies folded and not, and how fast."""
    from flows.commands.routing.bench import routing_bench  # noqa: PLC0415
    from tasks.evaluate.routing.report import terminal_blocks  # noqa: PLC0415

    settings = load_settings()
    found = routing_bench(
        root_of(settings, root), settings,
        bench=bench, corpus=corpus, queries=queries, qrels=qrels, documents=documents, copies=copies,
        negatives=negatives, distractors=distractors, pool=pool, recall=recall, method=method, sweep=sweep,
        baseline=baseline,
        agents=agents, attention=attention, report=report,
    )  # fmt: skip
    print_json(found) if as_json else printing_bench.show(terminal_blocks(found))


@evaluate_app.command("compose")
def evaluate_compose(
    queries: Annotated[Path, Option(metavar="FILE", help="JSON lines {query_id, query, steps, edges}.")],
    method: Annotated[
        list[str] | None,
        Option(
            metavar="METHOD",
            help="local-r0 to -r3, commas, gold-steps ...: a wrong name lists all; repeatable.",
        ),
    ] = None,
    baseline: Annotated[str, Option(metavar="METHOD", help="What others are compared with.")] = "commas",
    categories: Annotated[
        Path | None, Option(metavar="M.json", help="Maps the index's categories to those counted.")
    ] = None,
    without_gold: Annotated[
        bool, Option("--without-gold", help="Of each request hide what serves one step: confidence?")
    ] = False,
    without_category: Annotated[
        list[str] | None, Option(metavar="C", help="Hide a category: still cut well? Repeatable.")
    ] = None,
    leave_out: Annotated[
        float | None, Option(metavar="SHARE", help="Hide a share of all rows, as 0.2.")
    ] = None,
    seed: Annotated[int, Option(metavar="N", min=0, help="Draws what is hidden.")] = 42,
    report: Annotated[
        Path | None, Option(metavar="DIR", help="The paper's tables, of --method or of all; a picture.")
    ] = None,
    corpus: Annotated[
        str | None, Option(metavar="ROOT|FILE", help="What is served; a .md or .parquet file too.  [--root]")
    ] = None,
    _preset: opt.PresetOption = None,
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Measure plans on requests whose steps are known: the steps, what serves them, their order."""
    from flows.commands.plans.bench import plans_bench, served_corpus  # noqa: PLC0415
    from tasks.evaluate.compose.report import terminal_blocks  # noqa: PLC0415

    settings = load_settings()
    # Answers of a language model outlive the root in which a file is served.
    answers = root_of(settings, root) if corpus and Path(corpus).is_file() else None
    with served_corpus(corpus, root_of(settings, root), settings) as served:
        found = plans_bench(
            served, settings, queries, methods=method or (), baseline=baseline, categories=categories,
            report=report, without_category=without_category or (), leave_out=leave_out, seed=seed,
            hide_gold=without_gold, answers=answers,
        )  # fmt: skip
    print_json(found) if as_json else printing_bench.show(terminal_blocks(found))


@evaluate_app.command("nodes")
def evaluate_nodes(
    gold: Annotated[Path, Argument(metavar="GOLD", help="JSON lines of fragments with their node_type.")],
    classifier: opt.ClassifierOption = "local",
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Measure a classifier on labelled fragments: accuracy, F1, confusion, calibration, thresholds."""
    from flows.commands.classify import nodes_bench  # noqa: PLC0415

    settings = load_settings()
    found = nodes_bench(root_of(settings, root), settings, gold, classifier)
    print_json(found) if as_json else printing.print_nodes(found)


@evaluate_app.command("edges")
def evaluate_edges(
    documents: Annotated[int, Option(metavar="N", min=1, help="Parsed skills to ask about.")] = 50,
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Measure the rules' conditions and references against those of the LLM that is set up."""
    from flows.commands.classify import edges_bench  # noqa: PLC0415

    settings = load_settings()
    found = edges_bench(root_of(settings, root), settings, documents)
    print_json(found) if as_json else printing_bench.print_edges(found)


@evaluate_app.command("stream")
def evaluate_stream(
    trajectories: opt.TrajectoriesArgument,
    method: Annotated[
        list[str] | None,
        Option(
            metavar="METHOD",
            help="default, sgdr, task, state, static, popular or random; repeatable  [default]",
        ),
    ] = None,
    form: opt.FormatOption = "trajectories",
    turned: Annotated[float, Option(metavar="SHARE", help="Turn so many verdicts, drawn by --seed.")] = 0.0,
    seed: Annotated[int, Option(metavar="NUMBER", help="Draws them.")] = 42,
    out: Annotated[
        Path | None, Option(metavar="FILE", help="What the first method offers at each step, a line each.")
    ] = None,
    warm: Annotated[
        str | None, Option(metavar="ROOT", help="Begin with what this root has learned from runs.")
    ] = None,
    report: _MethodsReport = None,
    _preset: opt.PresetOption = None,
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Measure which skills are offered at each step, before its trajectory is learned from.

    TRAJECTORIES are files of JSON lines or Parquet, or folders of them.
    """
    from flows.commands.induction.stream import stream_bench  # noqa: PLC0415
    from tasks.evaluate.stream.report import terminal_blocks  # noqa: PLC0415

    settings = load_settings()
    found = stream_bench(
        root_of(settings, root), settings,
        paths=trajectories, method=method, form=form, turned=turned, seed=seed, out=out, warm=warm,
        report=report,
    )  # fmt: skip
    print_json(found) if as_json else printing_bench.show(terminal_blocks(found))


@evaluate_app.command("agents")
def evaluate_agents(
    tasks: Annotated[str, Argument(metavar="TASKS", help="A folder of tasks, or example: ten of ours.")],
    agent: Annotated[str, Option(metavar="AGENT", help="llm, or command:CMD.")] = "llm",
    method: Annotated[
        list[str] | None,
        Option(
            metavar="METHOD",
            help="none, oracle, default, paging, skillflow, sgdr, awm ...: a wrong name lists all; the first "
            "is what others are compared with; repeatable  [none]",
        ),
    ] = None,
    runs: Annotated[int, Option(metavar="N", min=1, help="Attempts at each task.")] = 3,
    k: Annotated[int | None, Option("-k", metavar="K", min=1, help="Of Pass@k and Pass^k  [--runs]")] = None,
    skills: Annotated[int, Option(metavar="N", min=1, help="Given at most.")] = 5,
    turns: Annotated[int, Option(metavar="N", min=1, help="Of one attempt.")] = 30,
    seconds: Annotated[float, Option(metavar="S", min=1, help="Of one attempt.")] = 600.0,
    minutes: Annotated[
        float | None, Option(metavar="M", min=0, help="Of all; with --report, again to go on.")
    ] = None,
    online: Annotated[
        bool, Option("--online", help="Methods that learn do so of each attempt that succeeds.")
    ] = False,
    report: Annotated[
        Path | None, Option(help="Folder for tables, and attempts, which are not made again.")
    ] = None,
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Measure agents that act: how often they pass with what methods retrieve, in how many steps."""
    from flows.commands.agents.bench import agents_bench  # noqa: PLC0415
    from tasks.evaluate.agents.report import terminal_blocks  # noqa: PLC0415

    settings = load_settings()
    found = agents_bench(
        root_of(settings, root), settings,
        tasks=tasks, agent=agent, method=method, runs=runs, k=k, skills=skills, turns=turns, seconds=seconds,
        minutes=minutes, online=online, report=report,
    )  # fmt: skip
    print_json(found) if as_json else printing_bench.show(terminal_blocks(found))


@evaluate_app.command("risks")
def evaluate_risks(
    bench: Annotated[Path, Argument(metavar="BENCH", help="labels.jsonl, malicious/, benign/.")],
    corpus: Annotated[
        Path | None, Option(metavar="FILE", help="Parquet of real skills: how many alarm?")
    ] = None,
    sample: Annotated[int, Option(min=1, metavar="N", help="So many of them are drawn.")] = 6_000,
    report: Annotated[Path | None, Option(help="Folder for tables and the run.")] = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Measure how many hostile skills are warned of and blocked, by class and place, and harmless ones."""
    from flows.commands.corpus import risks_bench  # noqa: PLC0415
    from tasks.evaluate.risks.bench import terminal_blocks  # noqa: PLC0415

    found = risks_bench(bench, corpus=corpus, sample=sample, report=report)
    print_json(found) if as_json else printing_bench.show(terminal_blocks(found))


@evaluate_app.command("corpus")
def evaluate_corpus(
    a: Annotated[
        str | None, Argument(metavar="A", help="A corpus: a root, a Parquet file or JSON lines.")
    ] = None,
    b: Annotated[str | None, Argument(metavar="B", help="Another, to be compared with it.")] = None,
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Compare the structure of two corpora; without them, run the evaluation flow on what is served."""
    if a is not None:
        from flows.commands.corpus import compare_corpora  # noqa: PLC0415

        compared = compare_corpora(a, given_or_wrong(b, "B"))
        print_json(compared) if as_json else printing.print_comparison(compared)
        return
    from flows.commands.runs import run_evaluation  # noqa: PLC0415

    found = run_evaluation(root_of(load_settings(), root))
    print_json(found) if as_json else printing.print_evaluation(found)
    raise typer.Exit(1 if found["fallen"] else 0)
