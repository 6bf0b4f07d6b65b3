"""Nights that are interrupted, and nights that publish under readers: nothing is lost, doubled or mixed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from storage.root import Root
from storage.state import documents_table, nodes_table, parsed_table, read_runs
from tasks.retrieve.versions.doctor import examine
from tests.support.command import MAIN, skillery
from tests.support.compose import NAMESPACES
from tests.support.paths import PROJECT
from tests.support.processes import marked, marked_environment
from tests.support.roots.faults import Place, reading, require_whole
from tests.support.roots.hand_written import BREAD, SKILLS
from tests.support.roots.many_skills import many_skills
from tests.support.roots.skill_root import Export, SkillRoot
from tests.support.serving import Serving, ask_http, serving


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


_LINE = "skillery: interrupted; a later run picks up where this one was"


def night(root: Root, market: Path, words: Path) -> subprocess.Popen[bytes]:
    """Start a night in a process group of its own, as a terminal does."""
    environment = marked_environment(root.uri)
    command = [*MAIN, "run", "--root", root.uri, "--source", f"dir:{market}"]
    with words.open("wb") as stderr:
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=stderr, start_new_session=True
        )


def written(number: int, words: list[str], draw: random.Random) -> str:
    lines = "\n".join(f"- {' '.join(draw.choices(words, k=9))}." for _ in range(12))
    described = " ".join(draw.choices(words, k=8)).replace("'", "")
    return f"---\nname: skill-{number}\ndescription: '{described}'\n---\n# Skill {number}\n\n{lines}"


def interrupted(root: Root, market: Path, words: Path, after: float) -> float | None:
    """Start a night, press Ctrl-C after some seconds, and return how long it took; None: it was through."""
    running = night(root, market, words)
    time.sleep(after)
    asked = time.monotonic()
    os.killpg(running.pid, signal.SIGINT)
    if running.wait(30) == 0:
        assert read_runs(root)[0]["state"] == "complete"
        return None
    took = time.monotonic() - asked
    assert running.returncode == 130
    said = [line for line in words.read_text().splitlines() if line and "| INFO" not in line]
    assert said == [_LINE]
    assert [pid for pid in marked(root.uri) if not ends_by_itself(pid)] == []
    deadline = time.monotonic() + 10
    while marked(root.uri) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert marked(root.uri) == []
    return took


def ends_by_itself(pid: int) -> bool:
    """Tell what a closed pipe ends after the command: Prefect's server, Python's resource tracker."""
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return any(name in command for name in (b"flows.server.child", b"multiprocessing.resource_tracker"))
    return True  # it is over


@pytest.mark.slow
@pytest.mark.prefect
@pytest.mark.timeout(3600)
def test_twenty_interrupts_at_random_moments_of_nights_of_400_documents(
    tmp_path: Path, minilm_export: Export
) -> None:
    draw, market, words = random.Random(9), tmp_path / "market", tmp_path / "stderr"  # noqa: S311
    words_of = sorted({*" ".join(many_skills(60).values()).split()})
    for number in range(400):
        (market / f"skill-{number}").mkdir(parents=True)
        (market / f"skill-{number}/SKILL.md").write_text(written(number, words_of, draw))
    took: list[float] = []

    for place in range(5):  # each first night is interrupted four times, and then goes through
        root = Root(tmp_path / f"root-{place}")
        (root.folder / "models").mkdir(parents=True)
        (root.folder / "models" / minilm_export.folder.name).symlink_to(minilm_export.folder)
        while len(took) < 4 * (place + 1):
            seconds = interrupted(root, market, words, draw.uniform(0.5, 20))
            if seconds is None:
                root = Root(tmp_path / f"root-{place}-{len(took)}")
                continue
            took.append(seconds)
        assert night(root, market, words).wait(600) == 0
        assert read_runs(root)[0]["state"] == "complete"
        documents = documents_table(root).read()
        assert documents.height == documents["doc_id"].n_unique() == 400
        assert nodes_table(root).read().height == parsed_table(root).read()["n_nodes"].sum()
        assert examine(root) == []

    print(f"slowest of {len(took)} interrupts: {max(took):.1f} seconds")  # noqa: T201 (the figure asked for)
    assert max(took) <= 10


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


@pytest.mark.slow
@pytest.mark.prefect
@pytest.mark.timeout(900)
def test_the_commands_of_the_compose_file_make_a_night_on_postgresql_and_s3_and_answer(
    tmp_path: Path,
) -> None:
    needed = ("unshare", "setpriv", "ip", "initdb", "postgres", "psql")
    if missing := [name for name in needed if shutil.which(name) is None]:
        pytest.skip(f"{', '.join(missing)} not there (Debian: util-linux, iproute2, postgresql)")
    alone = ["unshare", *NAMESPACES]
    if os.getuid() or subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no network of its own: only root may make one, and not in every container")
    (tmp_path / "shelf/bread").mkdir(parents=True)
    (tmp_path / "shelf/bread/SKILL.md").write_text(BREAD, "utf-8")
    command = [*alone, sys.executable, "-m", "tests.support.compose", str(tmp_path)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    logs = {file.stem: file.read_text("utf-8")[-1500:] for file in tmp_path.glob("*.log")}
    assert done.returncode == 0, (done.stderr[-3000:], logs)
    found = json.loads(done.stdout)
    assert [one["name"] for one in found["found"]] == ["bread"]
    assert found["without token"] == 401
    (run,) = [one for one in found["status"]["runs"] if one["flow"] == "nightly"]
    assert (run["state"], found["status"]["served"]) == ("complete", f"v-{run['run_id']}")
    assert found["runs in PostgreSQL"] >= 1
    lines = [json.loads(line) for line in found["log"] if line.startswith("{")]
    assert run["run_id"] in {line["run"] for line in lines}
