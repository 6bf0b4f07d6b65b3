"""The command `skillery compose`: a task that needs several skills becomes a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from flows.cli import options as opt
from flows.cli.options import given_or_wrong, print_json, root_of
from flows.commands.console import form_of
from flows.settings import load_settings

DecomposerOption = Annotated[
    str,
    Option(
        "--decomposer",
        metavar="NAME",
        help="local, llm, paper (SkillWeaver's words), or hybrid: an LLM where local is unsure.",
    ),
]
LlmRerankOption = Annotated[
    bool, Option("--rerank", help="Have a language model choose among a step's candidates.")
]
RoundsOption = Annotated[
    int, Option("--rounds", metavar="T", help="How often to cut again, by what is served.")
]
AlphaOption = Annotated[
    float, Option("--alpha", metavar="A", help="Weight of relevance; the rest is compatibility.")
]
PagesOption = Annotated[
    float | None,
    Option("--pages", metavar="B", help="Add the page of each step's skill, of a budget as page takes it."),
]
PlanOutOption = Annotated[
    Path | None,
    Option(
        "--out", metavar="FILE", help="Draw the plan: .svg or .mmd (Mermaid). With --batch: where answers go."
    ),
]


def compose(
    task: Annotated[str | None, Argument(metavar="TASK", help="What is to be done, in words.")] = None,
    k: Annotated[int, Option("-k", metavar="N", help="Candidates a step.")] = 5,
    kind: opt.KindOption = None,
    licence: opt.LicenceOption = None,
    source: opt.FromOption = None,
    risk: opt.RiskOption = None,
    max_steps: Annotated[int, Option(metavar="N", help="Steps at most.")] = 8,
    decomposer: DecomposerOption = "local",
    rerank: LlmRerankOption = False,
    rounds: RoundsOption = 1,
    hints: Annotated[int, Option(metavar="H", help="How many it is cut again by.")] = 15,
    alpha: AlphaOption = 1.0,
    explain: Annotated[bool, Option("--explain", help="Say what each round made of the task.")] = False,
    pages: PagesOption = None,
    batch: opt.BatchOption = None,
    out: PlanOutOption = None,
    allow_errors: opt.AllowErrorsOption = False,
    _preset: opt.PresetOption = None,
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Plan a task that needs several skills: its steps, their order, and what serves each."""
    from flows.cli.printing.plan import print_plan  # noqa: PLC0415 (as all below: other commands do without)
    from flows.commands.plans.llm import planner  # noqa: PLC0415
    from flows.commands.queries import (  # noqa: PLC0415
        PLAN_FORMS,
        compose_batch,
        open_index,
        put_plan,
        search_filters,
    )
    from tasks.retrieve.compose.compose import ComposeOptions  # noqa: PLC0415

    settings = load_settings()
    where = root_of(settings, root)
    index = open_index(where, settings)
    filters = search_filters(kind, licence, source, risk)
    options = ComposeOptions(k, max_steps, rounds, hints, explain, filters, alpha, pages=pages)
    batched = batch is not None or (out is not None and task is None)
    if out is not None and not batched:
        form_of(out, PLAN_FORMS)  # before the work that a wrong ending would waste
    with planner(where, settings, index, options, decomposer=decomposer, rerank=rerank) as planned:
        if batched:
            failed = compose_batch(planned, batch, out)
        else:
            plan = planned(given_or_wrong(task, "TASK", ", or --batch and --out"))
    if batched:
        raise typer.Exit(1 if failed and not allow_errors else 0)
    if out is not None:
        put_plan(plan, out)
        plan = {"out": str(out), **plan}
    print_json(plan) if as_json else print_plan(plan)
