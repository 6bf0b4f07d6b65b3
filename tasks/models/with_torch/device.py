"""Device: where models of torch run."""

from __future__ import annotations

from storage.errors import WrongInput

AUTO = "auto"


def device_of(wanted: str) -> str:
    """Return the name of a device; `auto` is CUDA's, else Apple's, else the processor.

    Raises:
        WrongInput: torch has no such device here.
    """
    import torch  # noqa: PLC0415 (seconds, megabytes)

    if wanted == AUTO:
        return _fastest()
    try:
        torch.zeros(1, device=wanted)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = str(error).splitlines()[0]
        msg = f"SKILLERY_DEVICE={wanted!r} cannot be used here ({why}): leave it out, or name cpu"
        raise WrongInput(msg) from error
    return wanted


def _fastest() -> str:
    import torch  # noqa: PLC0415 (seconds, megabytes)

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"
