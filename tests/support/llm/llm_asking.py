"""What tests that ask an LLM share: an endpoint that waits for nothing, fragments, a classifier."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from storage.answers import Answers
from tasks.models.llm.answer_cache import AnswerCache, open_cache
from tasks.models.llm.ask import Llm
from tasks.models.llm.budget import Ledger
from tasks.models.llm.client import LLM_RETRY, Endpoint
from tasks.models.llm.question import Sampling
from tasks.parse.classify.llm import LlmClassifier
from tasks.parse.classify.local import LocalClassifier
from tasks.parse.classify.protocol import FragmentInContext
from tests.support.llm.llm_server import Asked, LlmServer, Say, sorted_out

_MISCHIEF = ("short", "extra", "prose", "wrong-ids", "twice", "seventh", "fenced", "no-json", "length", None)
_MISHAPS = ("rate", "500", "cut", "cut-stream", "stream", None, None)
FAULTS = {*_MISCHIEF, *_MISHAPS} - {None}

IMPATIENT = replace(LLM_RETRY, wait_min=0.0, wait_max=0.0)


def book_of(url: str, answers: Answers, ledger: Ledger | None = None, **settings: Any) -> AnswerCache:  # noqa: ANN401
    """Return a book whose retries wait for nothing but what a server asks for."""
    endpoint = Endpoint(url, "small-model", **{"timeout": 10.0, "retry": IMPATIENT, **settings})
    return open_cache(endpoint, answers, ledger or Ledger())


def llm_of(
    url: str,
    answers: Answers,
    ledger: Ledger | None = None,
    *,
    sampling: Sampling | None = None,
    **settings: Any,  # noqa: ANN401
) -> Llm:
    """Return an LLM whose retries wait for nothing but what a server asks for."""
    return Llm(book_of(url, answers, ledger, **settings), sampling)


def classifier_of(
    url: str,
    answers: Answers,
    ledger: Ledger | None = None,
    **settings: Any,  # noqa: ANN401
) -> LlmClassifier:
    return LlmClassifier(llm_of(url, answers, ledger, **settings), LocalClassifier())


def mischief(asked: Asked) -> str | None:
    """Answer each batch wrongly in its own way, the question that names the error rightly at times."""
    digest = hashlib.sha256(asked.key.encode()).digest()
    if asked.before == 0 and (mishap := _MISHAPS[digest[0] % len(_MISHAPS)]):
        return mishap
    return None if asked.corrected and digest[1] % 2 else _MISCHIEF[digest[2] % len(_MISCHIEF)]


def write_fragments(path: Path, fragments: Iterable[FragmentInContext], **fields: Any) -> Path:  # noqa: ANN401
    """Write fragments as the command takes them, each line with some fields more."""
    lines = [{"id": f.fragment_id, **asdict(f), **fields} for f in fragments]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def settings_of(server: LlmServer, **more: object) -> dict[str, str]:
    """Return the variables that name a server, with others (`MAX_COST=1`), and no waiting.

    Its types are believed, unless `ACCURACY` is None.
    """
    given = {"BASE_URL": server.url, "MODEL": "small-model", "ACCURACY": 0.79, **more}
    return {
        **{f"SKILLERY_LLM_{k}": str(v) for k, v in given.items() if v is not None},
        "SKILLERY_RETRY_WAIT_MAX": "0",
    }


@contextmanager
def llm_set_up(monkeypatch: pytest.MonkeyPatch, say: Say = sorted_out, **more: object) -> Iterator[LlmServer]:
    """Start a server, and set the variables that name it."""
    with LlmServer(say=say) as running:
        for name, value in settings_of(running, **more).items():
            monkeypatch.setenv(name, value)
        yield running


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
