"""The LLM that plans are made with, for the command: it takes tasks apart, and reranks candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from flows.settings import Settings
from storage.errors import WrongInput
from storage.root import Root
from tasks.retrieve.compose.compose import ComposeOptions, compose
from tasks.retrieve.compose.local import LocalDecomposer
from tasks.retrieve.served_index import ServedIndex

LOCAL, LLM, HYBRID, PAPER = "local", "llm", "hybrid", "paper"
DECOMPOSERS = (LOCAL, LLM, HYBRID, PAPER)
INSTEAD = "such tasks are taken apart locally, such candidates keep their order"


@contextmanager
def planner(
    root: Root, settings: Settings, index: ServedIndex, options: ComposeOptions, *, decomposer: str,
    rerank: bool,
) -> Iterator[Callable[[str], dict[str, Any]]]:  # fmt: skip
    """Yield what plans a task; an LLM is opened, and its client loaded, only if it is to be asked.

    If it gave no answer, stderr says so at the end. Raises `WrongInput` if the decomposer is not known, or an
    LLM is to be asked and none is set up, and `NotPublished` if nothing is served.
    """
    if decomposer not in DECOMPOSERS:
        raise WrongInput(f"--decomposer {decomposer!r} is not known: choose one of {', '.join(DECOMPOSERS)}")
    if decomposer == LOCAL and not rerank:
        yield lambda task: compose(index, task, options)
        return
    from flows.commands.llm import opened_llm  # noqa: PLC0415
    from tasks.retrieve.compose import llm as by_llm  # noqa: PLC0415

    wording = by_llm.PAPER if decomposer == PAPER else by_llm.OWN

    with opened_llm(root, settings, INSTEAD) as llm:
        reranker = by_llm.llm_reranker(llm) if rerank else None

        def plan(task: str) -> dict[str, Any]:
            if decomposer == LOCAL:
                return compose(index, task, options, None, reranker)
            with index.version() as now:
                encoder = now.encoder
            local = LocalDecomposer(most=options.max_steps)
            asking = by_llm.LlmDecomposer(llm, local, encoder, wording=wording, most=options.max_steps)
            hybrid = by_llm.HybridDecomposer(local, asking, settings.compose_certainty)
            cut_by = hybrid if decomposer == HYBRID else asking
            return compose(index, task, options, cut_by, reranker)

        yield plan
