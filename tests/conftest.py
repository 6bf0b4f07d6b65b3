"""The real encoder, exported once a test session, and roots that are filled with it."""

from __future__ import annotations

import atexit
import gc
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Timer

import pytest
from filelock import FileLock
from hypothesis import settings

from tasks.models.encoder import OnnxEncoder
from tasks.models.model_cache import model_cache
from tests.support.models.remembered import remember
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import MINILM, PUBLISHED, Export, SkillRoot
from tests.support.roots.storied import tell
from tests.support.s3_server import BUCKET, machine_at, outage_of, s3_server

# No test is about a machine that loses its power, and waiting for the disk takes a fifth of their time.
os.environ.setdefault("SKILLERY_SYNC_FILES", "false")
# Else each worker, and each process that a test starts, would compile hundreds of modules anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# What is imported and collected stays: to look for garbage in it takes a quarter of the start.
gc.disable()
# How long an example takes is a busy machine's affair.
settings.register_profile("skillery", deadline=None, max_examples=30)
settings.load_profile("skillery")
# As many workers run as there are cores: threads of one would spin where another works.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("POLARS_MAX_THREADS", "1")
_SERVE = "tests/flows/serve/"  # whose files share servers, and so a worker
# Groups of tests that take long, the longest first, so that no worker ends with one of them.
_LONG = ("prefect", _SERVE, "tests/operations", "tests/tasks/induce/replay", "tests/tasks/train",
         "tests/flows", "tests/tasks/retrieve")  # fmt: skip
_MEMORY, _ROOM = "/dev/shm", 6e9  # noqa: S108 - bytes that must be free there
_NUMBERS = itertools.count()
_PLACE = pytest.StashKey[int]()
_EXPORT = """
import sys
from pathlib import Path
from tasks.models.onnx_export import exported_encoder
folder = exported_encoder(Path(sys.argv[1]), sys.argv[2])
sys.stdout.write(f"{folder}\\n{' '.join(m for m in ('torch', 'sentence_transformers') if m in sys.modules)}")
"""


def _one_folder_for_a_run() -> None:
    """Let temporary files of a run, its workers and their processes lie in one folder, removed at its end.

    What pytest itself makes of tests that fail stays where it was, to be looked at. All of it lies in memory
    where a disk of memory has the room: a run makes and removes hundreds of thousands of files.
    """
    if PUBLISHED in os.environ:
        return
    roomy = os.path.isdir(_MEMORY) and shutil.disk_usage(_MEMORY).free > _ROOM
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY if roomy else tempfile.gettempdir())
    place = Path(_MEMORY if roomy else tempfile.gettempdir())
    for left in place.glob("skillery-tests-*-*"):  # of a run that was killed, in memory
        if roomy and not Path("/proc", left.name.split("-")[2]).exists():
            shutil.rmtree(left, ignore_errors=True)
    folder = tempfile.mkdtemp(prefix=f"skillery-tests-{os.getpid()}-", dir=place)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # after what Prefect removes when it exits
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    kept = model_cache()
    os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"  # where models are put together, once for all tests
    # What this machine made of models before; they are named by what they were made of. Exports are made.
    for made in (*kept.glob("tokens-*"), *kept.glob("whole-*")):
        shutil.copytree(made, model_cache() / made.name)
    os.environ[PUBLISHED] = f"{folder}/published"
    Path(folder, "published").mkdir()


_one_folder_for_a_run()  # before other files of this kind make theirs
remember()


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a file's tests with one worker, as all that share a Prefect server; what takes long goes first."""
    for item in items:
        if "prefect_server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.prefect)
        file = item.nodeid.partition("::")[0]
        shared = _SERVE if file.startswith(_SERVE) else file
        group = "prefect" if item.get_closest_marker("prefect") else shared
        item.add_marker(pytest.mark.xdist_group(group))
        item.stash[_PLACE] = next((n for n, long in enumerate(_LONG) if group.startswith(long)), len(_LONG))
    items.sort(key=lambda item: item.stash[_PLACE])


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """Return a folder with a path that no test before had: its own goes with it, and caches hold paths."""
    own = tmp_path / str(next(_NUMBERS))
    own.mkdir()
    return own


@pytest.fixture(scope="session")
def minilm_export(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Export:
    """Export the encoder once for all workers of a run."""
    own = tmp_path_factory.getbasetemp()
    models = (own if worker_id == "master" else own.parent) / "models"
    models.mkdir(exist_ok=True)
    with FileLock(models / "export.lock"):
        printed = models / "printed.txt"
        if not printed.exists():
            command = [sys.executable, "-c", _EXPORT, str(models), MINILM]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            printed.write_text(done.stdout, "utf-8")
    folder, _, loaded = printed.read_text("utf-8").partition("\n")
    return Export(Path(folder), loaded.split())


@pytest.fixture(scope="session")
def minilm(minilm_export: Export) -> OnnxEncoder:
    return OnnxEncoder(minilm_export.folder)


@pytest.fixture(scope="session")
def s3_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file that gets a line a request to the S3 server."""
    return tmp_path_factory.mktemp("s3") / "requests.log"


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory, s3_log: Path) -> Iterator[Mapping[str, str]]:
    """Start one S3 server for a run; the environment of those who ask it."""
    with s3_server(tmp_path_factory.mktemp("copies"), s3_log) as environment:
        yield environment


@pytest.fixture
def bucket(s3: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a root in the bucket, with nothing in it yet, and let this process ask for it."""
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", machine_at(tmp_path / "copies"))
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def outage(s3_log: Path) -> Iterator[Callable[[float], None]]:
    """Let the S3 server answer 503 from now on, and again as it should after so many seconds."""
    down, timers = outage_of(s3_log), list[Timer]()

    def begin(seconds: float) -> None:
        down.touch()
        timers.append(Timer(seconds, down.unlink))
        timers[-1].start()

    yield begin
    for timer in timers:
        timer.cancel()
        timer.join()
    down.unlink(missing_ok=True)


@pytest.fixture
def skill_root(tmp_path: Path, minilm_export: Export) -> Callable[[dict[str, str]], SkillRoot]:
    """Make a root, with nothing in it yet, beside a folder of skills."""
    return lambda skills: SkillRoot.below(tmp_path, minilm_export, skills)


@pytest.fixture(scope="session")
def served_bakery(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> SkillRoot:
    """A root that serves a few hand-written skills; tests only ask it."""
    root = SkillRoot.below(tmp_path_factory.mktemp("served"), minilm_export, SKILLS)
    root.publish()
    return root


@pytest.fixture(scope="session")
def storied(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> SkillRoot:
    """A root on which a skill and its files have changed over four nights; tests only ask it."""
    root = SkillRoot.below(tmp_path_factory.mktemp("storied"), minilm_export, {})
    tell(root)
    return root
