"""Up: Prefect's server, the deployments of `prefect.yaml` and a worker, in the foreground of one command."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

import flows
from flows.server.child import end_child, start_child
from flows.server.temporary import await_health, prepare_home
from storage.errors import TransientError, WrongInput
from storage.root import Root

_POOL = "skillery"
_FILE, _TAG, _QUEUE = "prefect.yaml", "root:", "root-"


def serve_flows(roots: Sequence[Root], port: int, say: Callable[[str], object]) -> None:
    """Serve the flows for one or more roots until this process is interrupted; `say` is told each step.

    Everything that was started ends with this process, however that ends.

    Args:
        roots: The roots that the deployments work on; Prefect's home lies below the first.
        port: The port of this machine (127.0.0.1) for Prefect's page and API.
        say: Prints a line for a person.

    Raises:
        WrongInput: The port is taken, another server is named in the environment, `prefect.yaml` is gone, or
            a root is given twice.
        TransientError: A part did not start, or ended by itself; the message names the file with its words.
    """
    address = f"http://127.0.0.1:{port}"
    named = root_names(roots)
    _require_free(port, f"{address}/api")
    project = _project()
    home = prepare_home(roots[0])
    os.environ |= {
        "PREFECT_API_URL": f"{address}/api", "PREFECT_SERVER_API_HOST": "127.0.0.1",
        "PREFECT_SERVER_API_PORT": str(port),
    }  # fmt: skip
    if password := os.environ.get("PREFECT_SERVER_API_AUTH_STRING"):  # which the server asks all others for
        os.environ["PREFECT_API_AUTH_STRING"] = password
    say(f"starting Prefect's server on {address}; the first time takes half a minute")
    log = home / "server.log"
    server = start_child("prefect", ["server", "start"], {}, log)
    try:
        await_health(server, port, log)
        deployments = _deploy(named, project, home)
        _end_lost_runs()
        say(_welcome(address, deployments))
        worker = start_child("prefect", ["worker", "start", "--pool", _POOL, "--type", "process"], {})
        try:
            _watch(server, worker, log)
        finally:
            # The worker first, so that the server hears how the runs under way ended.
            end_child(worker, seconds=3)
    finally:
        end_child(server, seconds=2)


def _require_free(port: int, url: str) -> None:
    named = os.environ.get("PREFECT_API_URL")
    if named not in (None, "", url):
        raise WrongInput(
            f"PREFECT_API_URL names the server {named}, and `skillery up` starts one of its own: "
            "unset it, or use that server as flows/README.md says"
        )
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            msg = f"port {port} of this machine cannot be used ({error}): give another one with --port"
            raise WrongInput(msg) from error


def _project() -> Path:
    """Return the folder with `prefect.yaml`, from which Prefect loads the flows."""
    for folder in (Path.cwd(), Path(flows.__file__).parent.parent):
        if (folder / _FILE).is_file():
            return folder
    raise WrongInput(f"{Path.cwd()} holds no {_FILE}: run `skillery up` in the folder of Skillery's project")


def root_names(roots: Sequence[Root]) -> dict[str, str]:
    """Return the addresses of roots by names: the last part of each, and 6 digits where two have the same.

    Raises `WrongInput` if a root is given twice.
    """
    places = [root.folder.resolve() for root in roots]
    if twice := [root.uri for n, root in enumerate(roots) if places[n] in places[:n]]:
        raise WrongInput(f"--root {twice[0]} is given twice")
    last = {root.uri: re.sub(r"[^\w.-]+", "-", root.uri.rpartition("/")[2]).strip("-.") for root in roots}
    shared = {name for name, count in Counter(last.values()).items() if count > 1} | {""}
    marks = {uri: hashlib.sha256(uri.encode()).hexdigest()[:6] for uri in last}
    return {
        name if name not in shared else f"{name or 'root'}-{marks[uri]}": uri for uri, name in last.items()
    }


def deployments_of(
    roots: Mapping[str, str], deployments: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the deployments of `prefect.yaml` for each root, given by its name.

    Those of one root are as they stand there. Of several, each is named and tagged by its root and takes its
    parameters and its triggers from it; and what waits for another run of a root does so in the root's work
    queue, which starts one at a time in the order in which they were asked for.
    """
    found = [(name, uri, deepcopy(dict(one))) for name, uri in roots.items() for one in deployments]
    for name, uri, one in found:
        pool = one["work_pool"] = {"name": _POOL, **(one.get("work_pool") or {})}  # the one that is worked on
        one["parameters"] = {**(one.get("parameters") or {}), "root": uri}
        if len(roots) == 1:
            continue
        one["name"] = f"{one['name']}-{name}"
        one["tags"] = [*(one.get("tags") or ()), f"{_TAG}{name}"]
        for trigger in one.get("triggers") or ():
            _bind(trigger, name, uri)
        limit = one.get("concurrency_limit")
        if isinstance(limit, dict) and limit.get("collision_strategy") == "ENQUEUE":
            # Not the bare name: Prefect has a queue `default`, in which all else waits.
            pool["work_queue_name"] = f"{_QUEUE}{name}"
    return [one for _, _, one in found]


