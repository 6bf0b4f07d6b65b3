"""The bench of agents that act, for the command: attempts at tasks by each method, and what came of them."""

from __future__ import annotations

import functools
import hashlib
import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from flows.commands.console import counts, folder_at, steps, write_report
from flows.commands.queries import open_index
from flows.commands.routing.searching import SEARCHING, other_ranker
from flows.commands.routing.settings import SkillFlowSettings, SkillRouterSettings, base_of
from flows.settings import Settings, asked_llm, is_set_up, load
from storage.answers import Answers
from storage.errors import EnvironmentStopped, EnvironmentUnusable, WrongInput
from storage.jsonl import write_lines
from storage.lance.served import read_served
from storage.root import Root
from tasks.evaluate.agents.agent import command_agent, llm_agent
from tasks.evaluate.agents.attempt import Act, GivenSkill, Limits, Supply, Turn, Unfinished, attempt
from tasks.evaluate.agents.memory import CER, LEARNED, Experiences, Memory, Procedures
from tasks.evaluate.agents.report import MEASURES, summarise_agents, task_row, terminal_blocks
from tasks.evaluate.agents.task import AgentTask, read_agent_tasks
from tasks.evaluate.measures.runs import long_table
from tasks.evaluate.measures.tables import markdown
from tasks.induce.library.held import HeldVerdicts, KeptTrajectories
from tasks.induce.library.judge import LlmTrajectoryJudge
from tasks.induce.replay.environment import SECONDS, CommandEnvironment
from tasks.induce.trajectories.record import Trajectory, trajectory_of
from tasks.models.cached_encoder import KeptEncoder
from tasks.models.encoder import OnnxEncoder
from tasks.models.llm.ask import Llm, open_cache, open_llm
from tasks.models.llm.budget import Ceiling, Ledger
from tasks.models.onnx_export import exported_encoder
from tasks.models.protocols import Vectors
from tasks.retrieve.page import DEFAULT_METHOD
from tasks.retrieve.revisions.edition import served_edition
from tasks.retrieve.routing.search import SkillRanker
from tasks.retrieve.suggest.stored import ServedSkills

NONE, ORACLE, PAGING, DEFAULT, LLM = "none", "oracle", "paging", "default", "llm"
MEMORIES = (*LEARNED, CER)
_TOOL, _COMMAND = "tool:", "command:"
_WARMER = 0.7  # the temperature of an LLM that is asked several times, where the settings name none
Found = dict[str, Any]


def agents_bench(
    root: Root, settings: Settings, *,
    tasks: str, agent: str = LLM, method: Sequence[str] | None = None, runs: int = 3, k: int | None = None,
    skills: int = 5, turns: int = 30, seconds: float = 600.0, minutes: float | None = None,
    online: bool = False, report: Path | None = None,
) -> Found:  # fmt: skip
    """Let an agent do tasks with what methods retrieve, several times each.

    The keywords are the options of `skillery evaluate agents`, whose help says what each is. `report` is a
    folder: each attempt is kept in its `runs/`, and not made again; `agents.md`, `agents.json`,
    `agents.parquet` (the run), `trajectories.jsonl` (what `skillery induce` reads), and where both `none` and
    `oracle` were measured `rates.jsonl`, which `evaluate routing --agents` reads.

    Returns `agent`, `runs`, `k`, `tasks`, `attempts` (made, kept), `unfinished` (by reason), `tokens` and
    `cost` of all attempts, `spent` (the same of this time, with attempts that were not ended), `methods`
    (rows of `summarise_agents`), and with a folder `report`. Raises `WrongInput` if a file, a method or the
    agent cannot be used, or no task was done by each method.
    """
    given, names, at = read_agent_tasks(tasks), list(dict.fromkeys(method or (NONE,))), k or runs
    if at > runs:
        raise WrongInput(f"-k {at} is more than --runs {runs}, from which Pass@k is told: give at most that")
    until = time.monotonic() + 60 * (float("inf") if minutes is None else minutes)
    # An LLM counts for itself, and answers that were kept as nothing.
    own = agent.startswith(_COMMAND)
    ceiling = Ceiling(settings.llm_max_total_tokens, settings.llm_max_cost) if own else Ceiling()
    limits = Limits(turns, seconds, until, ceiling)
    held = None if report is None else folder_at(report, "--report")
    with ExitStack() as stack:
        acting = _acting(root, settings, stack, agent, runs, seconds)
        sources = _Sources(root, settings, stack, given, skills, online=online)
        sources.require(names)
        bench = _Bench(given, acting, sources, limits, held)
        bench.run(names, runs, settings.llm_concurrency)
    rows, found = bench.told(names, at)
    account = acting.ledger or limits
    spent = {"tokens": account.tokens, "cost": round(account.cost, 6)}
    found |= {"agent": acting.name, "runs": runs, "k": at, "spent": spent}
    return found if report is None else found | {"report": _written(report, bench, rows, found)}


