"""A language model as the pager's reranker, for the command."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from flows.llm_settings import llm_options
from flows.settings import Settings
from storage.answers import Answers
from storage.root import Root
from tasks.models.llm_answers import open_book
from tasks.models.llm_budget import Ledger
from tasks.retrieve.flow_asking import FlowLlm
from tasks.retrieve.paging_rerank import LlmReranker, RerankNodes


@contextmanager
def paging_reranker(root: Root, settings: Settings) -> Iterator[LlmReranker]:
    """Hold a reranker whose answers are kept below the root.

    Where it gave no answer, standard error says so at the end: those pages are as they are without it.

    Raises:
        WrongInput: No language model is set up, or the package that asks is not installed.
    """
    options = llm_options(settings, "llm")
    assert options is not None  # noqa: S101 - None is for `local`
    made = RerankNodes(accuracy=settings.rerank_accuracy)
    with Answers(root) as answers:
        book = open_book(options.endpoint, answers, Ledger(options.prices, options.ceiling))
        llm = FlowLlm(book, options.sampling)
        yield LlmReranker(llm, made)
    if llm.fallbacks:
        reasons = ", ".join(f"{count} x {reason}" for reason, count in sorted(llm.fallbacks.items()))
        sys.stderr.write(f"the language model gave no answer ({reasons}): such pages are not reranked\n")
