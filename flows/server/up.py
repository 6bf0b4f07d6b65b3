"""Up: Prefect's server, the deployments of `prefect.yaml` and a worker, in the foreground of one command."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

import flows
from flows.server.child import end_child, start_child
from flows.server.temporary import await_health, prepare_home
from storage.errors import TransientError, WrongInput
from storage.root import Root

_POOL = "skillery"
_FILE = "prefect.yaml"


def serve_flows(root: Root, port: int, say: Callable[[str], object]) -> None:
    """Serve the flows for a root until this process is interrupted; `say` is told each step.

    Everything that was started ends with this process, however that ends.

    Args:
        root: The root that the deployments work on.
        port: The port of this machine (127.0.0.1) for Prefect's page and API.
        say: Prints a line for a person.

    Raises:
        WrongInput: The port is taken, another server is named in the environment, or `prefect.yaml` is gone.
        TransientError: A part did not start, or ended by itself; the message names the file with its words.
    """
    address = f"http://127.0.0.1:{port}"
    _require_free(port, f"{address}/api")
    project = _project()
    home = prepare_home(root)
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
        deployments = _deploy(root, project, home)
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


def _deploy(root: Root, project: Path, home: Path) -> list[dict[str, Any]]:
    """Register the deployments, which work on this root, and return them as `prefect.yaml` has them."""
    found: dict[str, Any] = yaml.safe_load((project / _FILE).read_text("utf-8"))
    for deployment in found["deployments"]:
        deployment["parameters"]["root"] = root.uri
    file = home / "deployments.yaml"
    file.write_text(yaml.safe_dump(found, sort_keys=False), "utf-8")
    log = home / "deploy.log"
    _prefect(["work-pool", "create", _POOL, "--type", "process"], project, log, unless="already exists")
    _prefect(["--no-prompt", "deploy", "--all", "--prefect-file", str(file)], project, log)
    return list(found["deployments"])


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
    for deployment in deployments:
        crons = [schedule["cron"] for schedule in deployment.get("schedules", ())]
        when = f"{', '.join(crons)} (cron, UTC)" if crons else "on request"
        lines.append(f"  {deployment['name']:<20} {when}")
    now = "Start one there, with its button Run, or in another terminal:"
    command = f"  PREFECT_API_URL={address}/api prefect deployment run nightly/nightly-reindex"
    return "\n".join([*lines, "", now, command, "Ctrl-C stops everything.", ""])


def _watch(server: subprocess.Popen[bytes], worker: subprocess.Popen[bytes], log: Path) -> None:
    while True:
        for name, process in (("server", server), ("worker", worker)):
            if process.poll() is not None:
                where = f": see {log}" if process is server else ""
                msg = f"Prefect's {name} ended by itself with code {process.returncode}{where}"
                raise TransientError(msg)
        time.sleep(0.5)