class _Agent(NamedTuple):
    """Makes the agent of an attempt by its number; `key` is all that its actions depend on.

    The `ledger` of an LLM counts what was asked this time: answers that were kept cost nothing again.
    """

    name: str
    key: str
    make: Callable[[int, Callable[[], float]], AbstractContextManager[Callable[[Turn], Act]]]
    ledger: Ledger | None = None


def _acting(
    root: Root, settings: Settings, stack: ExitStack, agent: str, runs: int, seconds: float
) -> _Agent:
    if agent.startswith(_COMMAND):
        return _Agent(agent, agent, partial(command_agent, agent.removeprefix(_COMMAND), seconds))
    if agent != LLM:
        raise WrongInput(f"--agent {agent} is not known: say {LLM} or {_COMMAND}CMD")
    options = asked_llm(settings)
    endpoint, sampling = options.endpoint, options.sampling
    if runs > 1 and "llm_temperature" not in settings.model_fields_set:
        sampling = replace(sampling, temperature=_WARMER)
    ledger, answers = Ledger(options.prices, options.ceiling), stack.enter_context(Answers(root))

    def make(run: int, _left: Callable[[], float]) -> AbstractContextManager[Callable[[Turn], Act]]:
        # Each attempt has a client of its own, which counts what the attempt takes.
        return nullcontext(llm_agent(Llm(open_cache(endpoint, answers, ledger), sampling), run))

    return _Agent(f"llm:{endpoint.model}", repr((endpoint.base_url, endpoint.model, sampling)), make, ledger)


class _Stream(NamedTuple):
    """What a method gives in one run through all tasks; `learn` is None if it does not learn on the way."""

    supply: Callable[[AgentTask], Supply]
    learn: Callable[[Trajectory], None] | None = None


