"""The bench of skills offered along a stream of trajectories, for the command."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from flows.commands.console import drawn, folder_at, progress
from flows.settings import Settings
from storage.errors import WrongInput
from storage.jsonl import write_lines
from storage.root import Root
from tasks.evaluate.stream.decisions import MEASURES, Decision, mean
from tasks.evaluate.stream.report import draw_stream, stream_markdown
from tasks.evaluate.stream.summary import summarise
from tasks.evaluate.stream.variants import variants
from tasks.evaluate.stream.walk import Stream, has_succeeded
from tasks.induce.library.kept import KeptTrajectories
from tasks.induce.skills.actions import GRANULARITIES, Body, told
from tasks.induce.skills.naming import skill_id_of
from tasks.induce.trajectories.read import Format, Reading, latest, read_trajectories
from tasks.induce.trajectories.record import Step, Trajectory
from tasks.induce.windows.recurrence import moments
from tasks.models.cached_encoder import KeptEncoder
from tasks.models.encoder import OnnxEncoder
from tasks.models.onnx_export import exported_encoder
from tasks.retrieve.suggest.methods import METHODS, Method

USUAL = ("default",)
_GRANULAR = ("default", "sgdr")  # methods of table 4


@dataclass(frozen=True, slots=True)
class StreamWishes:
    """What to measure of a stream."""

    paths: Sequence[Path]
    methods: Sequence[str] | None = None  # names; None: `USUAL`, and in a report all
    form: Format = "trajectories"  # what a row of the files is
    turned: float = 0.0  # the share of verdicts that are turned before they are learned from
    seed: int = 42  # draws them
    out: Path | None = None  # what the first method offers at each step, a JSON line each
    warm: str | None = None  # a root whose kept trajectories are learned before the first question
    report: Path | None = None  # a folder for `stream.md`, `stream.json` and, with matplotlib, `stream.png`


@dataclass(frozen=True, slots=True)
class _Warm:
    """What is learned before the first question, and what is told of it.

    `told` is `{root, taught, left_out}`: of which root, how many trajectories it taught, and how many of the
    stream are in it, which taught nothing before they are asked.
    """

    taught: Sequence[Trajectory] = ()
    told: Mapping[str, Any] | None = None


def stream_bench(root: Root, settings: Settings, wishes: StreamWishes) -> dict[str, Any]:
    """Ask methods at each step of trajectories, each before its trajectory is learned from.

    Args:
        root: The root that keeps the encoder and vectors.
        settings: The encoder.
        wishes: What to measure.

    Returns:
        `trajectories` (read, successful, judged, repeated, unread by reason), `warm` (root, taught, left_out;
        null without one), `steps`, `methods` (rows of `summarise`); with a report `granularity` and `report`,
        the files written.

    Raises:
        WrongInput: A file, a method, a share, a root or the folder cannot be used; nothing was encoded.
    """
    methods = _methods(wishes)
    if wishes.report is not None:
        folder_at(wishes.report, "--report")
    reading = Reading()
    given = [one for _, one in latest(read_trajectories(wishes.paths, wishes.form, reading))]
    warm = _warm(wishes.warm, given)
    encoder = OnnxEncoder(
        exported_encoder(root.folder / "models", settings.encoder, settings.encoder_precision)
    )
    stream = Stream(KeptEncoder(encoder, root).encode, learned=_turned(wishes, given))
    rows: list[dict[str, Any]] = []
    if wishes.out is not None:
        stream = replace(stream, suggested=partial(_noted, rows))
    runs = _walked(stream, warm.taught, given, methods)
    if wishes.out is not None:
        write_lines(wishes.out, rows)
    found = {
        "trajectories": _told(reading, given), "warm": warm.told, "steps": len(next(iter(runs.values()))),
        "methods": summarise(runs, next(iter(methods))),
    }  # fmt: skip
    if wishes.report is None:
        return found
    found["granularity"] = _granularity(stream, warm.taught, given)
    return found | {"report": _written(found, wishes.report)}


def _methods(wishes: StreamWishes) -> dict[str, Method]:
    names = list(wishes.methods or (METHODS if wishes.report else USUAL))
    if unknown := [name for name in names if name not in METHODS]:
        msg = f"--method {unknown[0]} is not known: name one of {', '.join(METHODS)}"
        raise WrongInput(msg)
    if not 0 <= wishes.turned < 1:
        msg = f"--turned {wishes.turned} must be at least 0 and below 1"
        raise WrongInput(msg)
    own = {name: METHODS[name] for name in dict.fromkeys(names)}
    return own | (dict(variants()) if wishes.report else {})


def _turned(wishes: StreamWishes, given: Sequence[Trajectory]) -> Callable[[Trajectory], bool]:
    """Return what tells whether a trajectory is learned from, some verdicts turned by chance."""
    if not wishes.turned:
        return has_succeeded
    drawn_by_chance = np.random.default_rng(wishes.seed).random(len(given)) < wishes.turned
    wrong = {one.trajectory_id for one, is_drawn in zip(given, drawn_by_chance, strict=True) if is_drawn}
    return lambda one: one.success is not None and one.success != (one.trajectory_id in wrong)


def _warm(root: str | None, given: Sequence[Trajectory]) -> _Warm:
    """Return what a root teaches of the domains of a stream, without the stream's own trajectories."""
    if root is None:
        return _Warm()
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
    return _Warm(taught, {"root": root, "taught": len(taught), "left_out": len(own & known.keys())})


