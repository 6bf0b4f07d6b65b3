"""The methods that ask an LLM: its decomposer with other wordings and hints, its reranker, and baselines."""

from __future__ import annotations

from tasks.evaluate.compose.llm_baselines import direct, react
from tasks.evaluate.compose.methods import HINTS, Asking, Cutter, PlanMethod, composed, nearest, with_found
from tasks.evaluate.compose.requests import KnownRequest
from tasks.models.llm.fallbacks import FallbackLlm
from tasks.retrieve.compose.llm import OWN, PAPER, HybridDecomposer, LlmDecomposer, Wording, llm_reranker
from tasks.retrieve.compose.local import LocalDecomposer
from tasks.retrieve.compose.rounds import HINTS as DEFAULT_HINTS
from tasks.retrieve.compose.rounds import Decomposer


def llm_methods(llm: FallbackLlm, certain: float) -> dict[str, PlanMethod]:
    """Return the methods of `NEED_ENDPOINT` by name.

    - `llm-r0` to `llm-r3` and `llm-hints-...` are the command's `--decomposer llm` with other options.
    - `hybrid` and `llm-rerank` are the command's too; the latter reranks what `llm-r1` finds.
    - `paper` has SkillWeaver's prompts and its retriever.
    - `llm-gold-count` is told the number of steps in the paper's words (section 7.6).
    - `llm-direct` and `react` are its baselines (section 7.3).

    Where the model gives no usable answer the local decomposer does, except in the baselines, which then
    have no step; `llm.fallbacks` counts it.

    Args:
        llm: Is asked.
        certain: The certainty above which `hybrid` takes the local draft.
    """
    own = _cut_by(llm)
    return {
        **{f"llm-r{rounds}": composed(own, rounds=rounds) for rounds in range(4)},
        **{f"llm-hints-{hints}": composed(own, hints=hints) for hints in HINTS if hints != DEFAULT_HINTS},
        "hybrid": composed(_hybrid(llm, certain)),
        "paper": with_found(composed(_cut_by(llm, PAPER)), nearest(body=False)),
        "llm-gold-count": composed(_cut_by(llm, PAPER, counted=True), rounds=0),
        "llm-rerank": composed(own, reranker=llm_reranker(llm)),
        "llm-direct": direct(llm),
        "react": react(llm),
    }


def _cut_by(llm: FallbackLlm, wording: Wording = OWN, *, counted: bool = False) -> Cutter:
    def cutter(asking: Asking, request: KnownRequest) -> LlmDecomposer:
        exactly = len(request.needed.steps) if counted else None
        with asking.index.version() as now:
            encoder = now.encoder
        local = LocalDecomposer(exactly=exactly)
        return LlmDecomposer(llm, local, encoder, wording=wording, exactly=exactly)

    return cutter


def _hybrid(llm: FallbackLlm, certain: float) -> Cutter:
    def cutter(asking: Asking, _request: KnownRequest) -> Decomposer:
        with asking.index.version() as now:
            encoder = now.encoder
        local = LocalDecomposer()
        return HybridDecomposer(local, LlmDecomposer(llm, local, encoder), certain)

    return cutter