class _Sources:
    """Where methods get skills from: the index, and what was learned; each is opened at its first use."""

    def __init__(
        self, root: Root, settings: Settings, stack: ExitStack, given: Sequence[AgentTask], k: int, *,
        online: bool,
    ) -> None:  # fmt: skip
        self._root, self._settings, self._stack, self._k = root, settings, stack, k
        self._given, self._online, self._index = given, online, open_index(root, settings)
        self._rankers: dict[str, SkillRanker | None] = {DEFAULT: None, PAGING: None}
        self._lock, self._found = threading.RLock(), dict[tuple[str, str], list[GivenSkill]]()
        self._streams: dict[str, _Stream] = {}

    def require(self, names: Sequence[str]) -> None:
        """Open what methods need, and retrieve what tasks are given; raise an error if that fails."""
        for name in names:
            searching = name.removeprefix(_TOOL)
            others = () if name != searching else (NONE, ORACLE, *MEMORIES)
            if searching not in (*others, *self._rankers):
                self._rankers[searching] = self._ranker(name, searching)
        with steps("retrieved for", len(names)) as step:
            for name in names:
                stream = self.stream(name)
                for task in () if name in MEMORIES else self._given:
                    stream.supply(task).at("", None)
                step()

    def _ranker(self, name: str, searching: str) -> SkillRanker:
        if base_of(searching) in SEARCHING:
            return self._stack.enter_context(other_ranker(self._root, self._settings, method=searching))
        known = ", ".join((NONE, ORACLE, *SEARCHING, PAGING, *MEMORIES))
        msg = f"--method {name} is not known: name one of {known}, or {_TOOL}METHOD to let the agent search"
        raise WrongInput(msg)

    def stream(self, name: str) -> _Stream:
        """Return what a method gives in one run through the tasks; all runs share it, unless it learns."""
        with self._lock:
            if self._online or name not in self._streams:
                self._streams[name] = self._stream(name)
            return self._streams[name]

    def _stream(self, name: str) -> _Stream:
        if name == NONE:
            return _Stream(lambda _: Supply(silent=True))
        if name.startswith(_TOOL):
            return _Stream(lambda _: Supply(find=partial(self._searched, name.removeprefix(_TOOL))))
        if name not in MEMORIES:
            return _Stream(lambda task: Supply(lambda *_: self._of_task(name, task)))
        own = {domain: self._memory(name, domain) for domain in {task.domain for task in self._given}}
        learn = (lambda one: own[one.domain].learn(one)) if self._online else None
        return _Stream(lambda task: own[task.domain].supply(task), learn)

    def _of_task(self, name: str, task: AgentTask) -> list[GivenSkill]:
        if (key := (name, task.task_id)) not in self._found:
            named = [self._named(one) for one in task.told.skills] if name == ORACLE else None
            self._found[key] = self._searched(name, task.instruction) if named is None else named
        return self._found[key]

    def _searched(self, name: str, query: str) -> list[GivenSkill]:
        """Return the skills that a search finds, none if nothing fits; their text is whole, or paged."""
        with self._lock:
            found = self._index.search(query, self._k, ranker=self._rankers[name])
            rows = [] if found["nothing_fits"] else found["results"]
            return [self._skill(row, query if name == PAGING else None) for row in rows]

    def _named(self, doc_id: str) -> GivenSkill:
        with self._index.version() as now:
            row = served_edition(self._root, self._index.locate(now, doc_id)[0]).row
        return self._skill({**row, "doc_id": doc_id}, None)

    def _skill(self, row: Mapping[str, Any], paged_for: str | None) -> GivenSkill:
        how = "full" if paged_for is None else DEFAULT_METHOD
        page = self._index.page(row["doc_id"], paged_for or row["name"], budget=None, method=how)
        return GivenSkill(row["doc_id"], row["name"], row["description"], page["context"])

    @functools.cached_property
    def _encoder(self) -> KeptEncoder:
        export = exported_encoder(self._root.folder / "models", self._settings.encoder)
        return KeptEncoder(OnnxEncoder(export), self._root)

    def _encode(self, texts: Sequence[str]) -> Vectors:
        with self._lock:
            return self._encoder.encode(list(texts))

    def _memory(self, name: str, domain: str) -> Memory:
        """Return a memory of what is served, for methods of windows, or of what `induce` was given."""
        pointer, kept, served = read_served(self._root), KeptTrajectories(self._root), None
        windowed = name != CER and LEARNED[name].granularity == "window"
        if windowed and pointer is not None and pointer.induced is not None:
            skills = ServedSkills(self._root, pointer)
            if domain in skills.domains:
                skills.encoder(self._settings.encoder, 1)  # refuses another one than that of the vectors
                served = skills.offered(domain, self._encode)
        own = (self._encode, self._k)
        memory = Experiences(*own) if name == CER else Procedures(LEARNED[name], *own, served)
        taught = [] if served else HeldVerdicts(self._root).successful(domain, kept.of(domain))
        for one in taught:
            memory.learn(one)
        if not (served or taught or self._online):
            msg = f"--method {name} has learned nothing of the domain {domain!r}: run `skillery induce` on"
            raise WrongInput(f"{msg} trajectories of it, or give --online")
        return memory

    def has_succeeded(self, trajectory: Trajectory) -> bool | None:
        """Return the verdict by which a stream learns: that of the LLM if one is set up (SGDR's E)."""
        if not is_set_up(self._settings):
            return trajectory.success
        with self._lock:
            return LlmTrajectoryJudge(self._judging).verdicts([trajectory])[0]

    @functools.cached_property
    def _judging(self) -> Llm:
        """The LLM of all verdicts, which have one ceiling."""
        return self._stack.enter_context(open_llm(self._root, asked_llm(self._settings)))

    def key(self) -> str:
        """Return all that what methods give depends on."""
        served, kept = read_served(self._root), KeptTrajectories(self._root).states()
        tasks = [one.digest for one in self._given] if self._online else []
        own = self._settings.rerank, self._settings.encoder
        how = (*own, load(SkillFlowSettings), load(SkillRouterSettings))
        return repr((served and served.version, kept, self._k, tasks, how))


