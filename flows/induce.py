"""Induce: learns skills out of what is new in a folder of agents' runs, and serves them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from prefect import flow
from pydantic import Field

from flows.commands.console import counts
from flows.commands.induction.induce import publishing, record, state_summaries, taught
from flows.run_page import counted, flat, named, recorded_writing, show_table, tell
from flows.run_record import this_run
from flows.settings import load_settings
from storage.errors import WrongInput
from storage.root import Root
from tasks.induce.library.learn import Learning
from tasks.induce.shells import keep_trajectories, learn_domain, plan_learning
from tasks.induce.trajectories.read import DOMAIN, Format
from tasks.models.encoder import card_of
from tasks.parse.shells import prepare_encoder
from tasks.retrieve.index.gate import require_passed
from tasks.retrieve.shells import serve_learned_skills
from tasks.retrieve.versions.learned import require_model


@flow(name="induce", flow_run_name=named("induce {root}"))
def induce(
    root: str = "data", trajectories: str = "trajectories",
    form: Format = "trajectories", domain: str = DOMAIN,
    verify: str = "recorded", verify_in: str = ".", support: Annotated[int, Field(ge=1)] = 1,
    granularity: Literal["window", "trajectory", "action"] = "window",
    judge: Literal["declared", "llm"] | None = None, inducer: Literal["recurrence", "llm"] = "recurrence",
    wait_minutes: Annotated[float, Field(ge=0)] = 60,
) -> dict[str, Any]:  # fmt: skip
    """Keep what is new of agents' runs, learn the libraries of their domains, and serve them.

    Args:
        root: Folder of all that Skillery keeps.
        trajectories: A file or a folder of runs: JSON lines, gzipped or not, or Parquet.
        form: What a row is: a run with its steps, or an OpenAI chat with tool calls; or whose sessions
            these are, those of Claude Code or of Codex.
        domain: The domain of chats that name none.
        verify: `recorded`, or `command:CMD`, which replays runs over JSON lines.
        verify_in: The folder in which that command runs.
        support: The least number of tasks that did a skill.
        granularity: What skills are cut out of: windows, whole runs between messages, or single actions.
        judge: Whose verdicts count: the file's, or an LLM's; without a choice an LLM's where one is set up.
        inducer: Who says what is a skill, and names and describes it.
        wait_minutes: How long to wait for another run that writes to this root.

    Raises:
        GateRefused: The new table failed a check; what was served before is still served.
        WrongInput: The folder, or none of its runs, can be read, or the way to verify is not known.
    """
    run, settings = this_run(), load_settings()
    with (
        recorded_writing(Root(root), wait_minutes, run, "induce") as noted,
        noted.stage("induce"),
        taught(
            Root(root), settings, Learning(verify, Path(verify_in), support, granularity), judge, inducer
        ) as how,
        state_summaries(Root(root), settings) as words,
    ):
        encoder = prepare_encoder(root, settings.encoder)
        require_model(Root(root), card_of(encoder))
        read = keep_trajectories(root, trajectories, form, domain)
        tell(f"runs: {counts({k: v for k, v in read.items() if k != 'failed'})}")
        tell(f"not read: {counts(read['failed'])}")
        todo = plan_learning(root, how)
        learned = {name: learn_domain(root, name, state, how) for name, state in todo.items()}
        served = serve_learned_skills(root, encoder, publishing(settings), run, how.told(), words)
        found = record(Root(root), run, read, list(learned.values()), served, how, words)
        noted.end_as(found)
    _show(found, learned)
    require_passed(served["checks"])
    if not read["read"] and read["failed"]:
        raise WrongInput(f"no run of {trajectories} could be read: {counts(read['failed'])}")
    return found  # nothing that the evaluation measures has changed: no event starts it


def _show(found: dict[str, Any], learned: dict[str, dict[str, Any]]) -> None:
    told = {name: n for name, n in found["trajectories"].items() if name != "unread"}
    read = flat({"not read" if name == "failed" else name: n for name, n in told.items()})
    show_table("skillery-trajectories", counted(read, "runs"), "The runs of the folder, and those not read.")
    nothing = {"new": 0, "changed": 0, "unchanged": 0, "retired": 0}
    rows = [
        {**row, **nothing, **learned.get(row["domain"], {}).get("skills", {})} for row in found["domains"]
    ]
    show_table("skillery-learned-skills", rows, "Skills of each domain, and what changed in this run.")
    left = [
        {"domain": d, "reason": r, "skills": n}
        for d, one in learned.items()
        for r, n in one["dropped"].items()
    ]
    show_table("skillery-skills-left-out", left, "Skills that are not kept, by reason.")
    if found["llm"]:
        show_table(
            "skillery-induction-llm", counted(flat(found["llm"])), "What the LLM was asked, and its cost."
        )
    show_table("skillery-learned-checks", found["checks"], "The gate: what the new version had to pass.")
    tell(
        f"windows {found['windows']}; skills: {counts(found['skills'])}; left out: {counts(found['dropped'])}"
    )
    what = "published" if found["published"] else "nothing was published; still served"
    tell(f"{what}: {found['served'] or 'nothing'}")
