"""Suggested skills: fits the weights of the default, `python -m tasks.train.suggested ENCODER RUNS...`.

ENCODER is the folder of the exported default encoder, RUNS are files of trajectories, walked as a stream.
Standard output tells `WEIGHTS` of `tasks.retrieve.suggest.methods`, and for each domain how well those that
were fitted to the other domains do there. Nothing is drawn; five minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from storage.root import Root
from tasks.evaluate.stream.report import decision_means
from tasks.evaluate.stream.walk import Stream
from tasks.induce.skills.windows import misfit
from tasks.induce.trajectories.cleaning import CleanStep, cleaned
from tasks.induce.trajectories.read import Reading, latest, read_trajectories
from tasks.induce.trajectories.record import Trajectory
from tasks.models.cached_encoder import KeptEncoder
from tasks.models.encoder import OnnxEncoder
from tasks.retrieve.suggest.methods import Encode, Offered, SkillQuestion, default, shows_all, use_features
from tasks.train.logistic import Choice, fit_choice

_PENALTY = 1e-3


def use_choices(runs: Iterable[Trajectory], encode: Encode) -> dict[str, list[Choice]]:
    """Return by domain the uses that could speak at each step, and which are of skills usable there."""
    stream, found = Stream(encode), defaultdict[str, list[Choice]](list)
    for run in runs:
        if not run.success:
            continue
        kept, _ = cleaned(run)
        places = {step.place: number for number, step in enumerate(kept) if not step.action.speaks}
        own = stream.offered[run.domain]
        for place, asked in stream.questions(run, kept, sorted(places)) if own.skills and places else ():
            choice = _choice(own, asked, run, kept, places[place])
            if choice.right.any():
                found[run.domain].append(choice)
        stream.teach([run])
    return found


def _choice(
    own: Offered, asked: SkillQuestion, run: Trajectory, kept: Sequence[CleanStep], number: int
) -> Choice:
    usable = np.array([misfit(body, run.task, kept, number) is None for body in own.skills])
    shown = np.array([shows_all(body, asked.page) for body in own.skills])
    uses = own.uses()
    others = (uses.task != own.number_of_task(asked.task_id)) & shown[uses.skill]
    return Choice(use_features(own, asked)[others], usable[uses.skill][others])


def fit(given: Sequence[Choice]) -> list[float]:
    """Return the weights under which the uses of usable skills are likeliest."""
    return [round(float(weight), 2) for weight in fit_choice(given, _PENALTY)]


def main() -> None:
    """Print the weights, and each domain's figures under those of the others."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("encoder", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    given = parser.parse_args()
    runs = [run for _, run in latest(read_trajectories(given.runs, "trajectories", Reading()))]
    with tempfile.TemporaryDirectory() as folder:
        encode = KeptEncoder(OnnxEncoder(given.encoder), Root(folder)).encode
        choices = use_choices(runs, encode)
        told: dict[str, object] = {"weights": fit([one for own in choices.values() for one in own])}
        decisions = []
        for domain in sorted(choices):
            weights = fit([one for other, own in choices.items() if other != domain for one in own])
            method, there = partial(default, weights=weights), [run for run in runs if run.domain == domain]
            walked = [decision for _, decision in Stream(encode).walk(there, {"": method})]
            told[domain] = {"weights": weights, **decision_means(walked)}
            decisions += walked
    sys.stdout.write(json.dumps(told | {"all": decision_means(decisions)}, indent=1) + "\n")


if __name__ == "__main__":
    main()
