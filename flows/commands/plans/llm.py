"""The LLM that plans are made with, for the command: it takes tasks apart, and reranks candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from flows.commands.llm.opened import is_set_up, opened_llm
from flows.settings import Settings
from storage.errors import WrongInput
from storage.root import Root
from tasks.models.llm.fallbacks import FallbackLlm
from tasks.retrieve.compose.decompose.draft import Decomposer
from tasks.retrieve.compose.decompose.llm import HybridDecomposer, LlmDecomposer
from tasks.retrieve.compose.decompose.local import LocalDecomposer
from tasks.retrieve.compose.llm_rerank import LlmStepReranker
from tasks.retrieve.compose.options import ComposeOptions
from tasks.retrieve.compose.protocol import StepReranker
from tasks.retrieve.served_index import ServedIndex

LOCAL, LLM, HYBRID = "local", "llm", "hybrid"
DECOMPOSERS = (LOCAL, LLM, HYBRID)
_INSTEAD = "such tasks are taken apart locally, such candidates keep their order"
_MEASURED = f"{_INSTEAD}, llm-direct and react have no plan"


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
    """Yield what plans are made with; an LLM is opened only if it is to be asked.

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
    with opened_llm(root, settings, _INSTEAD) as llm:

        def decomposer_of() -> Decomposer | None:
            if decomposer == LOCAL:
                return None
            with index.version() as now:
                encoder = now.encoder
            local = LocalDecomposer(most=options.max_steps)
            asking = LlmDecomposer(llm, local, encoder, most=options.max_steps)
            certain = settings.compose_certainty
            return asking if decomposer == LLM else HybridDecomposer(local, asking, certain)

        yield PlanMakers(decomposer_of, LlmStepReranker(llm) if rerank else None)


def measured_llm(
    root: Root, settings: Settings, *, wanted: bool
) -> AbstractContextManager[FallbackLlm | None]:
    """Return the context of the LLM that is measured if one is wanted and set up, else of None."""
    return opened_llm(root, settings, _MEASURED) if wanted and is_set_up(settings) else nullcontext()
