"""Texts that an LLM reads and writes of runs: redacted, checked before they are kept; states summed up."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import AfterValidator

from tasks.induce.skills.wording import SUMMED_BY, summed_up
from tasks.induce.trajectories.outline import without_ids
from tasks.models.llm.ask import Fallback, Llm
from tasks.models.llm.errors import Rejected
from tasks.models.llm.prompt import Prompt, Values
from tasks.models.llm.quoting import addresses_the_reader, shortened
from tasks.models.redact import redact
from tasks.models.visible import visible
from tasks.refine.risks.scan import scan

_LINK = re.compile(r"://|\bwww\.|\bmailto:|\]\(", re.IGNORECASE)
# A sentence about a page names what is done; it tells nobody what to do.
_SPOKEN_TO = re.compile(
    r"\b(?:you|yourself|assistants?|agents?|language models?|llms?|instructions?|prompts?)\b", re.IGNORECASE
)


def redacted(value: Any) -> Any:  # noqa: ANN401
    """Return a value of JSON with the secrets in its texts redacted."""
    if isinstance(value, dict):
        return {name: redacted(each) for name, each in value.items()}
    if isinstance(value, list):
        return [redacted(each) for each in value]
    return redact(value)[0] if isinstance(value, str) else value


def unfit(text: str) -> str | None:
    """Return why a text by an LLM may not be kept; None if it may.

    It may hold no secret, no link, no sign that is not seen, and nothing that addresses its reader: it was
    written about pages, and a page may have said it.
    """
    if visible(text) != text:
        return "holds line ends or signs that are not seen"
    if redact(text)[0] != text:
        return "holds what looks like a secret"
    if _LINK.search(text):
        return "holds a link"
    if _SPOKEN_TO.search(text) or gives_orders(text):
        return "addresses its reader"
    return None


def gives_orders(text: str) -> bool:
    """Tell whether a text tells a model what to do, or to run what is risky, as a label of a page may."""
    return addresses_the_reader(text) or bool(scan(text))


STATES = "states"  # stands for the document that an answer is about: `forget` of any run drops them all
_MOST_SAID = 2_000  # characters of a summary, whatever its tokens are


def _summary_of(text: str) -> str:
    """Return the summary that an answer is, in one line; `Rejected` if it may not be kept."""
    said = " ".join(text.split())
    if not 0 < len(said) <= _MOST_SAID:
        raise Rejected(f"the summary has {len(said)} characters, and 1 to {_MOST_SAID} are allowed")
    if wrong := unfit(said):
        raise Rejected(f"the summary {wrong}")
    return said


PROMPT: Prompt[str] = Prompt(
    "induce-summary-1", "tasks.induce/summary_rules.txt", Annotated[str, AfterValidator(_summary_of)],
    text=True,
)  # fmt: skip
Summarise = Callable[[str, str, str], str]  # an observation, its address and title: the state in few words


@dataclass(frozen=True, slots=True)
class StateWords:
    """How states are summed up, what decides the summary of a state, and the LLM that is asked, if any."""

    name: str = SUMMED_BY
    summarise: Summarise = summed_up
    llm: Llm | None = None

    def report(self) -> dict[str, Any] | None:
        """Return what the LLM was asked, as `Llm.report` has it; None without one."""
        return self.llm.report() if self.llm else None

    def unfinished(self) -> bool:
        """Tell whether the LLM may give summaries later for which the rule stands in now."""
        return self.llm is not None and self.llm.unfinished


BY_RULE = StateWords()


def summed_by(llm: Llm, tokens: int, characters: int) -> StateWords:
    """Return how an LLM sums up states, of so many characters at most, in so many tokens at most.

    Where it gives no summary that can be used, the rule does. A summary is kept with its question, which
    holds address, title and outline without ids, as far as it is read: a page that was only redrawn is asked
    about once. It raises `LlmDenied` if the server denies access.
    """
    sampling = replace(llm.sampling, max_tokens=tokens)

    def summarise(observation: str, url: str, title: str) -> str:
        seen = redacted({"url": url, "title": title, "outline": without_ids(observation)})
        seen["outline"] = shortened(seen["outline"], characters, "start")
        said = llm.ask(PROMPT, Values("Sum up the state.", [seen], (STATES,), sampling=sampling))
        return summed_up(observation, url, title) if isinstance(said, Fallback) else said

    return StateWords(f"{llm.name}:{PROMPT.name}:{tokens}:{characters}", summarise, llm)
