from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import WrongInput
from tasks.evaluate.routing.scenario import COVERAGES, SKILLSBENCH, PassRates, read_agents, scenario

SHARE = st.floats(0, 1)
PAPER = {"method": "primary", "hit@1": 0.740, "recall@10": 0.704, "fc@10": 0.520}


def test_the_papers_estimates_come_out_of_its_coverages() -> None:
    (found,) = scenario([PAPER], read_agents(SKILLSBENCH))

    assert [round(100 * found["mean"][m], 1) for m in COVERAGES] == [36.3, 35.8, 32.8]
    opus = next(a for a in found["agents"] if a["agent"] == "Claude Code (Opus 4.5)")
    assert [round(100 * opus[m], 1) for m in COVERAGES] == [39.2, 38.4, 34.1]


@given(SHARE, SHARE, SHARE)
def test_an_agent_passes_between_its_rates_without_and_with_skills(c: float, low: float, high: float) -> None:
    agent = PassRates("any", min(low, high), max(low, high))
    (found,) = scenario([{"method": "m", **dict.fromkeys(COVERAGES, c)}], [agent])

    assert agent.without - 1e-9 <= found["mean"]["hit@1"] <= agent.with_skills + 1e-9


@pytest.mark.parametrize(
    "line",
    [
        '{"agent": "a", "without": 0.2}',
        '{"agent": "a", "without": 20, "with": 40}',
        '{"without": 0, "with": 1}',
    ],
)
def test_an_agent_without_its_rates_is_refused(line: str, tmp_path: Path) -> None:
    path = tmp_path / "agents.jsonl"
    path.write_text(line + "\n", "utf-8")

    with pytest.raises(WrongInput, match=r"agents.jsonl"):
        read_agents(str(path))


def test_a_file_without_agents_is_refused(tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").write_text("", "utf-8")

    with pytest.raises(WrongInput, match="holds no agent"):
        read_agents(str(tmp_path / "none.jsonl"))
