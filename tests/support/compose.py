"""The compose file's services as processes, for a program that has network, mounts and processes of its own.

`python -m tests.support.compose FOLDER` starts them as their images would, asks for a night of the skills in
`FOLDER/shelf` as the recipe's page does, and prints what came of it as JSON. Foreign images have stand-ins:
PostgreSQL is Debian's, and moto is the store.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import yaml

from tests.support.paths import PROJECT

NAMESPACES = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
SECRETS = {
    "POSTGRES_PASSWORD": "of-postgres",
    "STORE_PASSWORD": "of-the-store",
    "SERVE_TOKEN": "of-serve-and-long",
}
_DATABASE, _PATIENCE = Path("/var/lib/postgresql"), 240.0
_POSTGRES = """
printf %s "$POSTGRES_PASSWORD" > password
initdb --pgdata data --username "$POSTGRES_USER" --pwfile password --auth-host scram-sha-256 > /dev/null
echo "create database $POSTGRES_DB" | postgres --single -D data postgres > /dev/null
exec postgres -D data -k "$PWD" -c listen_addresses='*'
"""
_STORE = [sys.executable, "-m", "moto.server", "-H", "0.0.0.0", "-p", "9000"]  # noqa: S104 (a network of its own)


class Stack:
    """The services, by name; what they and their children say goes to `FOLDER/NAME.log`."""

    def __init__(self, folder: Path) -> None:
        self.folder, recipe = folder, PROJECT / ".deploy"
        text = (recipe / "compose.yaml").read_text("utf-8")
        for name, value in SECRETS.items():
            text = text.replace(f"${{{name}:?}}", value)
        self.services: dict[str, dict[str, Any]] = yaml.safe_load(text.replace("$$", "$"))["services"]
        self.images = (recipe / "Containerfile").read_text("utf-8")

    def environment(self, name: str) -> dict[str, str]:
        """Return the variables of a service; its volumes lie below the folder."""
        given = {key: self._moved(value) for key, value in self.services[name]["environment"].items()}
        cache = {"XDG_CACHE_HOME": str(self.folder / "cache"), "HOME": str(self.folder / "home")}
        return {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **cache, **given}

    def command(self, name: str) -> list[str]:
        """Return the words by which a service's image starts."""
        service = self.services[name]
        stage = self.images.partition(f" AS {service['image'].removeprefix('skillery-')}\n")[2]
        stage = stage.partition("\nFROM ")[0]
        (entry,) = re.findall(r"^ENTRYPOINT (.*)$", stage, re.MULTILINE)
        return [*json.loads(entry), *map(self._moved, service["command"])]

    def start(self, name: str, command: list[str], *before: str, folder: Path = PROJECT) -> None:
        """Start a service, and wait until it says that it is well, where it can."""
        with (self.folder / f"{name}.log").open("ab") as log:
            subprocess.Popen(
                [*before, *command], env=self.environment(name), cwd=folder, stdout=log, stderr=log
            )
        if check := self.services[name].get("healthcheck"):
            more = {**self.environment(name), "PGHOST": str(_DATABASE)}
            asked: dict[str, Any] = {"env": more, "capture_output": True}
            await_true(lambda: not subprocess.run(check["test"][1:], check=False, **asked).returncode)

    def run(self, name: str, *command: str) -> str:
        """Run a command in the place of a service, to its end; return what it prints."""
        done = subprocess.run(
            command, env=self.environment(name), cwd=PROJECT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    def _moved(self, text: str) -> str:
        return re.sub(r"(?<![\w/])/(data|tmp)/", rf"{self.folder}/\1/", text)


def await_true(condition: Callable[[], object]) -> None:
    until = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < until, "it is still not so"
        time.sleep(0.5)


def answer(path: str, token: str | None) -> tuple[int, Any]:
    """Return the status and the JSON with which `serve` answers."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urlopen(Request(f"http://127.0.0.1:8765{path}", headers=headers), timeout=60) as found:
            return found.status, json.load(found)
    except HTTPError as error:
        return error.code, None
    except OSError:
        return 0, None


def own_names(stack: Stack) -> None:
    """Let each service be found by its name, as on the network of a compose file, on this loopback."""
    hosts = stack.folder / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {' '.join(stack.services)}\n", "utf-8")
    for command in (
        "ip link set lo up", f"mount --bind {hosts} /etc/hosts", f"mount -t tmpfs tmpfs {_DATABASE}",
        f"chown postgres {_DATABASE}",
    ):  # fmt: skip
        subprocess.run(command.split(), check=True)


def main() -> None:
    stack = Stack(Path(sys.argv[1]))
    for name in ("data", "tmp", "home", "cache"):
        (stack.folder / name).mkdir()
    own_names(stack)
    as_postgres = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    stack.start("postgres", ["sh", "-ec", _POSTGRES], *as_postgres, folder=_DATABASE)
    stack.start("store", _STORE)
    stack.start("serve", stack.command("serve"))
    await_true(lambda: made("http://store:9000/skills"))
    stack.start("prefect", stack.command("prefect"))
    stack.start("worker", stack.command("worker"))
    await_true(lambda: "started!" in (stack.folder / "worker.log").read_text("utf-8"))
    root = stack.environment("worker")["SKILLERY_ROOT"]
    stack.run("worker", "skillery", "sources", "add", f"dir:{stack.folder}/shelf", "--root", root)
    stack.run("worker", "prefect", "deployment", "run", "nightly/nightly-reindex", "--watch")
    await_true(lambda: answer("/api/search?q=bread", SECRETS["SERVE_TOKEN"])[0] == 200)
    query = "select count(*) from flow_run where state_type = 'COMPLETED'"
    database = f"postgresql://prefect:{SECRETS['POSTGRES_PASSWORD']}@postgres/prefect"
    json.dump({
        "found": answer("/api/search?q=bake+bread", SECRETS["SERVE_TOKEN"])[1]["results"],
        "without token": answer("/api/search?q=bread", None)[0],
        "status": json.loads(stack.run("worker", "skillery", "status", "--root", root, "--json")),
        "runs in PostgreSQL": int(stack.run("worker", "psql", "-Atc", query, database)),
        "log": (stack.folder / "worker.log").read_text("utf-8").splitlines(),
    }, sys.stdout)  # fmt: skip


def made(bucket: str) -> bool:
    """Make a bucket; tell whether the store was there."""
    try:
        with urlopen(Request(bucket, method="PUT")):  # noqa: S310 (our own)
            return True
    except OSError:
        return False


if __name__ == "__main__":
    main()
