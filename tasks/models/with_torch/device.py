"""Device: where models of torch run."""

from __future__ import annotations

from typing import Any

from storage.errors import WrongInput
from tasks.models.engine import computes_bf16

AUTO = "auto"


def device_of(wanted: str) -> str:
    """Return the name of a device; `auto` is CUDA's, else Apple's, else the processor.

    Raises:
        WrongInput: torch has no such device here.
    """
    import torch  # noqa: PLC0415 (seconds, megabytes)

    if wanted == AUTO:
        fastest = "mps" if torch.backends.mps.is_available() else "cpu"
        return "cuda" if torch.cuda.is_available() else fastest
    try:
        torch.zeros(1, device=wanted)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = str(error).splitlines()[0]
        msg = f"SKILLERY_DEVICE={wanted!r} cannot be used here ({why}): leave it out, or name cpu"
        raise WrongInput(msg) from error
    return wanted


def compute_in_bf16(module: Any, wanted: str) -> None:  # noqa: ANN401 (of torch, which is loaded late)
    """Have a module compute in bf16 where the device does so itself: two thirds of the time to train it.

    `wanted` is as `device_of` takes it. Weights and what is added up stay float32.
    """
    import torch  # noqa: PLC0415 (seconds, megabytes)

    kind = torch.device(device_of(wanted)).type
    if kind == "cpu":
        able = computes_bf16()
    else:
        # Trained on several, each would run the first one's module.
        able = kind == "cuda" and torch.cuda.device_count() == 1
        able = able and torch.cuda.is_bf16_supported(including_emulation=False)
    if able:
        # Not by the trainers' own setting: it holds for all that this process trains afterwards, and bf16
        # loses too much of a reranker's scores, which are no cosines.
        module.forward = torch.autocast(kind, torch.bfloat16)(module.forward)
