"""Rewrites requests in the words of a language model, and keeps those that still ask for the same steps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, TypeVar

from tasks.evaluate.generate.plans.grow import GrownRequest
from tasks.models.llm.answer_cache import AnswerCache
from tasks.models.llm.ask import run_blocking
from tasks.models.llm.asking import ask_until_right, together
from tasks.models.llm.errors import BudgetSpent, ContextOverflow, LlmRefused, LlmUnavailable, Rejected
from tasks.models.llm.parse_json import find_json
from tasks.models.llm.prompt import list_schema, messages_of, object_schema
from tasks.models.llm.question import Question, Sampling

T = TypeVar("T")
PROMPT = "plans-1"
"""Raised whenever a word of what is sent changes, in `data/re*_prompt.txt` or here."""

_LONGEST = 1200  # characters of a rewritten request
_MOST_STEPS = 20
_TEXT = {"type": "string"}
_LEFT = {BudgetSpent: "budget", LlmUnavailable: "unavailable"}


@dataclass(frozen=True, slots=True)
class _Asking(Generic[T]):
    """What is asked: the file of the rules, the words, the form of the answer, and what is made of it."""

    rules: str
    task: str
    schema: Mapping[str, Any]
    check: Callable[[str], T]


class _Discarded(NamedTuple):
    """Why a rewritten request is not used."""

    reason: str


@dataclass(slots=True)
class Rewritten:
    """Requests, rewritten where that succeeded; the others by reason: discarded, and left for a later run."""

    requests: list[GrownRequest]
    discarded: Counter[str] = field(default_factory=Counter)
    unfinished: Counter[str] = field(default_factory=Counter)


def rewrite(
    requests: Sequence[GrownRequest], products: Collection[str], book: AnswerCache, *, sampling: Sampling,
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> Rewritten:  # fmt: skip
    """Return requests in a model's words, in their order; one whose words do not pass stays as it was.

    A rewritten request is discarded if it names a product that the original does not (`names-another`) or no
    longer one that it does (`name-lost`), if the model, asked for the steps of what it wrote, lists another
    number (`steps`), or if it gave no usable answer (`rejected`, `refused`, `too-long`).

    Args:
        requests: What to rewrite.
        products: Names of all products known.
        book: Asks, and keeps the answers.
        sampling: How answers are drawn.
        report: Called with the requests done and their total.

    Raises:
        LlmDenied: The server lets nobody in, or has no such model.
    """
    found = Rewritten(list(requests))
    done = 0

    async def work(place: int) -> None:
        nonlocal done
        try:
            said = await _reworded(requests[place], products, book, sampling)
            if isinstance(said, _Discarded):
                found.discarded[said.reason] += 1
            else:
                found.requests[place] = replace(requests[place], query=said, rewritten=True)
        except (BudgetSpent, LlmUnavailable) as error:
            found.unfinished[_LEFT[type(error)]] += 1
        done += 1
        report(done, len(requests))

    async def all_of_them() -> None:
        async with book.opened():
            await together(work(place) for place in range(len(requests)))

    run_blocking(all_of_them())
    return found


async def _reworded(
    request: GrownRequest, products: Collection[str], book: AnswerCache, sampling: Sampling
) -> str | _Discarded:
    own = {step.product for step in request.steps if step.product}
    record = {"request": request.query, "things": len(request.steps), "products": sorted(own)}
    try:
        said = await _asked(book, sampling, _REWRITE, record)
        named = named_products(said, products)
        if named - named_products(request.query, products):
            return _Discarded("names-another")
        if not own <= named_products(said, own):
            return _Discarded("name-lost")
        steps = await _asked(book, sampling, _RECOUNT, {"request": said})
    except Rejected:
        return _Discarded("rejected")
    except ContextOverflow:
        return _Discarded("too-long")
    except LlmRefused:
        return _Discarded("refused")
    return said if steps == len(request.steps) else _Discarded("steps")


async def _asked(
    book: AnswerCache, sampling: Sampling, asking: _Asking[T], record: Mapping[str, object]
) -> T:
    def question(attempt: int, complaint: str | None) -> Question:
        messages = messages_of("tasks.evaluate", asking.rules, record, asking.task, complaint)
        return Question(PROMPT, messages, sampling, asking.schema, attempt)

    return await ask_until_right(book, question, lambda _: asking.check)


def _query(text: str) -> str:
    value = find_json(text)
    said = value.get("query") if isinstance(value, dict) else None
    if not isinstance(said, str) or not 0 < len(said.strip()) <= _LONGEST:
        reason = f'the answer is no object {{"query": "..."}} with a text of 1 to {_LONGEST} characters'
        raise Rejected(reason)
    return " ".join(said.split())


def _count(text: str) -> int:
    value = find_json(text)
    steps = value.get("steps") if isinstance(value, dict) else None
    if not isinstance(steps, list) or len(steps) > _MOST_STEPS or not all(isinstance(s, str) for s in steps):
        reason = f'the answer is no object {{"steps": [...]}} with at most {_MOST_STEPS} texts'
        raise Rejected(reason)
    return len(steps)


_REWRITE = _Asking("rewrite_prompt.txt", "Reword the request.", object_schema(query=_TEXT), _query)
_RECOUNT = _Asking(
    "recount_prompt.txt", "List the things to do.", object_schema(steps=list_schema(_TEXT)), _count
)


def named_products(text: str, products: Collection[str]) -> set[str]:
    """Return the products whose names stand in a text as words of their own, in whatever case."""
    return {name for name in products if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE)}
