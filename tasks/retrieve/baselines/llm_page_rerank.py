"""Reranks the nodes of a page by an LLM's opinion, beside the scorer of the default method."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from storage.schemas import Node
from tasks.models.llm.ask import Fallback, Llm, if_too_long
from tasks.models.llm.prompt import Answer, Numbers, Prompt, Values
from tasks.models.llm.quoting import shortened
from tasks.retrieve.baselines.skillflow import HOTTER
from tasks.retrieve.paging.terms import Floats

_MOST_SENT = 4_000  # characters of a request
_HEADINGS = 120  # characters of the titles above a node, the last ones
_CHOICE = 20  # nodes: who names all of so many has not chosen, as a small model did in 20 of 20 pages


class _Needed(Answer):
    needed: Numbers


_PROMPT: Prompt[_Needed] = Prompt("page-needed-1", "tasks.retrieve/page_needed.txt", _Needed, hotter=HOTTER)


class LlmReranker:
    """Asks an LLM once which nodes a request needs, and weighs its answer by Bayes' rule.

    A node that it takes gains the log-odds of its accuracy, every other one loses as much. Nodes that do not
    fit one question are asked about by halves; without a usable answer to each, or if it names all of many,
    the scores stay, and `llm.fallbacks` counts it. Shown are the `nodes` with the best scores, of each
    so many `characters` from its two ends; `accuracy`, in (0.5, 1), is the share that it judges right.
    """

    def __init__(self, llm: Llm, *, accuracy: float = 0.8, nodes: int = 80, characters: int = 240) -> None:
        self.llm, self._accuracy, self._nodes, self._characters = llm, accuracy, nodes, characters

    def shifts(self, doc_id: str, nodes: Sequence[Node], query: str, scores: Floats) -> Floats | None:
        """Return what to add to each node's score, in log-odds, shape `(nodes,)`; None without an answer.

        Raises `LlmDenied` if the server denies access, or has no such model.
        """
        shown = np.sort(np.argsort(-scores, kind="stable")[: self._nodes])
        needed: list[int] = []
        for part, said in self._asked(doc_id, nodes, query, shown.tolist()):
            if isinstance(said, Fallback):
                self.llm.fell_back(_PROMPT, said)
                return None
            needed += [part[number - 1] for number in said.needed]
        if len(shown) >= _CHOICE and len(set(needed)) == len(shown):
            self.llm.fell_back(_PROMPT, "rejected")
            return None
        gain = math.log(self._accuracy / (1 - self._accuracy))
        # Nodes that were not shown lose too: they scored lower than all that were.
        found = np.full(len(nodes), -gain)
        found[needed] = gain
        return found

    def _asked(
        self, doc_id: str, nodes: Sequence[Node], query: str, shown: Sequence[int]
    ) -> list[tuple[Sequence[int], _Needed | Fallback]]:
        def values(part: Sequence[int]) -> Values:
            return self._values(doc_id, [nodes[n] for n in part], query)

        return self.llm.gather([self.llm.answer_parts(_PROMPT, shown, values, if_too_long)])[0]

    def _values(self, doc_id: str, nodes: Sequence[Node], query: str) -> Values:
        records: list[dict[str, object]] = [{"request": query[:_MOST_SENT]}]
        for number, node in enumerate(nodes, start=1):
            text = shortened(node.text, self._characters)
            headings = shortened(" > ".join(node.heading_path), _HEADINGS, "end")
            records.append({"node": number, "headings": headings, "text": text})
        request = f"Which of the {len(nodes)} nodes does the request need?"
        return Values(request, records, [doc_id], known=len(nodes))
