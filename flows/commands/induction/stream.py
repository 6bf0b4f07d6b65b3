"""The bench of skills offered along a stream of trajectories, for the command."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from flows.commands.console import folder_at, steps, write_report
from flows.commands.induction.induce import LLM, InductionSettings
from flows.commands.llm import opened_llm
from flows.settings import Settings, load
from storage.errors import WrongInput
from storage.jsonl import write_lines
from storage.root import Root
from tasks.evaluate.stream.report import (
    decision_means,
    draw_stream,
    run_table,
    stream_markdown,
    summarise_runs,
    variants,
)
from tasks.evaluate.stream.walk import Decision, Stream, has_succeeded
from tasks.induce.library.held import KeptTrajectories
from tasks.induce.library.judge import LlmTrajectoryJudge
from tasks.induce.skills.actions import GRANULARITIES, Body, granularity_of, told
from tasks.induce.skills.skill import skill_id_of
from tasks.induce.skills.windows import DecisionPoint, decision_points
from tasks.induce.trajectories.read import Format, Reading, latest, read_trajectories
from tasks.induce.trajectories.record import Step, Trajectory
from tasks.models.cached_encoder import KeptEncoder
from tasks.models.encoder import OnnxEncoder
from tasks.models.onnx_export import exported_encoder
from tasks.retrieve.suggest.methods import METHODS, Method

USUAL = ("default",)
_GRANULAR = ("default", "sgdr")  # methods of table 4


def stream_bench(
    root: Root, settings: Settings, *, paths: Sequence[Path], method: Sequence[str] | None = None,
    form: Format = "trajectories", turned: float = 0.0, seed: int = 42, out: Path | None = None,
    warm: str | None = None, report: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Ask methods at each step of trajectories, each before its trajectory is learned from.

    The keywords are the options of `skillery evaluate stream`, whose help says what each is. `report` is a
    folder for `stream.md`, `stream.json`, `stream.parquet` (the run) and, where matplotlib is, `stream.png`.

    Returns `trajectories` (read, successful, judged, repeated, unread by reason), `warm` (root, taught,
    left_out; null without one), `steps`, `sgdr` (its `granularity`, `candidates` and `judge`), `methods`
    (rows of `summarise_runs`); with a report `granularity` and `report`, the files written. Before
    anything is encoded, raises `WrongInput` if a file, method, share, root or the folder cannot be used.
    """
    sgdr = load(InductionSettings)
    methods = _methods(method, turned, sgdr, whole=report is not None)
    if report is not None:
        folder_at(report, "--report")
    reading = Reading()
    given = [one for _, one in latest(read_trajectories(paths, form, reading))]
    taught, said = _taught(warm, given)
    encoder = OnnxEncoder(exported_encoder(root.folder / "models", settings.encoder))
    rows: list[dict[str, Any]] = []
    encode, learned = KeptEncoder(encoder, root).encode, _turned(turned, seed, given)
    if sgdr.judge == LLM:
        learned = _judged(root, settings, given, learned)
    noted = partial(_noted, rows) if out is not None else None
    stream = Stream(encode, teaches=_cut(sgdr.granularity), learned=learned, suggested=noted)
    runs = _walked(stream, taught, given, methods)
    if out is not None:
        write_lines(out, rows)
    found: dict[str, Any] = {
        "trajectories": _told(reading, given), "warm": said, "steps": len(next(iter(runs.values()))),
        "sgdr": {"granularity": sgdr.granularity, "candidates": sgdr.candidates, "judge": sgdr.judge},
        "methods": summarise_runs(runs, next(iter(methods))),
    }  # fmt: skip
    if report is None:
        return found
    found["granularity"] = _granularity(stream, taught, given)
    draw = partial(draw_stream, [row for row in found["methods"] if row["method"] in METHODS])
    text = stream_markdown(found)
    return found | {"report": write_report(report, "stream", text, [run_table(runs)], draw, found)}


def _cut(granularity: str) -> Callable[[Trajectory], list[DecisionPoint]]:
    return partial(decision_points, granularity=granularity_of(granularity))


def _methods(
    names: Sequence[str] | None, turned: float, own: InductionSettings, *, whole: bool
) -> dict[str, Method]:
    wanted = list(names or (METHODS if whole else USUAL))
    if unknown := [name for name in wanted if name not in METHODS]:
        raise WrongInput(f"--method {unknown[0]} is not known: name one of {', '.join(METHODS)}")
    if not 0 <= turned < 1:
        raise WrongInput(f"--turned {turned} must be at least 0 and below 1")
    chosen = {name: METHODS[name] for name in dict.fromkeys(wanted)}
    papers = variants(own.candidates)
    return chosen | {name: method for name, method in papers.items() if whole or name in chosen}


