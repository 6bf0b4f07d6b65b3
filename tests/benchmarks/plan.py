"""A plan for 1, 10 and 100 million skills: seconds, memory, disk, requests, money, and what breaks first.

`python -m tests.benchmarks.plan [ROOT]` prints Markdown. Its rates are those that the runs of ROOT have
measured, by what `run --dry-run` goes by; without one, the last column of the newest table of growth in
`storage/README.md`, which stands last there (`tests/benchmarks/growth.py`, two cores). It is a model: each
figure is a rate times what there is to do, for a root in S3 and workers of one core each; one also writes.
"""

# ruff: noqa: T201

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flows.commands import foresee
from storage.partitions import PARTITIONS
from storage.root import Root
from storage.state import GOOD, read_runs
from tests.support.paths import PROJECT

SIZES, WORKERS = (10**6, 10**7, 10**8), (1, 8, 64)
STAGES = ("crawl", "refine", "parse", "index")
README = PROJECT / "storage/README.md"

# Of a skill, as measured (storage/README.md): what it has, and the bytes of each.
_NODES, _TOKENS = 57, 2_100
_VECTOR, _STATE = 1_536, 48  # of a text; of a token
_SCANNED = (
    2 * _VECTOR // 6
)  # of a skill, that each search reads: of the encoder's vector, and the learned leg's
_POSTINGS = 2_460  # of a skill's 307 terms, as a search reads them
_MADE = 11_200 + _POSTINGS + 2 * _VECTOR + 1_700  # while postings are joined, beside them, vectors and tokens
_SEEN = 1_027  # bytes of a row of `seen` while a source is read: 227 in the table, 800 as an object
_NODE_ROW = 300  # bytes of a node's row while its partition is written
_SEARCH = 8.3e-3 / 200_000  # seconds of a core to scan both vectors of a skill
_TOKENS_A_SECOND = 12_500  # of one core, in bf16
_BATCH = (1_000, 0.13)  # documents of a batch on a cluster, and what it costs beside its work
_FIXED = 4_500  # requests of a build to a bucket, whatever its size: most by the partitions
_A_PART = 8  # requests of a raw part of 100 documents: two files and their entries, written and read
_REPOSITORY = (10, 3, 5_000)  # skills, requests to the forge, and how many it answers an hour
# List prices, in US dollars: 1,000 requests that write, 1 GB for a month, a core for an hour.
_REQUESTS, _MONTH, _HOUR = 0.005, 0.023, 0.04
# What one machine has, and what a reader or an operator waits for.
_GIB, _DAY, _ANSWER = 64, 86_400, 1.0


class Rates(NamedTuple):
    """Seconds a skill of each stage on so many cores, and bytes a skill on disk without nodes' vectors."""

    seconds: Mapping[str, float]
    cores: int
    disk: float
    memory: float  # GiB of all processes at `memory_at` skills
    memory_at: int
    measured: str  # where seconds and disk were


def rates_of_readme(text: str) -> Rates:
    """Return the rates that the last column of the last table of growth has."""

    def last(row: str) -> float:
        *_, cells = re.findall(rf"^\| {re.escape(row)} \|(.*)\|$", text, re.MULTILINE)
        return float(cells.split("|")[-2].strip().split()[0].replace(",", ""))

    *_, head = re.findall(r"^\| \| (5,000 .*) \| slope \|$", text, re.MULTILINE)
    skills = int(head.split("|")[-1].strip().replace(",", ""))
    seconds = {stage: last(stage) / skills for stage in STAGES}
    size, memory = 1e9 * last("disk") / skills, last("memory of all processes")
    return Rates(seconds, 2, size, memory, skills, f"at {skills:,} skills")


def rates_of_root(root: Root, otherwise: Rates) -> Rates:
    """Return the rates that the last runs of a root have measured; its memory is nobody's record."""
    runs = [run for run in read_runs(root, 12) if run["state"] in GOOD]
    skills = max((run["documents"] or 0 for run in runs), default=0)
    if not skills:
        raise SystemExit(f"{root.uri}: no run of it has measured anything")
    made = 2 * skills  # documents, and a vector of each
    found, _ = foresee._seconds(runs, {"crawl": skills, "refine": skills, "parse": made, "index": made})
    size = sum(n for part, n in root.sizes().items() if part not in ("prefect", "models"))
    rates = {stage: found[stage] / skills for stage in STAGES}
    return otherwise._replace(seconds=rates, disk=size / skills, measured=f"by the last runs of {root.uri}")


class Build(NamedTuple):
    """What a first build of so many skills takes with so many workers."""

    stages: dict[str, float]
    encoding: float  # seconds of the nodes' vectors, which `--index skills` leaves out

    @property
    def seconds(self) -> float:
        return sum(self.stages.values())


def build(rates: Rates, skills: int, workers: int) -> Build:
    """Return the seconds of a first build: one process crawls and one writes the index, all others work."""
    batches = skills / _BATCH[0] * _BATCH[1] if workers > rates.cores else 0.0  # handed out by one process
    spread = {s: rates.seconds[s] * skills * rates.cores / workers + batches for s in ("refine", "parse")}
    alone = {stage: rates.seconds[stage] * skills for stage in ("crawl", "index")}
    stages = {stage: {**spread, **alone}[stage] for stage in STAGES}
    return Build(stages, skills * _TOKENS / _TOKENS_A_SECOND / workers)