def _bind(trigger: dict[str, Any], name: str, uri: str) -> None:
    """Let a trigger on Skillery's events heed those of one root alone; events of others name no root."""
    if "name" in trigger:
        trigger["name"] = f"{trigger['name']}-{name}"
    match, expected = trigger.get("match") or {}, trigger.get("expect") or ()
    if any(str(said).startswith("skillery.") for said in (*expected, match.get("prefect.resource.id"))):
        trigger["match"] = {**match, "skillery.root": uri}
    for part in trigger.get("triggers") or ():
        _bind(part, name, uri)


def _deploy(roots: Mapping[str, str], project: Path, home: Path) -> list[dict[str, Any]]:
    """Register the deployments, which work on these roots, and return them."""
    found: dict[str, Any] = yaml.safe_load((project / _FILE).read_text("utf-8"))
    given = found["deployments"]
    found["deployments"] = made = deployments_of(roots, given)
    file = home / "deployments.yaml"
    file.write_text(yaml.safe_dump(found, sort_keys=False), "utf-8")
    log = home / "deploy.log"
    _prefect(["work-pool", "create", _POOL, "--type", "process"], project, log, unless="already exists")
    _prefect(["--no-prompt", "deploy", "--all", "--prefect-file", str(file)], project, log)
    _settle([one["name"] for one in given], made)
    return made


def _settle(given: Sequence[str], made: Sequence[Mapping[str, Any]]) -> None:
    """Let each root's work queue start one run at a time; remove what was registered for other roots before.

    A deployment that somebody else made stays, whatever it is called.
    """
    # As below.
    from prefect.client.orchestration import get_client  # noqa: PLC0415
    from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterTags  # noqa: PLC0415

    names = {one["name"] for one in made}
    tagged = DeploymentFilter(tags=DeploymentFilterTags(all_=["skillery"]))
    with get_client(sync_client=True) as client:
        pools = [one["work_pool"] for one in made]
        for pool, queue in {(pool["name"], pool.get("work_queue_name") or "") for pool in pools}:
            if not queue.startswith(_QUEUE):
                continue
            found = client.read_work_queue_by_name(queue, work_pool_name=pool)
            client.update_work_queue(found.id, concurrency_limit=1)
        held = client.read_deployments(deployment_filter=tagged)
        while page := client.read_deployments(deployment_filter=tagged, offset=len(held)):
            held += page
        for one in held:
            roots = [f"-{tag.removeprefix(_TAG)}" for tag in one.tags if tag.startswith(_TAG)] or [""]
            if one.name not in names and one.name in {f"{name}{roots[0]}" for name in given}:
                client.delete_deployment(one.id)


def _end_lost_runs() -> None:
    """Tell the server that runs of an earlier worker have ended; one that seems to run holds up the next."""
    # Prefect reads the server's address from the environment when it is imported.
    from prefect.client.orchestration import get_client  # noqa: PLC0415
    from prefect.client.schemas import filters  # noqa: PLC0415
    from prefect.client.schemas.objects import StateType  # noqa: PLC0415
    from prefect.states import Crashed  # noqa: PLC0415

    under_way = [StateType.RUNNING, StateType.PENDING, StateType.CANCELLING]
    state = filters.FlowRunFilterState(type=filters.FlowRunFilterStateType(any_=under_way))
    deployed = filters.FlowRunFilterDeploymentId(is_null_=False)
    lost = filters.FlowRunFilter(state=state, deployment_id=deployed)
    with get_client(sync_client=True) as client:
        while runs := client.read_flow_runs(flow_run_filter=lost):
            parents = filters.FlowRunFilterParentFlowRunId(any_=[run.id for run in runs])
            within = filters.FlowRunFilter(state=state, parent_flow_run_id=parents)
            for run in [*client.read_flow_runs(flow_run_filter=within), *runs]:
                client.set_flow_run_state(run.id, Crashed(message="its worker ended before it"), force=True)


def _prefect(arguments: list[str], project: Path, log: Path, *, unless: str = "") -> None:
    """Run a command of Prefect; its failure is none if it says `unless`."""
    command = [sys.executable, "-m", "prefect", *arguments]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    log.write_text(said, "utf-8")
    if done.returncode and not (unless and unless in said):
        raise TransientError(f"`prefect {' '.join(arguments[:2])}` failed: see {log}")


def _welcome(address: str, deployments: list[dict[str, Any]]) -> str:
    lines = [f"Skillery is up: {address}/deployments", ""]
    width = max(20, *(len(deployment["name"]) for deployment in deployments))
    for deployment in deployments:
        crons = [schedule["cron"] for schedule in deployment.get("schedules", ())]
        when = f"{', '.join(crons)} (cron, UTC)" if crons else "on request"
        lines.append(f"  {deployment['name']:<{width}} {when}")
    now = "Start one there, with its button Run, or in another terminal:"
    command = f"  PREFECT_API_URL={address}/api prefect deployment run nightly/{deployments[0]['name']}"
    return "\n".join([*lines, "", now, command, "Ctrl-C stops everything.", ""])


def _watch(server: subprocess.Popen[bytes], worker: subprocess.Popen[bytes], log: Path) -> None:
    while True:
        for name, process in (("server", server), ("worker", worker)):
            if process.poll() is not None:
                where = f": see {log}" if process is server else ""
                msg = f"Prefect's {name} ended by itself with code {process.returncode}{where}"
                raise TransientError(msg)
        time.sleep(0.5)
