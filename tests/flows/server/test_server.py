"""A run needs no server; where a cluster's workers do, it is this command's alone, and gone with it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml

from flows.server import up as deployments
from storage.errors import WrongInput
from storage.locks import writer_lock
from storage.root import Root
from storage.state import read_runs
from tests.support.command import MAIN, Ask
from tests.support.paths import PROJECT
from tests.support.prefect_page import answer_of
from tests.support.roots.hand_written import BREAD

_HOLD = """
import sys, time
from flows.commands.runs import prefect_for
from storage.root import Root
with prefect_for(Root(sys.argv[1])):
    from prefect.settings import PREFECT_API_URL
    print(PREFECT_API_URL.value(), flush=True)
    time.sleep(float(sys.argv[2]))
"""


def holding(root: Path, seconds: float) -> subprocess.Popen[str]:
    """Start a process that holds a server, as a cluster's workers need one, for so many seconds."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment["SKILLERY_TASK_RUNNER"] = "dask"
    command = [sys.executable, "-c", _HOLD, str(root), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def within(seconds: float, is_true: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while not is_true() and time.monotonic() < until:
        time.sleep(0.05)
    return is_true()


def runs(pid: int) -> bool:
    """Tell whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_it_takes_this_commands_requests_alone_and_dies_when_the_command_is_killed(
    tmp_path: Path, prepare_home: Callable[[Path], None]
) -> None:
    prepare_home(tmp_path)
    with holding(tmp_path, 600) as command:
        assert command.stdout is not None
        url = command.stdout.readline().strip()
        server = json.loads((tmp_path / "prefect/server.json").read_text())["pid"]
        with pytest.raises(HTTPError, match="401"):
            urlopen(f"{url}/admin/version")  # noqa: S310 (an address of this machine)
        assert os.getsid(server) != os.getsid(command.pid)
        command.kill()
    assert within(10, lambda: not runs(server))


@pytest.mark.slow
def test_one_that_was_left_behind_is_ended_by_the_next_command(
    tmp_path: Path, prepare_home: Callable[[Path], None]
) -> None:
    prepare_home(tmp_path)
    stuck = [sys.executable, "-c", "import time; time.sleep(600)", "flows.server.temporary"]
    with subprocess.Popen(stuck) as left, subprocess.Popen(["true"]) as gone:
        gone.wait()
        record = tmp_path / "prefect/server.json"
        record.write_text(json.dumps({"pid": left.pid, "command": gone.pid}))
        with holding(tmp_path, 0) as command:
            assert command.wait(120) == 0
        assert left.wait(10) == -signal.SIGTERM
    assert not record.exists()


_PASSWORD = "somebody:open-sesame"  # noqa: S105 (of servers of these tests alone)


class Up:
    """The command under way, in a process of its own."""

    def __init__(self, root: str, port: int) -> None:
        self.api, self.lines = f"http://127.0.0.1:{port}/api", list[str]()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        environment["PREFECT_SERVER_API_AUTH_STRING"] = _PASSWORD
        self.process = subprocess.Popen(
            [*MAIN, "up", "--root", root, "--port", str(port)], cwd=PROJECT, env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if "Ctrl-C stops" in line:
                return
        raise AssertionError(self.lines)

    def ask(self, path: str, **given: object) -> dict[str, Any]:
        data = json.dumps(given).encode() if given else None
        known = f"Basic {b64encode(_PASSWORD.encode()).decode()}"
        headers = {"Content-Type": "application/json", "Authorization": known}
        request = Request(f"{self.api}/{path}", data, headers)  # noqa: S310
        with urlopen(request, timeout=30) as answer:  # noqa: S310 (an address of this machine)
            found: dict[str, Any] = json.load(answer)
            return found

    def stop(self, signal_number: int) -> int:
        self.process.send_signal(signal_number)
        self.process.communicate(timeout=30)
        return self.process.returncode


@pytest.fixture
def up(root: str) -> Iterator[Callable[[], Up]]:
    started: list[Up] = []
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])

    def start() -> Up:
        started.append(Up(root, port))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.stop(signal.SIGKILL)


def children(process: subprocess.Popen[str]) -> list[int]:
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in listed]


def gone(pids: list[int]) -> bool:
    return within(10, lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def await_state(up: Up, run: str, state: str, seconds: float = 90) -> None:
    assert within(seconds, lambda: up.ask(f"flow_runs/{run}")["state_type"] == state), state


@pytest.mark.slow
@pytest.mark.prefect
@pytest.mark.timeout(900)
def test_a_night_is_started_stopped_half_way_and_run_again_by_the_next_up(
    up: Callable[[], Up], root: str
) -> None:
    first = up()
    night = first.ask("deployments/name/nightly/nightly-reindex")
    assert night["parameters"]["root"] == root
    run = first.ask(f"deployments/{night['id']}/create_flow_run", state={"type": "SCHEDULED"})["id"]
    await_state(first, run, "RUNNING")
    started = children(first.process)
    assert len(started) == 2
    began = time.monotonic()
    assert first.stop(signal.SIGINT) == 0
    assert time.monotonic() - began < 10
    assert gone(started)
    second = up()
    assert second.ask(f"flow_runs/{run}")["state_type"] == "CRASHED"
    unwanted = second.ask(f"deployments/{night['id']}/create_flow_run", state={"type": "SCHEDULED"})["id"]
    await_state(second, unwanted, "RUNNING")
    while not second.ask("flow_runs/filter", flow_runs={"parent_flow_run_id": {"any_": [unwanted]}}):
        time.sleep(0.2)
    second.ask(f"flow_runs/{unwanted}/set_state", state={"type": "CANCELLING"})
    await_state(second, unwanted, "CANCELLED")
    assert read_runs(Root(root))[0]["message"].startswith("cancelled: ")
    again = second.ask(f"deployments/{night['id']}/create_flow_run", state={"type": "SCHEDULED"})["id"]
    await_state(second, again, "COMPLETED", seconds=400)
    started = children(second.process)
    second.stop(signal.SIGKILL)
    assert gone(started)


def test_a_port_that_is_taken_is_named_before_anything_starts(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        told = ask.refused("up", "--root", str(tmp_path / "root"), "--port", str(port))
    assert f"port {port} of this machine cannot be used" in told
    assert "--port" in told
    assert not (tmp_path / "root").exists()


def test_another_server_in_the_environment_is_not_passed_over(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect.example/api")
    assert "PREFECT_API_URL names the server http://prefect.example/api" in ask.refused(
        "up", "--root", str(tmp_path / "root")
    )


_GIVEN: list[dict[str, Any]] = yaml.safe_load((PROJECT / "prefect.yaml").read_text("utf-8"))["deployments"]


def test_one_root_has_the_deployments_as_they_stand_in_the_file() -> None:
    wanted = [{**one, "parameters": {**one["parameters"], "root": "/srv/skills"}} for one in _GIVEN]
    assert deployments.deployments_of({"skills": "/srv/skills"}, _GIVEN) == wanted


def test_each_of_several_roots_has_names_tags_a_queue_and_a_trigger_of_its_own() -> None:
    roots = {"own": "/srv/own", "team": "s3://bucket/team"}
    made = {one["name"]: one for one in deployments.deployments_of(roots, _GIVEN)}
    assert list(made) == [f"{one['name']}-{name}" for name in roots for one in _GIVEN]
    for one in _GIVEN:
        for name, uri in roots.items():
            of_root = made[f"{one['name']}-{name}"]
            assert (of_root["parameters"]["root"], of_root["tags"]) == (uri, [*one["tags"], f"root:{name}"])
            in_order = one["concurrency_limit"]["collision_strategy"] == "ENQUEUE"
            assert of_root["work_pool"].get("work_queue_name") == (f"root-{name}" if in_order else None)
            kept = ("entrypoint", "description", "schedules", "concurrency_limit")
            assert [of_root[key] for key in kept] == [one[key] for key in kept]
    (trigger,) = made["nightly-evaluation-team"]["triggers"]
    assert trigger["match"] == {"prefect.resource.id": "skillery.index", "skillery.root": "s3://bucket/team"}
    assert trigger["name"] != made["nightly-evaluation-own"]["triggers"][0]["name"]


def test_a_deployment_of_one_s_own_need_not_say_what_prefect_takes_as_said() -> None:
    heeding = {"type": "event", "expect": ["skillery.published"]}
    within = {"type": "compound", "triggers": [heeding, {"match": {"prefect.resource.id": "other"}}]}
    given = {"name": "own", "entrypoint": "own.py:own", "concurrency_limit": 2, "triggers": [heeding, within]}
    for roots in ({"a": "/srv/a"}, {"a": "/srv/a", "b": "/srv/b"}):
        made = deployments.deployments_of(roots, [{"name": "bare", "parameters": None}, given])
        assert [one["parameters"] for one in made[::2]] == [{"root": uri} for uri in roots.values()]
        assert {str(one["work_pool"]) for one in made} == {"{'name': 'skillery'}"}
    first, second = made[1]["triggers"]
    assert (made[1]["tags"], first) == (["root:a"], {**heeding, "match": {"skillery.root": "/srv/a"}})
    assert second["triggers"] == [first, within["triggers"][1]]


def test_a_publication_says_of_which_root_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from flows import index

    told: list[dict[str, Any]] = []
    monkeypatch.setattr(index, "on_page", lambda: True)
    monkeypatch.setattr(index, "emit_event", lambda **event: told.append(event))
    index.announce("/srv/own", "v-1")
    assert told[0]["resource"]["skillery.root"] == told[0]["payload"]["root"] == "/srv/own"


def test_roots_are_named_by_their_last_part_and_told_apart_where_that_is_the_same() -> None:
    roots = [Root("/srv/a/skills"), Root("/srv/b/skills"), Root("/srv/our skills")]
    names = deployments.root_names(roots)
    assert list(names.values()) == [root.uri for root in roots]
    first, second, third = names
    assert first.startswith("skills-")
    assert second.startswith("skills-")
    assert (len(names), third) == (3, "our-skills")
    assert list(deployments.root_names(roots[:1])) == ["skills"]
    with pytest.raises(WrongInput, match=r"/srv/a/\.\./a/skills is given twice"):
        deployments.root_names([roots[0], Root("/srv/a/../a/skills")])


@pytest.fixture
def two_roots(tmp_path: Path, root: str) -> list[Root]:
    """Return two roots that have their encoder; beside them lies a folder with one skill."""
    skill = tmp_path / "market/bread/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(BREAD)
    found = [Root(tmp_path / name) for name in ("own", "team")]
    for one in found:
        one.folder.mkdir()
        (one.folder / "models").symlink_to(Path(root) / "models")
    return found


@pytest.mark.slow
@pytest.mark.prefect
@pytest.mark.timeout(900)
def test_a_night_of_one_root_ends_while_that_of_the_other_is_held_up_and_runs_of_one_go_in_order(
    two_roots: list[Root], prefect_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", prefect_server)
    monkeypatch.setattr(deployments, "_POOL", "two-roots")
    project = tmp_path / "project"
    project.mkdir()
    for name in ("flows", "tasks", "storage"):
        (project / name).symlink_to(PROJECT / name)
    nightly = {**_GIVEN[0], "work_pool": {"name": "two-roots"}, "schedules": []}
    nightly["parameters"] = {**nightly["parameters"], "sources": [f"dir:{tmp_path}/market"]}
    (project / "prefect.yaml").write_text(json.dumps({"name": "skillery", "deployments": [nightly]}))
    own, team = deployments._deploy(deployments.root_names(two_roots), project, tmp_path)

    def start(name: str) -> str:
        made = answer_of(prefect_server, f"deployments/name/nightly/{name}")
        place, at_once = f"deployments/{made['id']}/create_flow_run", {"state": {"type": "SCHEDULED"}}
        return str(answer_of(prefect_server, place, at_once)["id"])

    def state(run: str, *wanted: str) -> str:
        until = time.monotonic() + 300
        while (found := str(answer_of(prefect_server, f"flow_runs/{run}")["state_type"])) not in wanted:
            assert time.monotonic() < until, (found, wanted)
            time.sleep(0.5)
        return found

    worker = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "two-roots", "--type", "process"]
    with writer_lock(two_roots[0]):
        held, waiting, other = start(own["name"]), start(own["name"]), start(team["name"])
        process = subprocess.Popen(worker, cwd=project)
        state(held, "RUNNING")
        assert state(other, "COMPLETED", "FAILED", "CRASHED") == "COMPLETED"
        assert state(held, "RUNNING") == "RUNNING"
        assert state(waiting, "SCHEDULED") == "SCHEDULED"
    assert state(waiting, "COMPLETED", "FAILED", "CRASHED") == "COMPLETED"
    process.terminate()
    process.wait(60)
    runs = [answer_of(prefect_server, f"flow_runs/{run}") for run in (held, waiting)]
    assert runs[0]["state_type"] == "COMPLETED"
    assert runs[0]["end_time"] <= runs[1]["start_time"]
    assert [[run["state"] for run in read_runs(one)] for one in two_roots] == [["complete"] * 2, ["complete"]]
    assert len(deployments._deploy({"own": two_roots[0].uri}, project, tmp_path)) == 1
    nightlies = {"deployments": {"tags": {"all_": ["nightly"]}}}
    left = answer_of(prefect_server, "deployments/filter", nightlies)
    assert [one["name"] for one in left] == ["nightly-reindex"]
