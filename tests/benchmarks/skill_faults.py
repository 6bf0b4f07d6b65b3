"""Faults put into skills by recurrence: how many each replay refuses, and how many sound skills pass.

    python -m tests.benchmarks.skill_faults TRAJECTORIES [--command CMD --cwd DIR] [--faults 200] [--tasks 2]

TRAJECTORIES holds a trajectory a line, gzipped or not. A skill is what the windows of at least so many tasks
have in common. Each fault is put into one skill at one of its sources, drawn with the seed 42. Whether it
changes an argument or a target is told by what the skill does with the call that its sound form gets; whether
it changes a result or the digest by what the environment then gives. CMD is asked about tools alone.
"""
# ruff: noqa: T201, S311 - what a benchmark says, it prints; seeded draws

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from tasks.induce.replay.command import CommandReplay
from tasks.induce.replay.environment import CommandEnvironment, LineProcess
from tasks.induce.replay.verify import RecordedReplay, Replay, ReplayVerdict, verify
from tasks.induce.replay.window import Call, SourceWindow, call_at, source_windows
from tasks.induce.skills.actions import Body
from tasks.induce.trajectories.record import Trajectory, trajectory_of
from tests.support.induce.faults import KINDS, done, outcome, with_fault

SEED = 42
Skills = dict[Body, list[SourceWindow]]
Changes = Callable[[Body, Body, Call, SourceWindow], bool]


def read(path: Path) -> Iterator[Trajectory]:
    """Yield the successful trajectories of a file."""
    held = path.read_bytes()
    for line in (gzip.decompress(held) if path.suffix == ".gz" else held).splitlines():
        trajectory = trajectory_of(json.loads(line))
        if trajectory.success:
            yield trajectory


def skills_of(path: Path, least: int) -> Skills:
    """Return the skills that windows of at least so many tasks share, with their sources."""
    found: dict[tuple[str, Body], list[SourceWindow]] = defaultdict(list)
    tasks: dict[tuple[str, Body], set[str]] = defaultdict(set)
    for trajectory in read(path):
        for _, body, window in source_windows(trajectory):
            found[trajectory.domain, body].append(window)
            tasks[trajectory.domain, body].add(trajectory.task_id)
    return {key[1]: own for key, own in found.items() if len(tasks[key]) >= least}


def is_of_tools(own: list[SourceWindow]) -> bool:
    """Tell whether a skill's sources are of a domain of tools."""
    return own[0].inside[0].outline is None


def changes_an_argument(faulty: Body, sound: Body, call: Call, window: SourceWindow) -> bool:
    """Tell whether a fault changes what is done, by the recording."""
    return done(faulty, call, window) != done(sound, call, window)


def measure(skills: Skills, faults: int, replay: Replay, changes: Changes) -> None:
    """Put faults in, verify each at its source, and print a line a kind."""
    rng, held = random.Random(SEED), list(skills.items())
    put, changed, refused, refused_alike = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    while put.total() < faults:
        kind, (body, own) = rng.choice(KINDS), rng.choice(held)
        window = rng.choice(own)
        call, faulty = call_at(body, window), with_fault(kind, body, window, rng)
        if faulty is None or not isinstance(call, dict):
            continue
        put[kind] += 1
        is_changed, dropped = (
            changes(faulty, body, call, window),
            verify(faulty, [window], replay).broken is not None,
        )
        changed[kind] += is_changed
        refused[kind] += is_changed and dropped
        refused_alike[kind] += dropped and not is_changed
        if is_changed and not dropped:
            print(f"  not refused: {kind} at {window.source}\n    {body}\n    {faulty}")
    for kind in (*KINDS, "all"):
        n, of, no, alike = (
            counts.total() if kind == "all" else counts[kind]
            for counts in (put, changed, refused, refused_alike)
        )
        print(f"  {kind:<14} put in {n:>3}, of which change {of:>3}: refused {no:>3}; "
              f"of the other {n - of:>3}: refused {alike:>3}")  # fmt: skip


def sound(skills: Skills, replay: Replay) -> None:
    """Verify the skills as they are, and print which share passes."""
    verdicts = {body: verify(body, own, replay) for body, own in skills.items()}
    passed = [verdict for verdict in verdicts.values() if verdict.broken is None]
    how = Counter("+".join(verdict.how) for verdict in passed)
    print(f"  sound skills: {len(passed)} of {len(verdicts)} pass "
          f"({len(passed) / max(1, len(verdicts)):.3f}), by {dict(how)}")  # fmt: skip
    for verdict in verdicts.values():
        _explain(verdict)


def _explain(verdict: ReplayVerdict) -> None:
    if verdict.broken is not None:
        print(f"    dropped at {verdict.where}, action {verdict.broken.place}: {verdict.broken.reason}")


def main() -> None:
    """Measure over recorded states, and in the environment of a command where one is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("trajectories", type=Path)
    parser.add_argument("--command")
    parser.add_argument("--cwd", type=Path, default=Path())
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--tasks", type=int, default=2, help="the fewest tasks of a skill")
    asked = parser.parse_args()
    skills = skills_of(asked.trajectories, asked.tasks)
    tools = {body: own for body, own in skills.items() if is_of_tools(own)}
    pages = {body: own for body, own in skills.items() if not is_of_tools(own)}
    for named, some in (("tools", tools), ("pages", pages)):
        print(f"recorded, {named}: {len(some)} skills, {sum(map(len, some.values()))} sources")
        sound(some, RecordedReplay())
    print("recorded, all: faults that change an argument or a target")
    measure(skills, asked.faults, RecordedReplay(), changes_an_argument)
    print("recorded, tools: faults that change an argument or a target")
    measure(tools, asked.faults, RecordedReplay(), changes_an_argument)
    if asked.command:
        with LineProcess(asked.command, asked.cwd) as process:
            in_command(tools, asked.faults, CommandEnvironment(process))


def in_command(tools: Skills, faults: int, environment: CommandEnvironment) -> None:
    """Measure in the environment of a command; sources that it does not take are left out of the faults."""
    replay = CommandReplay(environment)

    def changes_a_result(faulty: Body, body: Body, call: Call, window: SourceWindow) -> bool:
        return outcome(faulty, call, window, environment) != outcome(body, call, window, environment)

    print("command, tools")
    sound(tools, replay)
    taken = {body: [each for each in own if replay.takes(body, each)] for body, own in tools.items()}
    n, of = sum(map(len, taken.values())), sum(map(len, tools.values()))
    print(f"command, tools: takes {n} of {of} sources; faults that change a result or the digest")
    measure({body: own for body, own in taken.items() if own}, faults, replay, changes_a_result)


if __name__ == "__main__":
    main()
