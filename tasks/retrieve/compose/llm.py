"""The LLM of compose: a model takes a task apart, or names the best of a step's candidates.

Where it gives no usable answer, the local decomposer cuts the task, and the order of candidates stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationInfo

from tasks.models.llm.ask import Fallback, Llm
from tasks.models.llm.errors import Rejected
from tasks.models.llm.prompt import Answer, Prompt, Values, find_json, known_of, schema_of
from tasks.models.llm.question import Sampling
from tasks.models.protocols import Encoder
from tasks.retrieve.compose.candidates import StepReranker
from tasks.retrieve.compose.clauses import MOST_CLAUSES, aligned, clauses
from tasks.retrieve.compose.drafts import Draft
from tasks.retrieve.compose.ranking import Matcher
from tasks.retrieve.compose.rounds import Decomposer

Row = Mapping[str, Any]  # of the index
FALLBACK = "local:fallback"
LONGEST_STEP = 300  # characters
_HINTED = 120  # characters of a hint's description
_NO_STEPS = re.compile(r"\A\s*+(?:```\w*+\s*+)?(?:\{\s*+\"steps\"\s*+:\s*+)?\[\s*+\]\s*+\}?\s*+(?:```)?\s*+")


@dataclass(frozen=True, slots=True)
class Wording:
    """How a model is asked for steps: the rules, what it is shown, what it is asked, how the answer is drawn.

    `record` makes the data of a task and its hints; `ask` the request, given whether there are hints, the
    largest number of steps, and their number if it is told.
    """

    prompt: Prompt[list[str]]
    record: Callable[[str, Sequence[Row]], Mapping[str, Any]]
    ask: Callable[[bool, int, int | None], str]
    drawn: Mapping[str, Any]


def _own_record(task: str, hints: Sequence[Row]) -> Mapping[str, Any]:
    shown = [{"name": row["name"], "does": _short(row["description"])} for row in hints]
    return {"request": task, **({"services": shown} if hints else {})}


def _own_ask(hinted: bool, most: int, exactly: int | None) -> str:
    number = f"exactly {exactly} steps" if exactly else f"1 to {most} steps"
    by = " Cut it so that one of the services listed, where one fits, can do each step." if hinted else ""
    return f"List the steps of the request: {number}, a JSON list of strings.{by}"


def _paper_record(task: str, hints: Sequence[Row]) -> Mapping[str, Any]:
    return {**({"hint_list": ", ".join(row["name"] for row in hints)} if hints else {}), "query": task}


def _paper_ask(hinted: bool, _most: int, exactly: int | None) -> str:
    number = f"exactly {exactly} atomic sub-tasks" if exactly else "atomic sub-tasks"
    by = " Available skills that may be relevant: `hint_list`." if hinted else ""
    return f"Decompose the `query` of the data into {number}.{by}"


def _read_steps(text: str, info: ValidationInfo) -> list[str]:
    """Return the steps that an answer lists, each with single blanks; none, if it is an empty list.

    Raises `Rejected` if it is no JSON list of at most as many texts as are known of, of 1 to 300 characters.
    """
    if _NO_STEPS.fullmatch(text):
        return []
    value, most = find_json(text), known_of(info)
    listed = value.get("steps") if isinstance(value, dict) else value
    if not isinstance(listed, list) or not all(isinstance(step, str) for step in listed):
        raise Rejected("the answer is no JSON list of strings")
    if len(listed) > most:
        raise Rejected(f"the list has {len(listed)} steps, and at most {most} are allowed")
    # Halves of surrogate pairs can be written in JSON, and neither encoded nor printed.
    steps = [" ".join(step.encode(errors="replace").decode().split()) for step in listed]
    if wrong := [n for n, step in enumerate(steps, start=1) if not 0 < len(step) <= LONGEST_STEP]:
        size = len(steps[wrong[0] - 1])
        raise Rejected(f"step {wrong[0]} has {size} characters, and 1 to {LONGEST_STEP} are allowed")
    return steps


_Steps = Annotated[list[str], BeforeValidator(_read_steps)]


def _steps_prompt(name: str, rules: str) -> Prompt[list[str]]:
    return Prompt(name, f"tasks.retrieve.compose/{rules}", _Steps, text=True)


OWN = Wording(_steps_prompt("compose-steps-1", "steps_rules.txt"), _own_record, _own_ask, {})
# Appendix F; sampled as in section 6.
PAPER = Wording(
    _steps_prompt("compose-paper-1", "steps_paper_rules.txt"), _paper_record, _paper_ask,
    {"temperature": 0.1, "top_p": 0.9, "max_tokens": 256},
)  # fmt: skip


class LlmDecomposer:
    """Asks a model for the steps of one task, round by round; make one for each task.

    Once it gives no usable answer, the local decomposer drafts this and all later rounds of the task.
    `encoder` tells which words of the task say a step. `exactly`: their number, if the model is told.
    """

    def __init__(
        self, llm: Llm, local: Decomposer, encoder: Encoder, *, wording: Wording = OWN, most: int = 8,
        exactly: int | None = None,
    ) -> None:  # fmt: skip
        self._llm, self._local, self._encoder, self._wording = llm, local, encoder, wording
        self._most, self._exactly = max(most, exactly or 0), exactly
        self._sampling: Sampling = replace(llm.sampling, **wording.drawn)
        self._fell_back = False

    @property
    def name(self) -> str:
        """The name that a plan tells: the model's, unless the local decomposer had to answer."""
        return FALLBACK if self._fell_back else self._llm.name

    def decompose(self, task: str, hints: Sequence[int] | None, matcher: Matcher) -> Draft:
        """Return the draft of a task, as `Decomposer` says.

        Raises `LlmDenied` if the server denies access, or has no such model.
        """
        steps = None if self._fell_back else self._asked(task, matcher.index.rows(hints or ()))
        if steps:
            return _with_spans(task, steps, self._encoder)
        draft = self._local.decompose(task, hints, matcher)
        # That nothing is asked for is believed only if both say so.
        if steps is not None and draft.steps:
            self._llm.fell_back(self._wording.prompt, "no steps")
        self._fell_back = self._fell_back or steps is None or bool(draft.steps)
        return draft

    def _asked(self, task: str, hints: Sequence[Row]) -> list[str] | None:
        """Return what the model lists, which may be nothing; None without a usable answer."""
        wording = self._wording
        said = self._llm.ask(
            wording.prompt,
            Values(
                wording.ask(bool(hints), self._most, self._exactly),
                [wording.record(task, hints)],
                [row["doc_id"] for row in hints],
                known=self._most,
                sampling=self._sampling,
            ),
        )
        return None if isinstance(said, Fallback) else said


