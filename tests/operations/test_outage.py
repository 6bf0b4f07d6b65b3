"""A bucket that fails in the middle of a night: what is served answers, and that night or the next ends."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from storage.root import Root
from storage.state import read_runs
from tasks.retrieve.versions.doctor import examine
from tests.support.command import MAIN, skillery
from tests.support.processes import marked_environment
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import Export, SkillRoot
from tests.support.serving import Serving, ask_http, serving

_PAGE = "/api/page?doc_id=local/market/bread&q=how+long+does+the+dough+rise"


@contextmanager
def asking(server: Serving) -> Iterator[list[tuple[int, float]]]:
    """Search and page all the while; yield the status and the seconds of each answer."""
    given, ended = list[tuple[int, float]](), threading.Event()

    def ask() -> None:
        while not ended.wait(0.5):
            for target in ("/api/search?q=keep+bees", _PAGE, "/healthz"):
                began = time.monotonic()
                status = ask_http(server, target).status
                given.append((status, time.monotonic() - began))

    asker = threading.Thread(target=ask)
    asker.start()
    try:
        yield given
    finally:
        ended.set()
        asker.join()


@pytest.mark.slow
@pytest.mark.prefect
@pytest.mark.timeout(1800)
def test_a_night_outlives_fifty_seconds_and_after_five_minutes_it_says_why_and_the_next_one_ends(
    bucket: str, s3_log: Path, outage: Callable[[float], None], tmp_path: Path, minilm_export: Export
) -> None:
    market = SkillRoot(tmp_path / "market", bucket, minilm_export.folder)
    command = ["run", "--root", bucket, "--source", f"dir:{tmp_path / 'market'}"]

    def night(edition: str, step: str, seconds: float) -> tuple[int, str, float]:
        """Change a skill and run; once it has written such a file, let the bucket fail for some seconds."""
        for name, text in SKILLS.items():
            market.write(name, f"{text}\n- This is the {edition} edition.\n")
        seen = s3_log.stat().st_size
        pipe, environment = subprocess.PIPE, marked_environment(edition)
        with subprocess.Popen(
            [*MAIN, *command], env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True
        ) as running:
            said = list[str]()
            reader = threading.Thread(target=said.extend, args=(running.stdout,))
            reader.start()
            word = f'"PUT /{bucket.removeprefix("s3://")}/{step}'.encode()
            while word not in s3_log.read_bytes()[seen:] and running.poll() is None:
                time.sleep(0.2)
            assert running.poll() is None
            began = time.monotonic()
            outage(seconds)
            code, took = running.wait(), time.monotonic() - began
            reader.join()
            return code, "".join(said), took

    for name, text in SKILLS.items():
        market.write(name, text)
    first = skillery(*command)
    assert first.returncode == 0, first.stderr
    with serving(bucket) as server:
        assert ask_http(server, _PAGE).status == 200
        with asking(server) as given:
            code, said, took = night("second", "documents/", 50)
            assert code == 0, said
            assert took > 50
            code, said, took = night("third", "nodes/", 300)
            failed = [line for line in said.splitlines() if line.startswith(("failed: ", "skillery: "))]
            assert (code, len(failed)) == (1, 1), said
            assert "503" in failed[0]
            assert "still served" not in said  # nobody could tell
            time.sleep(max(0, 305 - took))  # until the bucket answers again
            again = skillery(*command, "--json")
            assert again.returncode == 0, again.stderr
    print(f"third: {took:.0f} s, {failed}; answers {len(given)}, slowest {max(t for _, t in given):.1f} s")  # noqa: T201
    assert {status for status, _ in given} == {200}
    assert json.loads(again.stdout)["published"]
    assert [run["state"] for run in read_runs(Root(bucket))][:1] == ["complete"]
    assert examine(Root(bucket)) == []
