"""Every command that writes, killed all through its work: the next of its kind ends as if none had been.

`pytest -m slow -s` prints a row a command: its kills, what was lost or doubled, and what repaired it. Of many
kills every fifth is looked at more: by readers meanwhile, by `doctor`, and by what each version answers.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flows.commands.monitoring import RootCollector
from flows.commands.operate import root_status
from storage.lance.served import published_versions, read_served, require_served
from storage.root import Root
from storage.state import GOOD, SILENT, documents_table, nodes_table, parsed_table, read_run, read_runs
from tasks.crawl.backfill import rebuilt_days
from tasks.crawl.source_list import known_sources
from tasks.retrieve.suggest.stored import ServedSkills
from tasks.retrieve.versions.doctor import examine
from tasks.retrieve.versions.publish import roll_back
from tests.support.command import MAIN
from tests.support.induce.learning import RUNS, written
from tests.support.lineage import ENDS, events
from tests.support.processes import marked, marked_environment
from tests.support.roots.faults import EDITIONS, Place, answers, contents, reading, require_whole
from tests.support.roots.forgetting import FIRST, HEAD, holding, rye
from tests.support.roots.skill_root import Export

_FORGOTTEN = "local/market/rye"
# These write at once: they stop just before the n-th time that they do, to be killed, and tell each time.
_AT_ONCE = {"install", "update", "export", "compact", "forget", "rollback"}
_STRUCK = """
import os, signal, sys
folder, left = os.environ["STRUCK_IN"], [int(os.environ["STRUCK_AT"])]
told = os.open("moments", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
changes = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink"}
writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT
def strike(event, given):
    if event in changes or (event == "open" and (given[2] or 0) & writes):
        if str(given[0]).startswith(folder) and not {"prefect", "locks"} & set(str(given[0]).split("/")):
            os.write(told, b".")
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGSTOP)
sys.addaudithook(strike)
"""
# The commands that leave a record of their run.
WRITING = {"run", "backfill", "rebuild", "refresh", "compact", "forget", "rollback", "induce"}


class Row(NamedTuple):
    """A command, how often it is killed, the root it begins on, and what is done to that before."""

    command: str
    kills: int
    base: str = "two nights"
    before: Callable[[Root], object] = lambda _: None


def damage(root: Root) -> None:
    """Leave what a bad disk and a killed write do."""
    for pattern in ("routing/*/vectors.npy", "state/refined/*.parquet"):
        next(root.folder.glob(pattern)).write_bytes(b"flour")
    (root.folder / "documents/part-00.parquet.0123abcd.tmp").write_bytes(b"flour")


def go_back(root: Root) -> None:
    roll_back(root)


def edit_by_hand(root: Root) -> None:
    """Change an installed skill where its next edition does not, so that an update merges."""
    file = root.folder.parent / "agent/baker-mend/SKILL.md"
    file.write_text(file.read_text("utf-8").replace("Warm the dough", "Slowly warm the dough"), "utf-8")


ROWS = {
    "first night": Row("run --source dir:{market}", 20, "empty"),
    "second night": Row("run", 20, "one night"),
    "night that makes vectors": Row("run", 20, "no vectors"),
    "backfill": Row("backfill --from {day} --to {day}", 20),
    "backfill --dry-run": Row("backfill --from {day} --to {day} --dry-run", 1),
    "backfill --publish": Row("backfill --from {day} --to {day} --publish", 20, before=go_back),
    "rebuild": Row("rebuild", 20),
    "refresh": Row("refresh local/market/sailor-mend", 20, "one night"),
    "sources add": Row("sources add parquet:{market}/table.parquet", 2),
    "sources remove": Row("sources remove dir:{market} --retire", 2),
    "doctor": Row("doctor", 20, before=damage),
    "compact": Row("compact", 20),
    "forget": Row(f"forget {_FORGOTTEN} --yes", 20),
    "rollback": Row("rollback {first}", 20),
    "induce": Row("induce {runs}", 20),
    "install": Row("install cooper-mend brewer-mend --to {agent}", 20),
    "update": Row("update --to {agent}", 20),
    "update that merges": Row("update --to {agent}", 30, before=edit_by_hand),
    "export": Row("export --out {out}", 20),
}


# A root each: the one that it is made of, the edition in the market by then, and by which commands.
RECIPES = {
    "no vectors": ("empty", EDITIONS[0], "run --source dir:{market} --index skills"),
    "one night": (
        "empty", EDITIONS[0], "run --source dir:{market}", "install sailor-mend baker-mend --to {agent}"
    ),
    "two nights": ("one night", EDITIONS[1], "run"),
}  # fmt: skip


class Bases:
    """Roots that commands made, by name, each beside the folder of an agent; and the market of all."""

    def __init__(self, folder: Path, export: Export, environment: Mapping[str, str]) -> None:
        self.folder, self.market, self.environment = folder, folder / "market", dict(environment)
        self.runs = written(folder / "runs.jsonl", RUNS)
        models = folder / "empty/root/models"
        models.mkdir(parents=True)
        (models / export.folder.name).symlink_to(export.folder)
        self.place = Place(Root(models.parent), self.market, export.folder)

    def write(self, edition: str) -> None:
        """Put an edition in the market, and beside it what will be forgotten."""
        self.place.write(edition)
        (self.market / "rye").mkdir()
        (self.market / "rye/SKILL.md").write_text(rye(FIRST), "utf-8")
        (self.market / "rye/feed.sh").write_text(f"echo {HEAD}\n", "utf-8")

    def copy(self, base: str, name: str) -> Path:
        """Return a copy of a root and its agent's folder; the root is made when it is first asked for."""
        if not (self.folder / base).exists():
            before, edition, *commands = RECIPES[base]
            made = self.copy(before, base)
            self.write(edition)
            for command in commands:
                code, _ = self.run(made, command)
                assert code == 0, (made / "words").read_text()
        return shutil.copytree(self.folder / base, self.folder / name, symlinks=True)

    def run(self, folder: Path, command: str, look: int = 0, after: float = 0) -> tuple[int, int]:
        """Run a command, killed when it has changed its folder so often; return its code and the changes."""
        exact = command.split(maxsplit=1)[0] in _AT_ONCE
        with self.started(folder, command, look) as running:
            seen, looks = looked(folder), 0
            while running.poll() is None:
                began = time.monotonic()
                if exact:
                    reached, after = process_state(running.pid) == "T", 0
                else:
                    now = looked(folder)
                    looks, seen = looks + (now != seen), now
                    reached = 0 < look <= looks
                if reached:
                    time.sleep(after)
                    told = command.split(maxsplit=1)[0] in WRITING  # a damaged root may be an error
                    try:
                        if stopped(running.pid) and told:
                            require_truth(Root(folder / "root"), "running")
                    finally:
                        running.kill()
                        running.wait()
                    if told:
                        require_truth(Root(folder / "root"), "died")
                time.sleep(0.01 + 4 * (time.monotonic() - began))  # the command needs the processor too
        return running.returncode, (folder / "moments").stat().st_size if exact else looks

    def started(self, folder: Path, command: str, struck: int = 0) -> subprocess.Popen[bytes]:
        """Start a command on a root; what it says goes to the file `words`."""
        first = published_versions(Root(folder / "root"))[-1:]
        names = {
            "market": self.market, "runs": self.runs, "agent": folder / "agent", "out": folder / "out",
            "day": f"{datetime.now(UTC):%Y-%m-%d}", "first": first[0].version if first else "",
        }  # fmt: skip
        arguments = [part.format_map(names) for part in command.split()]
        root = ["--root", str(folder / "root")]
        main = (_STRUCK if command.split(maxsplit=1)[0] in _AT_ONCE else "") + MAIN[2]
        told = {"SKILLERY_OPENLINEAGE": f"file:{folder}/told", "STRUCK_AT": str(struck)}
        with (folder / "words").open("wb") as words:
            return subprocess.Popen(
                [*MAIN[:2], main, *arguments, *root], stdout=words, stderr=subprocess.STDOUT, cwd=folder,
                env={**self.environment, **told, "STRUCK_IN": str(folder)},
                start_new_session=True,
            )  # fmt: skip