def _noted(rows: list[dict[str, Any]], trajectory: Trajectory, step: Step, skills: Sequence[Body]) -> None:
    suggested = [{"skill_id": skill_id_of(trajectory.domain, body), "actions": told(body)} for body in skills]
    rows.append({"trajectory_id": trajectory.trajectory_id, "t": step.t, "suggested": suggested})


def _walked(
    stream: Stream, warm: Sequence[Trajectory], given: Sequence[Trajectory], methods: Mapping[str, Method]
) -> dict[str, list[Decision]]:
    stream.teach(warm)
    runs: defaultdict[str, list[Decision]] = defaultdict(list, {name: [] for name in methods})
    with progress("walked") as report:
        for name, decision in stream.walk(_counted(given, report), methods):
            runs[name].append(decision)
    if not any(runs.values()):
        msg = "no trajectory that succeeded has a step that speaks to nobody: there is nothing to measure"
        raise WrongInput(msg)
    return dict(runs)


def _counted(given: Sequence[Trajectory], report: Callable[[int, int], None]) -> Iterator[Trajectory]:
    for number, trajectory in enumerate(given, 1):
        yield trajectory
        report(number, len(given))


def _granularity(
    stream: Stream, warm: Sequence[Trajectory], given: Sequence[Trajectory]
) -> list[dict[str, Any]]:
    rows, methods = [], {name: METHODS[name] for name in _GRANULAR}
    for granularity in GRANULARITIES:
        own = Stream(stream.encode, teaches=partial(moments, granularity=granularity), learned=stream.learned)
        for name, run in _walked(own, warm, given, methods).items():
            measures = {measure: mean(run, measure) for measure in MEASURES}
            rows.append({"granularity": granularity, "method": name, **measures})
    return rows


def _told(reading: Reading, given: Sequence[Trajectory]) -> dict[str, Any]:
    return {
        "read": reading.read, "successful": sum(map(has_succeeded, given)), "judged": reading.judged,
        "repeated": reading.repeated, "unread": dict(reading.reasons),
    }  # fmt: skip


def _written(found: Mapping[str, Any], folder: Path) -> list[str]:
    (folder / "stream.md").write_text(stream_markdown(found), "utf-8")
    (folder / "stream.json").write_text(json.dumps(found, indent=1, ensure_ascii=False), "utf-8")
    named = [row for row in found["methods"] if row["method"] in METHODS]
    pictures = drawn(lambda path: draw_stream(named, path), folder / "stream.png")
    return [str(file) for file in (folder / "stream.md", folder / "stream.json", *pictures)]
