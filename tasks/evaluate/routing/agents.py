"""Agents: how often they would pass with the skills that a method finds, by published rates or measured ones.

An agent passes a share of tasks without skills, and a larger one with the skills that they need. A method
gives it a share `c` of the gain: `without + c (with - without)`, where `c` is Hit@1 if one skill is enough,
R@10 if it gains by each of ten, FC@10 if it needs all (SkillRouter, tables 15 and 16). It is an estimate:
skills that are relevant in part, and those that mislead, are not in it. The two rates of the LLM that is set
up are measured: how much of what authors expect it does without skills, and with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import polars as pl
from pydantic import AfterValidator

from storage.errors import WrongInput
from storage.jsonl import read_lines, text_field
from storage.schemas import Qrel
from tasks.evaluate.routing.data import RoutingQuery, best_skills
from tasks.models.llm.ask import Fallback, Llm, Report
from tasks.models.llm.errors import Rejected
from tasks.models.llm.prompt import Answer, Numbers, Prompt, Values
from tasks.models.llm.quoting import shortened
from tasks.retrieve.baselines.skillflow import HOTTER
from tasks.retrieve.routing.skill import Skill

SKILLSBENCH = "skillsbench"
COVERAGES = ("hit@1", "recall@10", "fc@10")


@dataclass(frozen=True, slots=True)
class PassRates:
    """An agent: the share of tasks in [0, 1] that it passes without skills, and with those needed."""

    name: str
    without: float
    with_skills: float


def read_agents(source: str) -> list[PassRates]:
    """Return the agents of a file of lines `{agent, without, with}`, or the seven of `skillsbench`.

    Raises:
        WrongInput: The file cannot be read or has no line, or a line is no such object.
    """
    if source == SKILLSBENCH:
        packaged = resources.files("tasks.evaluate").joinpath("data/skillsbench_agents.jsonl")
        with resources.as_file(packaged) as path:
            return list(_agents(path))
    if found := list(_agents(Path(source))):
        return found
    raise WrongInput(f"{source}: holds no agent; give lines {{agent, without, with}}, or name {SKILLSBENCH}")


def _agents(path: Path) -> Iterator[PassRates]:
    for where, record in read_lines(path, "{agent, without, with}"):
        shares = [_share(record.get(key), where) for key in ("without", "with")]
        yield PassRates(text_field(record, "agent", where), *shares)


def _share(value: object, where: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise WrongInput(f"{where}: `without` and `with` are shares of tasks from 0 to 1, got {value!r}")


def scenario(rows: Sequence[Mapping[str, Any]], agents: Sequence[PassRates]) -> list[dict[str, Any]]:
    """Return for each method, a row of `summarise_method`, the pass rates to be expected.

    Each has `method`, `coverage` (its `COVERAGES`), `mean` (by these, over agents) and `agents`: `agent`,
    `without`, `with`, and a pass rate by each coverage.
    """
    return [
        {
            "method": row["method"],
            "coverage": {measure: row[measure] for measure in COVERAGES},
            "mean": {m: sum(_passed(a, row[m]) for a in agents) / len(agents) for m in COVERAGES},
            "agents": [
                {
                    "agent": a.name, "without": a.without, "with": a.with_skills,
                    **{measure: _passed(a, row[measure]) for measure in COVERAGES},
                }
                for a in agents
            ],
        }
        for row in rows
    ]  # fmt: skip


def _passed(agent: PassRates, coverage: float) -> float:
    return agent.without + coverage * (agent.with_skills - agent.without)


_CHARACTERS = 24_000  # of a skill's body, from its two ends
_MOST_SENT = 20_000  # characters of a task, and of an answer


def _said(text: str) -> str:
    if said := text.strip():
        return said
    raise Rejected("the answer is empty")


class _Met(Answer):
    met: Numbers


_WORK: Prompt[str] = Prompt(
    "agent-answer-1", "tasks.evaluate/agent_rules.txt", Annotated[str, AfterValidator(_said)],
    text=True, hotter=HOTTER,
)  # fmt: skip
_JUDGE: Prompt[_Met] = Prompt(
    "agent-judge-1", "tasks.evaluate/agent_judge_rules.txt", _Met, hotter=HOTTER, whole=True
)


class Expected(NamedTuple):
    """A task, the skill that serves it best, and what its author expects of an answer, at least one thing."""

    task: str
    skill: Skill
    expectations: tuple[str, ...]


def read_expectations(path: Path) -> dict[str, tuple[str, ...]]:
    """Return by `query_id` what answers must do, out of lines `{query_id, assertions, expected_output}`.

    Without `assertions`, the one expectation is `expected_output`; lines that have neither are passed over.

    Raises:
        WrongInput: The file cannot be read, or a line is no such object; names file and line.
    """
    found = {}
    for where, record in read_lines(path, "{query_id, assertions, expected_output}"):
        whole = record.get("expected_output")
        listed = record.get("assertions") or ([whole] if whole else [])
        if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
            raise WrongInput(f"{where}: `assertions` is no list of texts")
        if listed:
            found[text_field(record, "query_id", where)] = tuple(listed)
    return found


def expected_of(
    tasks: Iterable[RoutingQuery],
    qrels: Sequence[Qrel],
    skills: pl.DataFrame,
    expectations: Mapping[str, tuple[str, ...]],
) -> list[Expected]:
    """Return the tasks of which something is expected, with their skills as `best_skills` finds them."""
    asked = [task for task in tasks if task.query_id in expectations]
    found = best_skills(asked, qrels, skills)
    return [Expected(task.text, skill, expectations[task.query_id]) for task, skill in found]


def measured_agent(llm: Llm, cases: Sequence[Expected], report: Report | None = None) -> PassRates:
    """Return the mean share of what is expected that an LLM's answers meet, without skill and with it.

    Each answer is judged by the same LLM. A task whose answer or judgement failed counts in neither share;
    `llm.fallbacks` says why. `report` is told of each task.

    Raises:
        LlmDenied: The server denies access, or has no such model.
        WrongInput: No task could be judged both ways.
    """

    async def both(case: Expected) -> tuple[float | None, float | None]:
        return await _met(llm, case, None), await _met(llm, case, case.skill)

    found = llm.gather((both(case) for case in cases), report)
    pairs = [(before, after) for before, after in found if before is not None and after is not None]
    if not pairs:
        msg = "no answer of the agent could be judged: see the counts of failures, or give --agents a file"
        raise WrongInput(msg)
    without, with_skills = np.mean(sorted(pairs), axis=0).tolist()
    return PassRates(f"{llm.model}, {len(pairs)} tasks", without, with_skills)


async def _met(llm: Llm, case: Expected, skill: Skill | None) -> float | None:
    """Return the share of expectations that an answer meets; None without answer or judgement."""
    records: list[dict[str, object]] = [{"request": case.task[:_MOST_SENT]}]
    if skill is not None:
        text = shortened(skill.body, _CHARACTERS)
        records.append({"skill": skill.name, "description": skill.description, "text": text})
    ids = [case.skill.doc_id]
    answer = await llm.answer(_WORK, Values("Do the request.", records, ids))
    if isinstance(answer, Fallback):
        return None
    listed: list[dict[str, object]] = [{"request": case.task[:_MOST_SENT], "answer": answer[:_MOST_SENT]}]
    listed += [{"number": n, "expectation": text} for n, text in enumerate(case.expectations, start=1)]
    count = len(case.expectations)
    said = await llm.answer(_JUDGE, Values("Which expectations are met?", listed, ids, known=count))
    return None if isinstance(said, Fallback) else len(set(said.met)) / count
