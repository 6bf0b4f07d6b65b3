"""The commands around learned skills: `skillery induce`, `suggest` and `library`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from flows.cli import options as opt
from flows.cli.options import given_or_wrong, print_json, root_of
from flows.commands.console import counts, say, say_text, table
from flows.settings import load_settings

_LISTED = 40  # skills that a list shows; --out and --json have all
SuggestMethodOption = Annotated[
    str, Option("--method", metavar="NAME", help="default, sgdr, task, state, static, popular or random.")
]
DomainOption = Annotated[
    str | None, Option("--domain", metavar="NAME", help="Of the skills; may be left out where it is one.")
]


def induce(
    trajectories: opt.TrajectoriesArgument,
    form: opt.FormatOption = "trajectories",
    domain: Annotated[str, Option(metavar="NAME", help="Of chats that name none.")] = "chat",
    verify: Annotated[
        str, Option(metavar="HOW", help="recorded, or command:CMD, which replays runs over JSON lines.")
    ] = "recorded",
    folder: Annotated[
        Path, Option("--verify-in", metavar="FOLDER", help="Where the command of --verify runs.")
    ] = Path(),
    support: Annotated[int, Option(metavar="N", min=1, help="Keep what so many tasks did, at least.")] = 1,
    granularity: Annotated[
        str,
        Option(metavar="NAME", help="What skills are cut out of: window, window:2-5, trajectory or action."),
    ] = "window",
    inducer: Annotated[
        str, Option(metavar="NAME", help="recurrence, or llm, which says what is a skill and names it.")
    ] = "recurrence",
    judge: Annotated[
        str | None,
        Option(metavar="NAME", help="declared (the file's verdict) or llm  [llm where one is set up]"),
    ] = None,
    wait: opt.WaitOption = 0,
    _preset: opt.PresetOption = None,
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Learn skills from recorded runs of agents: cut them out, verify them by replay, keep them.

    TRAJECTORIES are files of JSON lines or Parquet, or folders of them.
    """
    from flows.commands.induction.induce import induce, taught  # noqa: PLC0415
    from tasks.induce.library.learn import Learning  # noqa: PLC0415
    from tasks.induce.skills.actions import granularity_of  # noqa: PLC0415

    settings = load_settings()
    where, how = root_of(settings, root), Learning(verify, folder, support, granularity_of(granularity))
    with taught(where, settings, how, judge, inducer) as own:
        found = induce(where, settings, trajectories, own, form, domain, wait)
    print_json(found) if as_json else _print_induced(found)
    nothing = not found["trajectories"]["read"] and found["trajectories"]["failed"]
    raise typer.Exit(1 if nothing or found["state"] == "refused" else 0)


