"""A reranker by its name: a causal model that says yes or no, or a cross-encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from tasks.models.hub import require_on_hub
from tasks.models.protocols import Tokenizer
from tasks.models.with_torch.causal_reranker import CausalReranker
from tasks.models.with_torch.cross_encoder import CrossEncoder, PairScorer, missing_model


class LoadedReranker(PairScorer, Tokenizer, Protocol):
    """Scores texts against a query, and cuts them by its own tokens."""


def load_reranker(name: str, *, instruction: str, max_tokens: int, device: str) -> LoadedReranker:
    """Return the reranker of a checkpoint, published or trained here, by the architecture it names.

    Args:
        name: A folder or a hub id.
        instruction: What a causal one is told before each pair; a cross-encoder reads none.
        max_tokens: Of a text, that a cross-encoder reads.
        device: As `tasks.models.with_torch.device.device_of` takes it.

    Raises:
        ModelMismatch: A folder holds no model.
        TerminalError: The hub has no such model, or it cannot be asked.
    """
    if not Path(name).is_dir():
        require_on_hub(name)
    import transformers  # noqa: PLC0415 (torch: seconds, megabytes)

    library: Any = transformers
    try:
        config = library.AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise missing_model(name, error) from error
    if any(kind.endswith("ForCausalLM") for kind in config.architectures or ()):
        return CausalReranker(name, instruction=instruction, device=device)
    return CrossEncoder(name, max_tokens=max_tokens, device=device)