def stopped(pid: int) -> bool:
    """Stop a process of this one, and tell whether it had not ended before."""
    os.kill(pid, signal.SIGSTOP)
    while (state := process_state(pid)) not in "TZ":
        time.sleep(0.001)
    return state == "T"


def process_state(pid: int) -> str:
    """Return what a process does, as the kernel tells: T is stopped, Z has ended."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def require_truth(root: Root, state: str) -> None:
    """Let what `status` and `/metrics` tell of a command pass that is stopped, or was killed.

    By what it left, one run that has begun and not ended is under way, `running` or `died`, and nothing else;
    after two minutes of silence a stopped one has died too.
    """
    begun = [run for file in root.files("state/running") if (run := root.read_json(file))]
    left = {run["run_id"]: run["flow"] for run in begun if read_run(root, run["run_id"]) is None}
    assert {run["run_id"]: run["state"] for run in root_status(root)["under_way"]} == dict.fromkeys(
        left, state
    )
    for ago, now in ((state, datetime.now(UTC)), ("died", datetime.now(UTC) + 1.01 * SILENT)):
        found = RootCollector(root, now=lambda now=now: now).collect()
        told = {(s.name, *s.labels.values()): s.value for family in found for s in family.samples}
        assert told["skillery_readable",] == 1
        running = {name[1] for name, value in told.items() if name[0] == "skillery_running" and value}
        assert running == (set(left.values()) if ago == "running" else set())
        died = [told.get(("skillery_last_run_state", flow, "died"), 0) for flow in left.values()]
        assert died == [float(ago == "died")] * len(left)


def require_told(file: Path) -> int:
    """Let events of lineage pass of runs that all ended in one way; return how many there are.

    Of one that is killed as it has told its end, the next run tells the same once more.
    """
    found = events(file)
    told = {(event["run"]["runId"], event["eventType"]) for event in found}
    ends = Counter((run, said in ENDS) for run, said in told)
    assert [key for key, times in ends.items() if times > 1] == []
    runs = {event["run"]["runId"] for event in found if "parent" not in event["run"]["facets"]}
    assert [run for run in runs if (run, True) not in ends] == []
    return len(found)


def looked(folder: Path) -> set[tuple[str, int, int]]:
    """Return which files there are, and how they look."""
    found = set()
    for top, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in ("prefect", "models", "locks")]
        for name in files:
            try:
                stat = os.stat(f"{top}/{name}")
            except OSError:
                continue
            if name not in ("words", "told"):
                found.add((f"{top}/{name}", stat.st_mtime_ns, stat.st_size))
    return found


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> Bases:
    """Make the roots; no command asks a server of Prefect."""
    environment = marked_environment(f"killed-{time.monotonic_ns()}")
    return Bases(tmp_path_factory.mktemp("killed"), minilm_export, environment)


def held(folder: Path) -> dict[str, Any]:
    """Return all that is held beside one another, without times and runs."""
    root, agent = Root(folder / "root"), folder / "agent"
    days = {f"of {day.uri[-10:]}": day for day in rebuilt_days(root)}
    past = {name: documents_table(day).read(columns=["doc_id", "body"]).rows() for name, day in days.items()}
    past |= {f"nodes {n}": nodes_table(d).read(columns=["node_id", "text"]).rows() for n, d in days.items()}
    learned = ServedSkills(root) if require_served(root).induced is not None else None
    skills = learned and {name: sorted(s.skill_id for s in learned.skills(name)) for name in learned.domains}
    files = {f"{f.relative_to(folder)}": f.read_bytes() for f in agent.rglob("*") if f.is_file()}
    exported = sorted(str(f.relative_to(folder)) for top in folder.glob("*out*") for f in top.rglob("*"))
    listed = sorted(spec for spec, record in known_sources(root).items() if record["in_list"])
    more = {"skills": skills, "files": files, "exported": exported, "listed": listed}
    return {**contents(root), **{name: sorted(rows) for name, rows in past.items()}, **more}


def answers_of(folder: Path) -> dict[str, Any]:
    """Return what each version answers that the root can go back to; the root serves another one then."""
    root, found = Root(folder / "root"), dict[str, Any]()
    for version in published_versions(root):
        if version != require_served(root):
            roll_back(root, version.version)
        found[version.version] = answers(root)
    return found


def doubled(root: Root) -> int:
    """Count ids that stand twice, and nodes that their documents do not know of."""
    documents, nodes = documents_table(root).read()["doc_id"], nodes_table(root).read()["node_id"]
    told = parsed_table(root).read()["n_nodes"].sum()
    return documents.len() - documents.n_unique() + nodes.len() - nodes.n_unique() + abs(nodes.len() - told)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ROWS)
def test_a_command_that_is_killed_loses_and_doubles_nothing_and_the_next_of_its_kind_ends_the_same(
    name: str, bases: Bases
) -> None:
    row = ROWS[name]

    def begin(folder: str) -> Path:
        made = bases.copy(row.base, f"{name} {folder}")
        row.before(Root(made / "root"))
        return made

    whole, kept = begin("whole"), answers_of(begin("before"))
    bases.write(EDITIONS[row.base not in {"empty", "no vectors"}])
    code, looks = bases.run(whole, row.command)
    assert code == 0, (whole / "words").read_text()
    assert row.before is not edit_by_hand or "merged" in (whole / "words").read_text()
    expected, known = held(whole), [*kept.values(), answers(Root(whole / "root"))]
    left = kept.keys() & {version.version for version in published_versions(Root(whole / "root"))}
    struck, died, found, told, slowest = 0, 0, 0, 0, 0.0
    often = 5 if row.kills >= 8 else 1

    for kill in range(row.kills):
        folder = begin(f"{kill}")
        root = Root(folder / "root")
        whole_look = kill % often == 0
        with reading(root, 1, 1.0) if kept and whole_look else nullcontext([]) as given:
            look = max(1, round(looks * (kill + 0.5) / row.kills))
            code, _ = bases.run(folder, row.command, look, 0.02 * (kill % 3))
            struck += code == -signal.SIGKILL
            if row.command.split()[0] in WRITING:
                died += len(root_status(root)["under_way"])
            if whole_look and read_served(root) is not None:
                assert answers(root) in known
            if kill % (2 * often) == often:
                findings = examine(root)
                found += len(findings)
                assert all(one.mended for one in findings), findings
            began = time.monotonic()
            code, _ = bases.run(folder, row.command)
            slowest = max(slowest, time.monotonic() - began)
            # An export that was whole already is not written over.
            assert code == 0 or (folder / "out").exists(), (folder / "words").read_text()
            if row.command.split()[0] in WRITING:
                assert root_status(root)["under_way"] == []
                assert read_runs(root)[0]["state"] in GOOD
                told += require_told(folder / "told")
        require_whole(given) if given else None
        now = held(folder)
        assert {part: now[part] for part in now if now[part] != expected.get(part)} == {}
        assert doubled(root) == 0
        assert row.command.split()[0] != "forget" or holding(root, (FIRST, HEAD)) == set()
        if whole_look:
            findings = examine(root)
            found += len(findings)
            assert all(one.mended for one in findings), findings
            again = answers_of(folder)
            assert {version: again[version] for version in left} == {v: kept[v] for v in left}
        shutil.rmtree(folder)
    sys.stdout.write(
        f"| {name} | {struck} of {row.kills}, {died} told | 0 | 0 | the next one, {slowest:.1f} s; "
        f"doctor {found}; {told} events |\n"
    )
    assert marked(bases.environment["MARK_OF_A_TEST"]) == []
