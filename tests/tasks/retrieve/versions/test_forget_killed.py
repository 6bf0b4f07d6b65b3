"""Wherever a process that forgets dies, asked again it ends the same, and nothing comes back in between."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import polars as pl
import pytest

from storage.lance.served import PUBLISHED, SERVED, published_versions, require_served
from storage.lance.tables import NODES, SKILLS
from storage.root import Root
from storage.state import seen_table
from tasks.refine.filters import FilterLimits
from tasks.refine.plan import plan_refine
from tasks.retrieve.versions.forget import ForgetReport, forget
from tests.support.roots.forgetting import COPY, TARGET, holding
from tests.support.roots.skill_root import SkillRoot
from tests.support.roots.vendor import connect, open_at

NOW = datetime(2026, 1, 2, 3, tzinfo=UTC)
# What changes something on disk: each is a moment to die at.
_STEPS = {"write", "delete", "rewrite", "tag", "keep_only", "delete_unfinished", "_index"}


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def copy(filled: SkillRoot, tmp_path: Path) -> Callable[[str], Root]:
    def make(name: str) -> Root:
        return Root(shutil.copytree(filled.root.folder, tmp_path / name, symlinks=True))

    return make


@contextmanager
def dying_at(number: int) -> Iterator[list[str]]:
    """Let the step of that number, from 0, begin no more; yield the steps taken."""
    steps: list[str] = []

    def watch(frame: FrameType, event: str, _: Any) -> None:  # noqa: ANN401 (the interpreter's own)
        code = frame.f_code
        if event == "call" and code.co_name in _STEPS and "storage" in Path(code.co_filename).parts:
            steps.append(code.co_name)
            if len(steps) > number:
                raise Killed

    sys.setprofile(watch)
    try:
        yield steps
    finally:
        sys.setprofile(None)


def asked(root: Root) -> ForgetReport:
    return forget(root, TARGET, run_id="gone", now=NOW)


def end(root: Root) -> dict[str, Any]:
    """Return all that is left, order and file names of tables' parts aside."""
    files = [f for f in root.files("", ".parquet") if not f.startswith("models/")]
    frames = {f: pl.read_parquet(root.at(f)) for f in files}
    left: dict[str, Any] = {f: sorted(map(str, frame.rows())) for f, frame in frames.items()}
    served, db = require_served(root), connect(root)
    assert served.nodes is not None
    for name, version in ((SKILLS, served.skills), (NODES, served.nodes)):
        table = open_at(db, name, version)
        assert [v["version"] for v in table.list_versions()] == [version]
        left[name] = sorted(map(str, table.search().to_arrow().to_pylist()))
    # How many versions a table went through depends on where it was killed; the pointer names the last. The
    # digests of files depend on the time.
    pointers = (SERVED, f"{PUBLISHED}/", "state/manifests/", "state/file-digests.json")
    others = (f for f in root.files("state") if not f.endswith(".parquet") and not f.startswith(pointers))
    assert published_versions(root) == [served]
    return left | {f: root.read(f) for f in others}


def steps_of(root: Root) -> list[str]:
    with dying_at(10_000) as steps:
        asked(root)
    return steps


def check_mended(copy: Callable[[str], Root], points: list[int]) -> None:
    """Kill it at each of these steps, and ask again."""
    whole = copy("whole")
    report = asked(whole)
    expected = end(whole)
    for number in points:
        root = copy(str(number))
        with pytest.raises(Killed), dying_at(number):
            asked(root)
        require_answers(root)
        again = asked(root)
        assert end(root) == expected, f"after step {number}"
        assert (again.doc_ids, again.copies) == (report.doc_ids, report.copies)
        assert holding(root) == set()
        shutil.rmtree(root.folder)


def test_killed_around_the_change_of_what_is_served_and_asked_again_it_ends_the_same(
    copy: Callable[[str], Root],
) -> None:
    steps = steps_of(copy("counted"))
    assert set(steps) >= _STEPS - {"delete"}
    tables = steps.index("rewrite")
    served = tables + steps[tables:].index("write")
    check_mended(copy, [tables // 2, served, served + 1])


@pytest.mark.slow
def test_killed_at_any_step_and_asked_again_it_ends_the_same(copy: Callable[[str], Root]) -> None:
    check_mended(copy, list(range(len(steps_of(copy("counted"))))))


def require_answers(root: Root) -> None:
    """Let pass a root whose served versions can be read."""
    served = require_served(root)
    assert served.nodes is not None
    for name, version in ((SKILLS, served.skills), (NODES, served.nodes)):
        table = open_at(connect(root), name, version)
        assert "local/market/bees" in table.search().to_arrow()["doc_id"].to_pylist()


def test_a_night_after_a_kill_leaves_out_what_is_only_half_gone(copy: Callable[[str], Root]) -> None:
    root = copy("half")
    with pytest.raises(Killed), dying_at(8):
        asked(root)
    assert TARGET in seen_table(root).read()["doc_id"]
    plan_refine(root, FilterLimits())
    plan = pl.read_parquet(root.at("state/plans/refine.parquet"))
    gone = plan.filter(pl.col("doc_id").is_in([TARGET, COPY]))
    assert set(gone["action"]) <= {"remove"}


_FORGET = """
import os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from storage.root import Root
from tasks.retrieve.versions.forget import forget
left = [int(sys.argv[2])]
def watch(frame, event, _):
    if event == "call" and frame.f_code.co_name in sys.argv[3:]:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.setprofile(watch)
forget(Root(sys.argv[1]), "local/market/rye", run_id="gone", now=datetime(2026, 1, 2, 3, tzinfo=UTC))
"""


@pytest.mark.parametrize(("step", "number"), [("replace", 9), ("keep_only", 0), ("_index", 1)])
def test_a_killed_process_leaves_a_root_that_can_be_asked_again(
    copy: Callable[[str], Root], step: str, number: int
) -> None:
    whole, root = copy("whole"), copy("killed")
    asked(whole)
    done = subprocess.run(
        [sys.executable, "-c", _FORGET, str(root.folder), str(number), step], check=False, env=os.environ
    )
    assert done.returncode == -signal.SIGKILL
    require_answers(root)
    asked(root)
    assert end(root) == end(whole)
    assert holding(root) == set()
