"""Summaries of states by an LLM: SGDR's Summarize(o) (section 4.2, appendix A.3.3); else by rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import AfterValidator

from tasks.induce.skills.wording import summed_up
from tasks.induce.texts.safeguards import redacted, unfit
from tasks.induce.trajectories.outline import without_ids
from tasks.models.llm.ask import Fallback, Llm
from tasks.models.llm.errors import Rejected
from tasks.models.llm.prompt import Prompt, Values
from tasks.models.llm.quoting import shortened

# The paper leaves both open; these are those of its release.
TOKENS = 160  # of a summary
CHARACTERS = 12_000  # of a state that are read
STATES = "states"  # stands for the document that an answer is about: `forget` of any run drops them all
_MOST_SAID = 2_000  # characters of a summary, whatever its tokens are


def _summary_of(text: str) -> str:
    """Return the summary that an answer is, in one line.

    Raises:
        Rejected: It is empty or very long, or may not be kept (`unfit`).
    """
    said = " ".join(text.split())
    if not 0 < len(said) <= _MOST_SAID:
        reason = f"the summary has {len(said)} characters, and 1 to {_MOST_SAID} are allowed"
        raise Rejected(reason)
    if wrong := unfit(said):
        reason = f"the summary {wrong}"
        raise Rejected(reason)
    return said


PROMPT: Prompt[str] = Prompt(
    "induce-summary-1",
    "tasks.induce/summary_rules.txt",
    Annotated[str, AfterValidator(_summary_of)],
    text=True,
)  # fmt: skip


class LlmSummaries:
    """Sums up states; where the model gives no summary that can be used, the rule does.

    A summary is kept with its question, which holds address, title and outline without ids, as far as it is
    read: a page that was only redrawn is asked about once.

    Args:
        llm: Is asked.
        tokens: The longest summary.
        characters: So much of a state is read.
    """

    def __init__(self, llm: Llm, tokens: int = TOKENS, characters: int = CHARACTERS) -> None:
        self._llm, self._characters = llm, characters
        self._sampling = replace(llm.sampling, max_tokens=tokens)

    @property
    def name(self) -> str:
        """All that decides a summary of the same state."""
        return f"{self._llm.name}:{PROMPT.name}:{self._sampling.max_tokens}:{self._characters}"

    def summary(self, observation: str, url: str = "", title: str = "") -> str:
        """Return a state in a few words: what page it is, and what one can do there.

        Args:
            observation: The page's outline, or what a tool or a person said.
            url: The page's address, where there is one.
            title: Its title.

        Raises:
            LlmDenied: The server denies access, or has no such model.
        """
        seen = redacted({"url": url, "title": title, "outline": without_ids(observation)})
        seen["outline"] = shortened(seen["outline"], self._characters, "start")
        values = Values("Sum up the state.", [seen], (STATES,), sampling=self._sampling)
        said = self._llm.ask(PROMPT, values)
        return summed_up(observation, url, title) if isinstance(said, Fallback) else said
