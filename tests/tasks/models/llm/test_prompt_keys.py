"""The keys of answers stay: what was answered before a prompt was written otherwise is not asked again."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from storage.answers import Answers, KeptAnswer
from storage.schemas import Node
from tasks.evaluate.generate.requests import PROMPT as REQUESTS
from tasks.evaluate.generate.requests import values_of as about_skill
from tasks.evaluate.judge.judge import PROMPT as JUDGE
from tasks.evaluate.judge.judge import Case, LlmJudge
from tasks.evaluate.judge.judge import values_of as about_case
from tasks.induce.llm_inducer.windows import PROMPT as WINDOWS
from tasks.induce.llm_inducer.windows import ShownWindow
from tasks.induce.llm_inducer.windows import values_of as about_windows
from tasks.models.llm.prompt import Prompt, Values
from tasks.models.llm.question import Sampling
from tasks.parse.classify.llm import PROMPT as CLASSIFY
from tasks.parse.classify.llm import values_of as about_fragments
from tasks.parse.classify.protocol import FragmentInContext
from tasks.parse.edges.windows import PROMPT as EDGES
from tasks.parse.edges.windows import values_of as about_nodes
from tasks.parse.edges.windows import windows
from tasks.retrieve.routing.skill import Skill
from tests.support.llm.llm_asking import llm_of

SKILL = Skill(
    "market/bees/guide", "bees", "How to keep <bees>.",
    "# Bees\n\nOpen the hive.\n\nSmoke it gently, then wait a minute.\n",
)  # fmt: skip
CASE = Case("d", "How?", "So.")
FRAGMENTS = [
    FragmentInContext(
        f"market/bees#{k}", ("Bees", "Care"), "prose", None, f"Open the hive {k}.", "Next."
    )
    for k in range(3)
]  # fmt: skip


def node(ordinal: int, node_type: str, text: str) -> Node:
    return Node(
        f"market/bees#{ordinal}", "market/bees", ordinal, node_type, ("Bees",), None, "prose", 0, 1, text, 3,
        "x", 0.9,
    )  # fmt: skip


NODES = [
    node(0, "precondition", "You need a veil."), node(1, "step", "Open the hive."),
    node(2, "step", "Smoke it."), node(3, "concept", "See Smoke."),
]  # fmt: skip
ALL, *_ = windows(NODES, 20, candidates_only=False)
ONLY, *_ = windows(NODES, 20, candidates_only=True)
SHOWN = [ShownWindow(0, {"does": "x", "code": "def f(): ..."}), ShownWindow(1, {"does": "y", "code": "z"})]


@pytest.mark.parametrize(
    ("prompt", "values", "key"),
    [
        (
            CLASSIFY,
            about_fragments(FRAGMENTS),
            "e52d2ba49f00e7ec",
        ),
        (
            EDGES,
            about_nodes(NODES, ALL, "market/bees"),
            "1af80fafc467b9f1",
        ),
        (
            EDGES,
            about_nodes(NODES, ONLY, "market/bees"),
            "88d37417a64440e6",
        ),
        (JUDGE, about_case(CASE, 0), "6504a37b80d363fb"),
        (JUDGE, about_case(CASE, 2), "c60d42cd1e09affa"),
        (
            WINDOWS,
            about_windows(SHOWN, Sampling()),
            "db921a5a7c914ca6",
        ),
        (
            REQUESTS,
            replace(about_skill(SKILL), sampling=Sampling(max_tokens=4096)),
            "0ceaaf8c816e7d3b",
        ),
    ],
)
def test_a_question_has_the_key_that_it_always_had(prompt: Prompt[object], values: Values, key: str) -> None:
    sampling = values.sampling or Sampling()
    assert prompt.question(values, sampling).key("m")[:16] == key


def test_an_answer_that_was_kept_before_is_found(answers: Answers) -> None:
    llm = llm_of("http://127.0.0.1:9/v1", answers)
    for vote in range(3):
        key = JUDGE.question(about_case(CASE, vote), Sampling()).key(llm.model)
        said = json.dumps({"missing": "", "sufficient": vote != 1})
        now = datetime.now(UTC).isoformat()
        answers.keep(KeptAnswer(key, llm.model, "judge-1", vote, said, None, 1, 1, now), ("d",))
    (verdict,) = LlmJudge(llm).judge([CASE]).verdicts
    assert verdict.votes == (True, False, True)
    assert (llm.ledger.counts["cached"], llm.ledger.counts["requests"]) == (3, 0)