def suggest(
    task: Annotated[str | None, Option(metavar="TEXT", help="What the agent was asked.")] = None,
    state: Annotated[
        Path | None, Option(metavar="S.json", help="{observation, url?, title?, previous?: [action]}")
    ] = None,
    domain: DomainOption = None,
    k: Annotated[int, Option("-k", metavar="NUMBER", help="At most so many skills.")] = 5,
    method: SuggestMethodOption = "default",
    alpha: Annotated[float, Option(help="Of sgdr: weight of the task beside the state.")] = 0.5,
    relevance_weight: Annotated[
        float, Option(help="Of sgdr: 1 ranks by relevance alone, 0 avoids likes.")
    ] = 0.7,
    candidates: Annotated[
        int | None, Option(metavar="M", min=1, help="Of sgdr: of so many.  [20, or 3 k if more]")
    ] = None,
    shape: Annotated[
        Literal["table", "prompt"], Option("--format", help="A table, or a block for an agent's prompt.")
    ] = "table",
    batch: opt.BatchOption = None,
    out: opt.OutOption = None,
    _preset: opt.PresetOption = None,
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Suggest learned skills for one step of a task, by the task and by what the agent sees."""
    from flows.commands.induction.induce import state_summaries  # noqa: PLC0415
    from flows.commands.induction.suggest import (  # noqa: PLC0415
        open_suggester,
        prompt_of,
        read_state,
        suggest_batch,
    )

    settings = load_settings()
    where = root_of(settings, root)
    numbers = {"alpha": alpha, "relevance_weight": relevance_weight, "candidates": candidates}
    wishes: dict[str, Any] = {"k": k, "method": method, **numbers}
    with state_summaries(where, settings) as summed:
        suggester = open_suggester(where, settings, summed)
        if batch is not None or out is not None:
            failed = suggest_batch(partial(suggester.suggest, **wishes), batch, out, domain)
            raise typer.Exit(1 if failed else 0)
        asked = given_or_wrong(task, "--task")
        given = read_state(Path(given_or_wrong(str(state) if state else None, "--state")))
        found = suggester.suggest(asked, domain, given, **wishes)
    if as_json:
        print_json(found)
    elif shape == "prompt":
        say_text(prompt_of(found["results"]).rstrip("\n"))
    else:
        _print_suggested(found)


def library(
    skill_id: Annotated[str | None, Argument(metavar="SKILL_ID", help="Show this one.")] = None,
    domain: DomainOption = None,
    out: Annotated[Path | None, Option(metavar="L.jsonl", help="Write all skills, a JSON line each.")] = None,
    export: Annotated[
        Path | None, Option(metavar="FOLDER", help="Write a folder with a SKILL.md for each.")
    ] = None,
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """List, show and export the skills that were learned from runs of agents."""
    from flows.commands.induction.library import learned, shown  # noqa: PLC0415

    where = root_of(load_settings(), root)
    if skill_id is not None:
        skill = shown(where, skill_id)
        print_json(skill) if as_json else _print_skill(skill)
        return
    found = learned(where, domain, out, export)
    print_json(found) if as_json else _print_library(found)


def _print_induced(found: dict[str, Any]) -> None:
    read, skills = found["trajectories"], found["skills"]
    known = f"{read['new']} new, {read['judged']} judged since, {read['unchanged']} known"
    say(f"{read['read']} runs read: {known}; {read['waiting']} not judged")
    if read["redacted"]:
        say(f"secrets were replaced in {read['redacted']} of them")
    if read["failed"]:
        say(f"not read: {counts(read['failed'])}", style="red")
        for row in read["unread"]:
            say(f"{row['place']}: {row['reason']}: {row['detail']}", indent=2)
    say(f"{found['windows']} windows; skills: {counts(skills)}")
    if found["llm"]:
        llm = found["llm"]
        by = counts(found["inducers"]) or "none"
        say(f"by inducer: {by}; {llm['model']}: {llm['requests']} requests, {llm['tokens']:,} tokens")
    if found["dropped"]:
        say(f"left out: {counts(found['dropped'])}")
    for one in found["domains"]:
        say(f"{one['domain']}: {one['skills']} skills", indent=2)
    if "message" in found:
        say(found["message"], style="red")
    say(f"{'published' if found['published'] else 'still served'}: {found['served']}")
    say(f"{found['seconds']} s; ask with: skillery suggest --task TEXT --state S.json")


def _print_suggested(found: dict[str, Any]) -> None:
    if not found["results"]:
        say(f"no skill of {found['domain']} fits this step")
    for row in found["results"]:
        say(f"{row['rank']:2}. {row['description']}")
        how = ", ".join(row["verified"]["how"]) or "nothing"
        say(f"{row['skill_id']}, done in {row['support']} tasks, verified by {how}", indent=4)
        say_text("\n".join(f"    {line}" for line in row["code"].splitlines()))
    say(f"{found['took_ms']} ms")


def _print_library(found: dict[str, Any]) -> None:
    rows = sorted(found["skills"], key=lambda row: -row["support"])[:_LISTED]
    cells = [[row["skill_id"], row["support"], row["callable"], row["description"]] for row in rows]
    table(f"{len(found['skills'])} learned skills", ["skill_id", "tasks", "callable", "description"], cells)
    if len(found["skills"]) > len(rows):
        say(f"{len(found['skills']) - len(rows)} more: --out L.jsonl writes all")
    for file in found["written"]:
        say(f"written: {file}")


def _print_skill(skill: dict[str, Any]) -> None:
    say(skill["description"])
    say_text(skill["code"].rstrip("\n"))
    how = ", ".join(skill["verified"]["how"]) or "nothing"
    say(f"{skill['skill_id']}: done in {skill['support']} tasks; verified by {how}")
    say(f"callable: {skill['callable']}; found by {skill['inducer']}")
    if skill["near"]:
        say(f"nearly the same: {', '.join(skill['near'])}")
