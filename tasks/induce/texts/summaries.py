"""Summaries of states by an LLM: SGDR's Summarize(o) (section 4.2, appendix A.3.3); else by rule."""

from __future__ import annotations

from dataclasses import replace

from tasks.induce.skills.wording import summed_up
from tasks.induce.texts.safeguards import redacted, unfit
from tasks.induce.trajectories.outline import without_ids
from tasks.models.llm.errors import Rejected
from tasks.models.llm.fallbacks import FallbackLlm, WrittenPrompt
from tasks.models.llm.parse_json import without_thoughts
from tasks.models.llm.quoting import shortened

PROMPT = WrittenPrompt("induce-summary-1", "tasks.induce", "summary_rules.txt")
# The paper leaves both open; these are those of its release.
TOKENS = 160  # of a summary
CHARACTERS = 12_000  # of a state that are read
STATES = "states"  # stands for the document that an answer is about: `forget` of any run drops them all
_MOST_SAID = 2_000  # characters of a summary, whatever its tokens are


class LlmSummaries:
    """Sums up states; where the model gives no summary that can be used, the rule does.

    A summary is kept with its question, which holds address, title and outline without ids, as far as it is
    read: a page that was only redrawn is asked about once.

    Args:
        llm: Is asked.
        tokens: The longest summary.
        characters: So much of a state is read.
    """

    def __init__(self, llm: FallbackLlm, tokens: int = TOKENS, characters: int = CHARACTERS) -> None:
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
        said = self._llm.ask_checked(
            PROMPT, seen, "Sum up the state.", summary_of, doc_ids=(STATES,), sampling=self._sampling
        )
        return summed_up(observation, url, title) if said is None else said


def summary_of(text: str) -> str:
    """Return the summary that an answer is, in one line.

    Raises:
        Rejected: It is empty or very long, or may not be kept (`unfit`).
    """
    said = " ".join(without_thoughts(text).split())
    if not 0 < len(said) <= _MOST_SAID:
        reason = f"the summary has {len(said)} characters, and 1 to {_MOST_SAID} are allowed"
        raise Rejected(reason)
    if wrong := unfit(said):
        reason = f"the summary {wrong}"
        raise Rejected(reason)
    return said
