"""What tests that ask an LLM share: an endpoint that waits for nothing, fragments, a classifier."""

from __future__ import annotations

from typing import Any

from storage.answers import Answers
from tasks.models.llm_answers import AnswerBook, open_book
from tasks.models.llm_budget import Ledger
from tasks.models.llm_endpoint import Endpoint
from tasks.models.llm_retry import LlmRetryPolicy
from tasks.parse.classify import FragmentInContext
from tasks.parse.llm import LlmClassifier
from tasks.parse.local import RuleClassifier

IMPATIENT = LlmRetryPolicy(wait_min=0.0, wait_max=0.0)


def book_of(url: str, answers: Answers, ledger: Ledger | None = None, **settings: Any) -> AnswerBook:  # noqa: ANN401
    """Return a book whose retries wait for nothing but what a server asks for."""
    endpoint = Endpoint(url, "small-model", **{"timeout": 10.0, "retry": IMPATIENT, **settings})
    return open_book(endpoint, answers, ledger or Ledger())


def classifier_of(
    url: str,
    answers: Answers,
    ledger: Ledger | None = None,
    **settings: Any,  # noqa: ANN401
) -> LlmClassifier:
    return LlmClassifier(book_of(url, answers, ledger, **settings), RuleClassifier())


def fragments_of(documents: int, each: int) -> list[FragmentInContext]:
    """Return fragments as nodes of documents, with their neighbours."""
    found = []
    for document in range(documents):
        texts = [f"Guide {document}: turn knob {k} a little to the left." for k in range(each)]
        around = [None, *texts, None]
        found += [
            FragmentInContext(
                fragment_id=f"market/guide-{document}#{k}",
                heading_path=(f"Guide {document}", "Knobs"),
                block="list_item",
                previous=around[k],
                text=text,
                next=around[k + 2],
            )
            for k, text in enumerate(texts)
        ]
    return found