def disk(rates: Rates, skills: int) -> tuple[float, float]:
    """Return the GB of a root, and of the nodes' vectors and tokens' states, each kept twice."""
    return skills * rates.disk / 1e9, 2 * skills * (_NODES * _VECTOR + _TOKENS * _STATE) / 1e9


def memory(rates: Rates, skills: int) -> dict[str, float]:
    """Return the GiB that each thing holds in one process."""
    held = {
        "`seen` while a source is read": _SEEN * skills,
        "the scan of vectors and the postings in memory": (_SCANNED + _POSTINGS) * skills,
        "the routing index while it is made": _MADE * skills,
        "one partition of nodes while it is written": _NODE_ROW * _NODES * skills / PARTITIONS,
    }
    return {what: n / 2**30 for what, n in held.items()}


def needs(rates: Rates, skills: int, workers: int) -> dict[str, float]:
    """Return by what could break what it needs, as a share of what there is."""
    made = build(rates, skills, workers)
    index, rest = made.stages["index"], made.seconds - made.stages["index"]
    held = {f"{what}: {gib:,.0f} GiB": gib / _GIB for what, gib in memory(rates, skills).items()}
    return {
        **held, f"the scan in time: {_SEARCH * skills:.1f} s": _SEARCH * skills / _ANSWER,
        f"one writer: {_hours(index)} of a first build in the index": index / _DAY,
        f"workers: {_hours(rest)} of a first build beside the index": rest / _DAY,
    }  # fmt: skip


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.1f} h" if seconds < 10 * _DAY else f"{seconds / _DAY:,.0f} days"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    first, *others = ("".join(f"| {cell} " for cell in row) + "|" for row in (head, *rows))
    return [first, "|---" * len(head) + "|", *others]


def _builds(rates: Rates) -> list[str]:
    rows = []
    for workers in WORKERS:
        for skills in SIZES:
            made, share = build(rates, skills, workers), needs(rates, skills, workers)
            first = max(share, key=lambda what: share[what])
            broken = f"{first}, {share[first]:,.1f} times what there is" if share[first] > 1 else "nothing"
            rows.append([
                f"{skills / 1e6:,.0f} M", str(workers), *(_hours(made.stages[stage]) for stage in STAGES),
                _hours(made.seconds), _hours(made.encoding), broken,
            ])  # fmt: skip
    head = ("skills", "workers", *STAGES, "first build", "nodes' vectors beside", "breaks first")
    return _table(head, rows)


def _holdings(rates: Rates) -> list[str]:
    rows = []
    for skills in SIZES:
        plain, vectors = disk(rates, skills)
        requests = _FIXED + _A_PART * skills / 100
        repositories = skills / _REPOSITORY[0]
        cores = rates.cores * sum(rates.seconds.values()) * skills
        encoding = skills * _TOKENS / _TOKENS_A_SECOND
        rows.append([
            f"{skills / 1e6:,.0f} M", *(f"{gib:,.1f} GiB" for gib in memory(rates, skills).values()),
            f"{_SEARCH * skills:.2f} s", f"{plain:,.0f} and {plain + vectors:,.0f} GB", f"{requests:,.0f}",
            _hours(repositories * _REPOSITORY[1] / _REPOSITORY[2] * 3600),
            *(f"${n:,.0f}" for n in (
                cores / 3600 * _HOUR + requests / 1000 * _REQUESTS, encoding / 3600 * _HOUR,
                plain * _MONTH, (plain + vectors) * _MONTH,
            )),
        ])  # fmt: skip
    head = (
        "skills", "`seen`", "search", "index made", "a partition", "a search scans",
        "disk, with nodes' vectors", "requests to S3", "forge's quota", "build", "nodes' vectors",
        "disk a month", "with vectors",
    )  # fmt: skip
    return _table(head, rows)


def plan(rates: Rates) -> str:
    """Return the plan as Markdown."""
    made = memory(rates, SIZES[0])["the routing index while it is made"]
    skills, requests, quota = _REPOSITORY
    first = (
        f"A first build with `--index skills`, by workers of one core each; seconds and disk as measured "
        f"{rates.measured}.\nA machine has {_GIB} GiB, a build a day, a search {_ANSWER:.0f} s.\n"
        f"All processes together took {rates.memory:g} GiB at {rates.memory_at:,} skills; "
        f"at a million making the routing index alone takes {made:.1f} GiB."
    )
    last = (
        f"Forge's quota: {requests} requests a repository of {skills} skills, {quota:,} an hour. Requests to "
        f"S3 are without bundled files,\ntwo each. Money at list prices: ${_HOUR} a core and hour, "
        f"${_REQUESTS} for 1,000 requests, ${_MONTH} a GB and month."
    )
    said = "What each size holds, whatever the workers, and what it costs:"
    lines = [first, "", *_builds(rates), "", said, "", *_holdings(rates), "", last]
    return "\n".join(lines)


if __name__ == "__main__":
    measured = rates_of_readme(README.read_text("utf-8"))
    print(plan(rates_of_root(Root(sys.argv[1]), measured) if sys.argv[1:] else measured))
