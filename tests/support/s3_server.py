"""An S3 server for tests, in a process of its own, which prints its port and ends with its input."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tasks.models.model_cache import model_cache
from tests.support.paths import PROJECT

BUCKET = "skills"


def machine_at(folder: Path) -> str:
    """Return what names a folder as another machine's cache: only what is made of models is there already."""
    (folder / "skillery").mkdir(parents=True, exist_ok=True)
    (folder / "skillery/models").symlink_to(model_cache())
    return str(folder)


@contextmanager
def s3_server(copies: Path, log: Path) -> Iterator[Mapping[str, str]]:
    """Start a server with an empty bucket; yield the environment of those who ask it.

    Args:
        copies: Where they keep copies of its objects.
        log: The file that gets a line a request; while there is a file `outage_of(log)`, all get 503.
    """
    command = [sys.executable, "-m", "tests.support.s3_server", str(log)]
    folder = PROJECT
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=folder, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": "nothing-secret", "XDG_CACHE_HOME": machine_at(copies),
        }  # fmt: skip
        process.communicate()


def outage_of(log: Path) -> Path:
    """Return the file whose presence makes the server with this log answer 503."""
    return log.with_suffix(".down")


_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


def _serve(log: Path) -> None:
    from moto.moto_server import threaded_moto_server
    from moto.server import DomainDispatcherApplication, ThreadedMotoServer

    class Failing(DomainDispatcherApplication):  # type: ignore[misc]
        def __call__(self, environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
            if outage_of(log).exists():
                environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
                start_response("503 Slow Down", [("Content-Type", "application/xml")])
                return [_SLOW_DOWN]
            answered: Iterable[bytes] = super().__call__(environ, start_response)
            return answered

    threaded_moto_server.DomainDispatcherApplication = Failing
    logging.lastResort = None  # what moto warns of is nobody's concern
    requests = logging.getLogger("werkzeug")
    requests.addHandler(logging.FileHandler(log))
    requests.setLevel(logging.INFO)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    with urlopen(Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")):
        pass
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    sys.stdin.read()
    server.stop()
    os._exit(0)  # its threads wait for requests


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
