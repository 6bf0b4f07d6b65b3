"""The scenario of use: how often an agent would pass with the skills that a method finds.

An agent passes a share of tasks without skills, and a larger one with the skills that they need. A method
gives it a share `c` of the gain: `without + c (with - without)`, where `c` is Hit@1 if one skill is enough,
R@10 if it gains by each of ten, FC@10 if it needs all (SkillRouter, tables 15 and 16). It is an estimate:
skills that are relevant in part, and those that mislead, are not in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from storage.errors import WrongInput
from storage.jsonl import read_lines, text_field

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
    msg = f"{source}: holds no agent; give lines {{agent, without, with}}, or name {SKILLSBENCH}"
    raise WrongInput(msg)


def _agents(path: Path) -> Iterator[PassRates]:
    for where, record in read_lines(path, "{agent, without, with}"):
        shares = [_share(record.get(key), where) for key in ("without", "with")]
        yield PassRates(text_field(record, "agent", where), *shares)


def _share(value: object, where: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    msg = f"{where}: `without` and `with` are shares of tasks from 0 to 1, got {value!r}"
    raise WrongInput(msg)


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
