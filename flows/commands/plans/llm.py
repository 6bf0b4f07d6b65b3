"""The LLM that plans are made with, for the command: it takes tasks apart, and reranks candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from flows.settings import Settings
from storage.errors import WrongInput
from storage.root import Root
from tasks.retrieve.compose.candidates import StepReranker
from tasks.retrieve.compose.compose import ComposeOptions
from tasks.retrieve.compose.local import LocalDecomposer
from tasks.retrieve.compose.rounds import Decomposer
from tasks.retrieve.served_index import ServedIndex

LOCAL, LLM, HYBRID = "local", "llm", "hybrid"
DECOMPOSERS = (LOCAL, LLM, HYBRID)
INSTEAD = "such tasks are taken apart locally, such candidates keep their order"


@dataclass(frozen=True, slots=True)
class PlanMakers:
    """What plans are made with: for each task a decomposer of its own (None: the local one), a reranker."""

    decomposer: Callable[[], Decomposer | None] = lambda: None
    reranker: StepReranker | None = None


@contextmanager
def plan_makers(
    root: Root,
    settings: Settings,
    index: ServedIndex,
    options: ComposeOptions,
    *,
    decomposer: str,
    rerank: bool,
) -> Iterator[PlanMakers]:
    """Yield what plans are made with; an LLM is opened, and its client loaded, only if it is to be asked.

    If it gave no answer, stderr says so at the end.

    Raises:
        WrongInput: The decomposer is not known, or an LLM is to be asked and none is set up.
        NotPublished: Nothing is served.
    """
    if decomposer not in DECOMPOSERS:
        msg = f"--decomposer {decomposer!r} is not known: choose one of {', '.join(DECOMPOSERS)}"
        raise WrongInput(msg)
    if decomposer == LOCAL and not rerank:
        yield PlanMakers()
        return
    from flows.commands.llm import opened_llm  # noqa: PLC0415
    from tasks.retrieve.compose.llm import HybridDecomposer, LlmDecomposer, llm_reranker  # noqa: PLC0415

    with opened_llm(root, settings, INSTEAD) as llm:

        def decomposer_of() -> Decomposer | None:
            if decomposer == LOCAL:
                return None
            with index.version() as now:
                encoder = now.encoder
            local = LocalDecomposer(most=options.max_steps)
            asking = LlmDecomposer(llm, local, encoder, most=options.max_steps)
            certain = settings.compose_certainty
            return asking if decomposer == LLM else HybridDecomposer(local, asking, certain)

        yield PlanMakers(decomposer_of, llm_reranker(llm) if rerank else None)