class _Bench:
    """All attempts, made or kept from before; `records` has what came of each, by method and task."""

    def __init__(
        self, given: Sequence[AgentTask], acting: _Agent, sources: _Sources, limits: Limits, held: Root | None
    ) -> None:
        self._given, self._acting, self._sources, self._limits = given, acting, sources, limits
        self._held, self._key = held, repr((acting.key, sources.key(), limits.turns, limits.seconds))
        self.records: defaultdict[tuple[str, str], list[Found]] = defaultdict(list)
        self._left, self._counts, self._why = Counter[str](), Counter[str](), ""

    def run(self, names: Sequence[str], runs: int, at_once: int) -> None:
        """Make all attempts: runs through all tasks side by side, the tasks of each in their order."""
        streams = [(name, run) for run in range(runs) for name in names]
        with steps("done", len(streams) * len(self._given)) as step, ThreadPoolExecutor(at_once) as pool:
            try:
                for job in [pool.submit(self._run, *each, step) for each in streams]:
                    job.result()
            except BaseException:
                self._limits.until = 0.0  # the others end at their next turn
                raise

    def _run(self, name: str, run: int, step: Callable[[], None]) -> None:
        stream = self._sources.stream(name)
        for place, task in enumerate(self._given):
            try:
                record = self._attempted(stream, name, task, run)
            except Unfinished as reason:
                self._why = f": {reason.__cause__}" if reason.__cause__ else ""
                # What was learned of it would be missing from all that come after.
                self._left[str(reason)] += len(self._given) - place if stream.learn else 1
                if stream.learn:
                    return
                continue
            self.records[name, task.task_id].append(record)
            trajectory = trajectory_of(record["trajectory"])
            if stream.learn and self._sources.has_succeeded(trajectory):
                stream.learn(trajectory)
            step()

    def _attempted(self, stream: _Stream, name: str, task: AgentTask, run: int) -> Found:
        said = repr((task.digest, name, run, self._key))
        file = f"runs/{hashlib.sha256(said.encode()).hexdigest()[:32]}.json"
        if self._held is not None and (kept := self._held.read_json(file)) is not None:
            self._counts["kept"] += 1
            return kept
        self._limits.require()
        ends = time.monotonic() + self._limits.seconds

        def left(more: float = 0.0) -> float:
            return min(self._limits.until, ends + more) - time.monotonic()

        seconds, scoring = self._limits.seconds, partial(left, SECONDS)  # it scores what is left at the end
        try:
            with self._acting.make(run, left) as agent, task.opened(seconds, scoring) as process:
                environment, supply = CommandEnvironment(process), stream.supply(task)
                called = f"{name}/{task.task_id}/{run}"
                made = attempt(task, environment, agent, supply, self._limits, called)
        except (EnvironmentStopped, EnvironmentUnusable) as error:
            raise Unfinished("environment") from error
        record: Found = json.loads(json.dumps({"method": name, "task": task.task_id, "run": run, **made}))
        if self._held is not None:
            self._held.write_json(file, record)
        self._counts["made"] += 1
        return record

    def told(self, names: Sequence[str], k: int) -> tuple[list[Found], Found]:
        """Return the rows of tasks that each method did k times, and what is said of all attempts."""
        did = {task.task_id: [self.records[name, task.task_id] for name in names] for task in self._given}
        whole = [task for task in self._given if all(len(one) >= k for one in did[task.task_id])]
        if not whole:
            msg = (
                f"no task was done {k} times by each method, attempts are left ({counts(self._left)}): run it"
            )
            raise WrongInput(f"{msg} again{self._why}")
        rows = [
            {"method": name, "query_id": task.task_id, "domain": task.domain}
            | task_row(self.records[name, task.task_id], k, task.told.skills)
            for name in names for task in whole
        ]  # fmt: skip
        every = [one for each in self.records.values() for one in each]
        ended = {name: Counter(one["ended"] for one in every if one["method"] == name) for name in names}
        errors = {one["method"]: one["error"] for one in every if one["error"]}
        return rows, {
            "tasks": len(whole), "attempts": {name: self._counts[name] for name in ("made", "kept")},
            "unfinished": dict(sorted(self._left.items())), "tokens": sum(one["tokens"] for one in every),
            "cost": round(sum(one["cost"] for one in every), 6),
            "methods": summarise_agents(rows, ended, errors),
        }  # fmt: skip


def _written(folder: Path, bench: _Bench, rows: Sequence[Found], found: Found) -> list[str]:
    shown = [block for block in terminal_blocks(found) if isinstance(block, str) or block.rows]
    run = long_table("agents", pl.DataFrame(rows, infer_schema_length=None), MEASURES)
    files = write_report(folder, "agents", markdown(["# Agents that act", *shown]), [run], told=found)
    lines = {"trajectories": [one["trajectory"] for made in bench.records.values() for one in made]}
    rates = {row["method"]: row["pass@1"] for row in found["methods"]}
    if {NONE, ORACLE} <= rates.keys():
        lines["rates"] = [{"agent": found["agent"], "without": rates[NONE], "with": rates[ORACLE]}]
    for name, held in lines.items():
        write_lines(folder / f"{name}.jsonl", held)
    return [*files, *(str(folder / f"{name}.jsonl") for name in lines)]
