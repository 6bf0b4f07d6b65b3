"""Skills of recordings in a real browser: how many leave the same state, and how many faults are refused.

    python -m tests.benchmarks.browser_faults [--recordings 30] [--skills 2] [--faults 60]

The workshop's tasks are recorded in a Chromium. Of each recording so many skills are drawn and replayed in
their windows, with the seed 42; then faults are put in. Whether one changes the state is told by doing the
same with Playwright's own locators, and by the application's records without what they hold of times.
"""
# ruff: noqa: T201, S311 - what a benchmark says, it prints; seeded draws

from __future__ import annotations

import argparse
import random
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

from tasks.induce.replay.chromium import launched
from tasks.induce.replay.verify import Replay, opened, verify
from tasks.induce.replay.window import Call, SourceWindow, call_at
from tasks.induce.skills.actions import Body
from tests.benchmarks.skill_faults import SEED, measure
from tests.support.induce.recordings import windows_of
from tests.support.induce.workshop.application import workshop
from tests.support.induce.workshop.tasks import Left, left, recorded, tasks


def main() -> None:
    """Record, replay and put faults in."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--recordings", type=int, default=30)
    parser.add_argument("--skills", type=int, default=2, help="skills drawn of a recording")
    parser.add_argument("--faults", type=int, default=60)
    asked = parser.parse_args()
    rng = random.Random(SEED)
    with (
        workshop() as shop,
        launched("127.0.0.1") as browser,
        opened(f"command:{sys.executable} -m tasks.induce.replay.chromium {shop.url}", Path()) as replay,
    ):
        skills: dict[Body, list[SourceWindow]] = defaultdict(list)
        facts, same, agreed, n = {}, 0, 0, 0
        for task in rng.sample(tasks(), asked.recordings):
            recording = recorded(browser, shop, task)
            facts[recording.trajectory_id] = shop.records.facts()
            found = windows_of(recording)
            drawn = rng.sample(found, min(asked.skills, len(found)))
            for body, window in drawn:
                skills[body].append(window)
            passed = [_passes(body, window, replay) for body, window in drawn]
            same, n = same + all(passed), n + len(passed)
        print(f"{same} of {asked.recordings} recordings end in the same state with each of their {n} skills")

        @cache
        def sound(body: Body, number: int) -> Left:
            window = skills[body][number]
            call = call_at(body, window)
            return left(browser, shop, body, call, window) if isinstance(call, dict) else None

        def changes_the_state(faulty: Body, body: Body, call: Call, window: SourceWindow) -> bool:
            return left(browser, shop, faulty, call, window) != sound(body, skills[body].index(window))

        for body, windows in skills.items():
            agreed += sum(sound(body, k) == facts[own.trajectory_id] for k, own in enumerate(windows))
        print(f"by Playwright's locators {agreed} of {n} skills leave what the recording left")
        measure(skills, asked.faults, replay, changes_the_state)


def _passes(body: Body, window: SourceWindow, replay: Replay) -> bool:
    verdict = verify(body, [window], replay)
    if verdict.how != (replay.name,):
        print(f"  not the same: {window.source}, {verdict.how} {verdict.broken}")
    return verdict.how == (replay.name,)


if __name__ == "__main__":
    main()
