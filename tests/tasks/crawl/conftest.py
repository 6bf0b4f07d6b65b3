from __future__ import annotations

import base64
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from storage.root import Root
from tests.support.crawl.crawling import Crawler, grows, settings_of
from tests.support.marketplace.messages import Faults
from tests.support.marketplace.repository import Repository
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World
from tests.support.roots.nights import Nights

_ENVIRONMENT = {
    "PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org",
}  # fmt: skip


@dataclass
class WorkTree:
    """A real repository with a work tree, to be crawled."""

    path: Path
    spec: str = field(init=False)

    def __post_init__(self) -> None:
        self.path.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")
        self.spec = f"git+{self.path.as_uri()}"

    def git(self, *arguments: str, given: str = "") -> str:
        command = ["git", *arguments]
        done = subprocess.run(
            command, cwd=self.path, env=_ENVIRONMENT, check=True, capture_output=True, text=True, input=given
        )
        return done.stdout.strip()

    def mktree(self, lines: list[str]) -> str:
        """Make a tree of the lines that `git ls-tree` would print of it, and return its id."""
        return self.git("mktree", given="".join(f"{line}\n" for line in lines))

    def write(self, path: str, content: str | bytes = "# A skill\n") -> Path:
        target = self.path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        return target

    def commit(self) -> str:
        self.git("add", "--all", "--force")
        self.git("commit", "--quiet", "--message=change")
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def make_worktree(tmp_path: Path) -> Callable[[str], WorkTree]:
    return lambda name: WorkTree(tmp_path / "repositories" / name)


@pytest.fixture
def worktree(make_worktree: Callable[[str], WorkTree]) -> WorkTree:
    return make_worktree("herbs")


@pytest.fixture
def git_daemon(tmp_path: Path) -> Iterator[str]:
    """Serves tmp_path/repositories as git://127.0.0.1:port, over the protocol's second version."""
    base = tmp_path / "repositories"
    base.mkdir(exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = ["--export-all", "--reuseaddr", "--listen=127.0.0.1", f"--port={port}", f"--base-path={base}"]
    with subprocess.Popen(
        [f"{_exec_path()}/git-daemon", *arguments], env=_ENVIRONMENT, stderr=subprocess.DEVNULL
    ) as daemon:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"git://127.0.0.1:{port}"
        daemon.terminate()


def _exec_path() -> str:
    return subprocess.run(["git", "--exec-path"], check=True, capture_output=True, text=True).stdout.strip()


class _Backend(BaseHTTPRequestHandler):
    """git http-backend that knows but the protocol's first version, as behind an old proxy."""

    base: ClassVar[Path]
    backend: ClassVar[str]
    login: ClassVar[str] = "reader:s3cr%t/et"

    def do_GET(self) -> None:
        expected = "Basic " + base64.b64encode(self.login.encode()).decode()
        if self.path.startswith("/private") and self.headers.get("Authorization") != expected:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="herbs"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        variables = {
            "GIT_PROJECT_ROOT": str(self.base), "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path.removeprefix("/private"), "QUERY_STRING": query, "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "CONTENT_LENGTH": str(len(body)),
        }  # fmt: skip
        done = subprocess.run(
            [self.backend], input=body, env=_ENVIRONMENT | variables, capture_output=True, check=False
        )
        head, _, answer = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in (fields | {"Content-Length": str(len(answer))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def git_http(tmp_path: Path) -> Iterator[str]:
    """Serves tmp_path/repositories at host:port; below /private only to a user with a password."""
    _Backend.base = tmp_path / "repositories"
    _Backend.backend = f"{_exec_path()}/git-http-backend"
    with ThreadingHTTPServer(("127.0.0.1", 0), _Backend) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path / "root")


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path / "root")


@pytest.fixture
def world() -> World:
    made = World()
    made.github.anonymous_limit = 100_000
    return made


@pytest.fixture
def garden(world: World) -> Repository:
    """A repository with more skills than are fetched file by file."""
    repository = world.repository("ann/garden")
    herbs = ("basil", "chard", "dill", "endive", "fennel")
    repository.commit({f"beds/{herb}/SKILL.md": grows(herb) for herb in herbs})
    return repository


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def market(world: World, faults: Faults) -> Iterator[Marketplace]:
    with Marketplace(world, faults) as served:
        yield served


@pytest.fixture
def crawler(market: Marketplace, tmp_path: Path) -> Crawler:
    return Crawler(tmp_path / "root", settings_of(market.environment()))
