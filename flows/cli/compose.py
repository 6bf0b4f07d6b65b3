"""The command `skillery compose`: a task that needs several skills becomes a plan."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flows.cli.options import (
    AllowErrorsOption,
    BatchOption,
    FromOption,
    JsonOption,
    KindOption,
    LicenceOption,
    OutOption,
    RootOption,
    given_or_wrong,
    print_json,
    root_of,
)
from flows.commands.console import say
from flows.settings import load_settings

_UNSURE, _OTHERS = 0.5, 3  # confidence under which a person is told other candidates, and how many


def compose(
    task: Annotated[str | None, typer.Argument(metavar="TASK", help="What is to be done, in words.")] = None,
    k: Annotated[int, typer.Option("-k", metavar="N", help="Candidates a step.")] = 5,
    kind: KindOption = None,
    licence: LicenceOption = None,
    source: FromOption = None,
    max_steps: Annotated[int, typer.Option("--max-steps", metavar="N", help="Steps at most.")] = 8,
    decomposer: Annotated[
        str,
        typer.Option(
            "--decomposer",
            metavar="NAME",
            help="local, llm, or hybrid, which asks a language model where local is unsure.",
        ),
    ] = "local",
    rerank: Annotated[
        bool, typer.Option("--rerank", help="Have a language model choose among a step's candidates.")
    ] = False,
    rounds: Annotated[
        int, typer.Option("--rounds", metavar="T", help="How often to cut again, by what is served.")
    ] = 1,
    hints: Annotated[int, typer.Option("--hints", metavar="H", help="How many it is cut again by.")] = 15,
    alpha: Annotated[
        float, typer.Option("--alpha", metavar="A", help="Weight of relevance; the rest is compatibility.")
    ] = 1.0,
    explain: Annotated[bool, typer.Option("--explain", help="Say what each round made of the task.")] = False,
    batch: BatchOption = None,
    out: OutOption = None,
    allow_errors: AllowErrorsOption = False,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plan a task that needs several skills: its steps, their order, and what serves each."""
    from flows.commands.plans.llm import plan_makers  # noqa: PLC0415
    from flows.commands.queries import compose_batch, open_index, search_filters  # noqa: PLC0415
    from tasks.retrieve.compose.compose import compose as composed  # noqa: PLC0415
    from tasks.retrieve.compose.options import ComposeOptions  # noqa: PLC0415

    settings = load_settings()
    where = root_of(settings, root)
    index = open_index(where, settings)
    options = ComposeOptions(
        k, max_steps, rounds, hints, explain, search_filters(kind, licence, source), alpha
    )
    with plan_makers(where, settings, index, options, decomposer=decomposer, rerank=rerank) as makers:
        if batch is None and out is None:
            wanted = given_or_wrong(task, "TASK", ", or --batch and --out")
            plan = composed(index, wanted, options, makers.decomposer(), makers.reranker)
        else:
            failed = compose_batch(index, batch, out, options, makers.decomposer, makers.reranker)
    if batch is not None:
        raise typer.Exit(1 if failed and not allow_errors else 0)
    print_json(plan) if as_json else print_plan(plan)


def print_plan(plan: dict[str, Any]) -> None:
    """Print a plan as a numbered list, then what stands in no step."""
    for step in plan["steps"]:
        after = f"  (after {', '.join(map(str, step['after']))})" if step["after"] else ""
        say(f"{step['step']:>2}. {step['text']}{after}", style="bold")
        if step["gap"]:
            say("    nothing served fits this step", style="red")
        else:
            say(f"    {step['doc_id']}  {step['confidence']:.0%} sure")
        if step["gap"] or step["confidence"] < _UNSURE:
            others = [c["doc_id"] for c in step["candidates"] if c["doc_id"] != step["doc_id"]]
            for other in others[:_OTHERS]:
                say(f"    or {other}")
    for part in plan["left_out"]:
        say(f"left out ({part['reason']}): {part['text']}")
    for number, one in enumerate(plan.get("trace", ())):
        said = "" if one["jaccard"] is None else f", Jaccard of hints {one['jaccard']:.2f}"
        say(f"round {number}: {len(one['steps'])} steps{said}")
    side = [group for group in plan["groups"] if len(group) > 1]
    for group in side:
        say(f"side by side: {', '.join(map(str, group))}")
    tokens = plan["tokens"]
    say(
        f"{plan['took_ms']:.0f} ms; the chosen have {tokens['chosen']:,} tokens, all served {tokens['all']:,}"
    )
