"""Nights that are killed, and nights that publish under readers: nothing is lost, doubled or mixed."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from storage.root import Root
from tasks.retrieve.versions.doctor import examine
from tests.support.roots.faults import EDITIONS, Place, reading, require_mended, require_whole
from tests.support.roots.night_process import watch


def kills(place: Place, count: int, draw: random.Random) -> Iterator[str]:
    """Kill nights at random, before a random step or after a random time; yield the edition each was about.

    A night that ends before its kill makes way for the next edition.
    """
    editions = [EDITIONS[1], EDITIONS[0], "third", "fourth"]
    steps, seconds, done = steps_of(place), 2.0, 0
    while done < count:
        edition = editions[done % len(editions)]
        place.write(edition)
        by_step = done % 3 != 2
        step = [str(draw.randrange(steps))] if by_step else []
        with subprocess.Popen(place.command(*step), stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            if not by_step:
                time.sleep(draw.uniform(0, seconds))
                process.kill()
            code = process.wait()
        assert code in (0, -signal.SIGKILL), f"night {done} of {edition}, {step}: {code}"
        done += 1
        yield edition


def steps_of(place: Place) -> int:
    """Return how many steps a night has that publishes."""
    root = Root(shutil.copytree(place.root.folder, place.root.folder.with_name("counted"), symlinks=True))
    steps = 0

    def reached() -> None:
        nonlocal steps
        steps += 1

    watch(reached)
    try:
        place._replace(root=root).night()
    finally:
        sys.setprofile(None)
    shutil.rmtree(root.folder)
    return steps


@pytest.mark.slow
@pytest.mark.parametrize("count", [6, pytest.param(60, marks=pytest.mark.timeout(3600))])
def test_nights_killed_at_random_lose_nothing_and_double_nothing_while_a_reader_polls(
    place: Place, expected: dict[str, Any], count: int
) -> None:
    draw = random.Random(f"{count} kills")  # noqa: S311
    with reading(place.root) as given:
        for edition in kills(place, count, draw):
            if draw.random() < 0.5:  # the other half of the nights follow without a doctor
                findings = examine(place.root)
                assert all(found.mended for found in findings), (edition, findings)
        place.write(EDITIONS[1])
        require_mended(place, expected)
    require_whole(given)


@pytest.mark.parametrize(("readers", "nights"), [(2, 1), pytest.param(20, 3, marks=pytest.mark.slow)])
def test_readers_see_one_version_in_an_answer_while_nights_publish(
    place: Place, readers: int, nights: int
) -> None:
    with reading(place.root, readers) as given:
        for night in range(nights):
            place.write(["second", "third", "fourth"][night])
            assert place.night() is not None
        enough = len(given) + 2 * readers
        while len(given) < enough and threading.active_count() > 1:
            time.sleep(0.05)
    require_whole(given)
    assert len({version for version, _ in given}) == nights + 1