def _judged(
    root: Root, settings: Settings, given: Sequence[Trajectory], learned: Callable[[Trajectory], bool]
) -> Callable[[Trajectory], bool]:
    """Return what tells whether a trajectory is learned from, by the verdict of the LLM (SGDR, 3.2)."""
    with opened_llm(root, settings, "such runs are not learned from") as llm:
        verdicts = LlmTrajectoryJudge(llm).verdicts(given)
    by_id = {one.trajectory_id: verdict for one, verdict in zip(given, verdicts, strict=True)}
    return lambda one: learned(replace(one, success=by_id[one.trajectory_id]))


def _turned(share: float, seed: int, given: Sequence[Trajectory]) -> Callable[[Trajectory], bool]:
    """Return what tells whether a trajectory is learned from, a share of the verdicts turned by chance."""
    if not share:
        return has_succeeded
    drawn_by_chance = np.random.default_rng(seed).random(len(given)) < share
    wrong = {one.trajectory_id for one, is_drawn in zip(given, drawn_by_chance, strict=True) if is_drawn}
    return lambda one: one.success is not None and one.success != (one.trajectory_id in wrong)


def _taught(
    root: str | None, given: Sequence[Trajectory]
) -> tuple[Sequence[Trajectory], dict[str, Any] | None]:
    """Return what a root teaches of the domains of a stream, without the stream's own trajectories.

    Beside it stands what is said of it: `root`, how many trajectories it `taught`, and how many of the stream
    are in it (`left_out`), which taught nothing before they are asked; None without a root.
    """
    if root is None:
        return (), None
    kept = KeptTrajectories(Root(root))
    known, own = kept.digests(), {one.trajectory_id for one in given}
    if not known:
        msg = f"--warm {root} holds no trajectories: name a root in which `skillery induce` has learned some"
        raise WrongInput(msg)
    taught = [
        one
        for domain in sorted({one.domain for one in given})
        for one in kept.of(domain)
        if has_succeeded(one) and one.trajectory_id not in own
    ]
    return taught, {"root": root, "taught": len(taught), "left_out": len(own & known.keys())}


def _noted(rows: list[dict[str, Any]], trajectory: Trajectory, step: Step, skills: Sequence[Body]) -> None:
    suggested = [{"skill_id": skill_id_of(trajectory.domain, body), "actions": told(body)} for body in skills]
    rows.append({"trajectory_id": trajectory.trajectory_id, "t": step.t, "suggested": suggested})


def _walked(
    stream: Stream, warm: Sequence[Trajectory], given: Sequence[Trajectory], methods: Mapping[str, Method]
) -> dict[str, list[Decision]]:
    stream.teach(warm)
    runs: dict[str, list[Decision]] = {name: [] for name in methods}
    with steps("walked", len(given)) as step:
        for name, decision in stream.walk(_counted(given, step), methods):
            runs[name].append(decision)
    if not any(runs.values()):
        msg = "no trajectory that succeeded has a step that speaks to nobody: there is nothing to measure"
        raise WrongInput(msg)
    return runs


def _counted(given: Sequence[Trajectory], step: Callable[[], None]) -> Iterator[Trajectory]:
    for trajectory in given:
        yield trajectory
        step()


def _granularity(
    stream: Stream, warm: Sequence[Trajectory], given: Sequence[Trajectory]
) -> list[dict[str, Any]]:
    rows, methods = [], {name: METHODS[name] for name in _GRANULAR}
    for granularity in GRANULARITIES:
        # A skill of one action is used by itself where there are no others.
        least = 1 if granularity == "action" else 2
        own = Stream(stream.encode, teaches=_cut(granularity), learned=stream.learned, least=least)
        for name, run in _walked(own, warm, given, methods).items():
            rows.append({"granularity": granularity, "method": name, **decision_means(run)})
    return rows


def _told(reading: Reading, given: Sequence[Trajectory]) -> dict[str, Any]:
    return {
        "read": reading.read, "successful": sum(map(has_succeeded, given)), "judged": reading.judged,
        "repeated": reading.repeated, "unread": dict(reading.reasons),
    }  # fmt: skip