class HybridDecomposer:
    """Asks a model only about tasks of which the local decomposer is unsure; make one for each task.

    `llm`: answers from the first round on of which the local decomposer is unsure. `certain` is the certainty
    above which the local draft is taken.
    """

    def __init__(self, local: Decomposer, llm: LlmDecomposer, certain: float) -> None:
        self._local, self._llm, self._certain, self._unsure = local, llm, certain, False

    @property
    def name(self) -> str:
        """The name that a plan tells: of the one that drafted last."""
        return self._llm.name if self._unsure else self._local.name

    def decompose(self, task: str, hints: Sequence[int] | None, matcher: Matcher) -> Draft:
        """Return the draft of a task, as `Decomposer` says; raises as `LlmDecomposer.decompose`."""
        if not self._unsure:
            draft = self._local.decompose(task, hints, matcher)
            self._unsure = draft.certainty <= self._certain
            if not self._unsure:
                return draft
        return self._llm.decompose(task, hints, matcher)


def _with_spans(task: str, steps: Sequence[str], encoder: Encoder) -> Draft:
    found = clauses(task)
    vectors = encoder.encode([*steps, *(clause.text for clause in found[:MOST_CLAUSES])])
    return aligned(task, found, steps, vectors[: len(steps)] @ vectors[len(steps) :].T)


def _short(description: str | None, most: int = _HINTED) -> str:
    return " ".join((description or "").split())[:most]


class BestCandidate(Answer):
    """The number of the best candidate."""

    best: int


def _read_best(text: str, info: ValidationInfo) -> int:
    """Return the place from 0 that an answer names by one number, from 1 to as many as are known of.

    Raises `Rejected` if it names none.
    """
    most = known_of(info)
    if found := _NUMBER.fullmatch(text):
        number: Any = int(found[1])
    else:
        value = find_json(text)
        number = value.get("best") if isinstance(value, dict) else None
    if type(number) is not int or not 1 <= number <= most:
        reason = f'the answer is no object {{"best": number}} with a number from 1 to {most}'
        raise Rejected(reason)
    return number - 1


RERANK: Prompt[int] = Prompt(
    "compose-rerank-1",
    "tasks.retrieve.compose/step_rerank_rules.txt",
    Annotated[int, BeforeValidator(_read_best)],
    text=True,
)
_DESCRIBED = 140  # characters of a candidate's description
_NUMBER = re.compile(r"\A\s*+\[?\s*+(\d{1,6})\s*+\]?\s*+\.?\s*+")


def llm_reranker(llm: Llm) -> StepReranker:
    """Return what puts the candidate that a model names first (SkillWeaver, appendix K).

    The model sees the step alone, not the task, as in the paper. Numbers stand for rows, so that no answer
    can name what is not served. Raises `LlmDenied` as `LlmDecomposer`.
    """

    def order(step: str, rows: Sequence[Row]) -> list[int]:
        places = list(range(len(rows)))
        if len(rows) < 2:
            return places
        shown = [
            {"number": n, "category": row["category"] or "", "description": described(row["description"])}
            for n, row in enumerate(rows, start=1)
        ]
        best = llm.ask(
            RERANK,
            Values(
                f"Which of the {len(rows)} candidates does the step best?",
                [{"step": step, "candidates": shown}],
                [row["doc_id"] for row in rows],
                known=len(rows),
                schema=schema_of(BestCandidate),
            ),
        )
        return places if isinstance(best, Fallback) else [best, *(place for place in places if place != best)]

    return order


def described(text: str | None) -> str:
    """Return the beginning of a description in one line."""
    return _short(text, _DESCRIBED)
