"""One Prefect server for all flow tests of a run."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from textwrap import dedent

import pytest

from flows.cli.main import main
from storage.root import Root
from tasks.crawl.git.source import SampleSource
from tests.support.command import Ask, InProcess
from tests.support.roots.skill_root import Export, SkillRoot

# Before anything imports Prefect: it reads its home when imported, and must not use the developer's own.
os.environ["PREFECT_HOME"] = tempfile.mkdtemp(prefix="skillery-tests-")
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Run the command inside this process, where nothing depends on its being one of its own."""

    def run(*arguments: str) -> InProcess:
        monkeypatch.setattr(sys, "argv", ["skillery", *arguments])
        own = signal.getsignal(signal.SIGINT)
        try:
            with pytest.raises(SystemExit) as ended:
                main()
        finally:
            signal.signal(signal.SIGINT, own)  # the command's would end the whole process
        return InProcess(ended.value.code, *capsys.readouterr())

    return Ask(run)


class ShippedMarket(SampleSource):
    """The sample, made below a folder."""

    def __init__(self, folder: str) -> None:
        super().__init__(Root(folder))


@pytest.fixture(scope="session")
def shipped(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> SkillRoot:
    """Return a root that serves the skills that come with Skillery; their nodes are not indexed."""
    folder = tmp_path_factory.mktemp("shipped")
    root = SkillRoot(folder / "market", folder / "root", minilm_export.folder)
    root.source = ShippedMarket  # type: ignore[assignment] # it is made of a folder, too
    root.publish(nodes=False)
    return root


@pytest.fixture(scope="session")
def prefect_server(prefect_logs: None) -> Iterator[str]:
    """Start Prefect's test server once and return its API's address."""
    from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    # A flow that ends waits up to a second for the thread of its heartbeats, which nobody reads here.
    no_heartbeats = temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None})
    with prefect_test_harness(server_startup_timeout=120), no_heartbeats:
        yield str(PREFECT_API_URL.value())


@pytest.fixture(scope="session")
def prefect_logs() -> None:
    """Set Prefect's logging up while standard error is none of a test's own, which is closed with it."""
    from prefect.logging.configuration import setup_logging

    setup_logging()


@pytest.fixture
def no_server(prefect_logs: None) -> Iterator[None]:
    """Let flows be functions, as they are for a command that names no server of Prefect."""
    from flows.server.temporary import as_functions

    with as_functions():
        yield


@pytest.fixture
def prepare_home(prefect_server: str) -> Callable[[Path], None]:
    """Return what gives a root a home of Prefect with its tables, which take five seconds to make."""
    from prefect.settings import PREFECT_SERVER_DATABASE_CONNECTION_URL

    file = str(PREFECT_SERVER_DATABASE_CONNECTION_URL.value()).partition(":///")[2]

    def prepare(root: Path) -> None:
        (root / "prefect").mkdir(parents=True)
        with (
            closing(sqlite3.connect(file)) as made,
            closing(sqlite3.connect(root / "prefect/prefect.db")) as new,
        ):
            made.backup(new)

    return prepare


@pytest.fixture
def root(tmp_path: Path, minilm_export: Export) -> str:
    """Return a root that has its encoder already, as every root has from its second run on."""
    models = tmp_path / "root" / "models"
    models.mkdir(parents=True)
    (models / minilm_export.folder.name).symlink_to(minilm_export.folder)
    return str(tmp_path / "root")


_SKILLS = {
    "tea": """\
        ---
        name: tea
        description: Brew a pot of loose-leaf tea.
        ---
        # Tea

        Warm the pot before the leaves go in. Use one spoon of leaves for each cup.

        ## Steeping

        - Green tea: two minutes at 75 degrees.
        - Black tea: four minutes at the boil.

        If the tea turns bitter, steep it for less time.
        """,
    "bicycle": """\
        ---
        name: bicycle
        description: Mend a flat bicycle tyre on the road.
        ---
        # Flat tyre

        You need two levers, a patch kit and a pump.

        1. Take the wheel out and lift one side of the tyre over the rim.
        2. Find the hole by listening, then roughen the rubber around it.
        3. Glue, wait for two minutes, and press the patch on.
        """,
}


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    """Return a folder with two small skills."""
    folder = tmp_path / "shelf"
    for name, text in _SKILLS.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "SKILL.md").write_text(dedent(text), "utf-8")
    return folder


_HOLD = """
import sys
from storage.locks import writer_lock
from storage.root import Root
with writer_lock(Root(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other_writer() -> Callable[[str], AbstractContextManager[None]]:
    """Return a context in which another process holds a root's writer lock."""

    @contextmanager
    def hold(root: str) -> Iterator[None]:
        command = [sys.executable, "-c", _HOLD, root]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield
            process.communicate()

    return hold
