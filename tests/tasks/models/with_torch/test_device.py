from __future__ import annotations

import pytest
import torch

from storage.errors import WrongInput
from tasks.models.with_torch import device
from tasks.models.with_torch.device import compute_in_bf16, device_of


def test_the_processor_runs_models_where_nothing_faster_is_there() -> None:
    faster = torch.cuda.is_available() or torch.backends.mps.is_available()
    assert (device_of("auto") == "cpu") == (not faster)
    assert device_of("cpu") == "cpu"


@pytest.mark.parametrize("wanted", ["cuda:99", "a fast one", "gpu"])
def test_a_device_that_torch_has_not_is_named(wanted: str) -> None:
    with pytest.raises(WrongInput, match=f"SKILLERY_DEVICE='{wanted}' cannot be used here"):
        device_of(wanted)


@pytest.mark.parametrize("able", [True, False])
def test_a_module_computes_in_bf16_where_the_processor_does_and_no_other_module_with_it(
    able: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "computes_bf16", lambda: able)
    module, other = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    compute_in_bf16(module, "cpu")
    assert module(torch.ones(1, 4)).dtype == (torch.bfloat16 if able else torch.float32)
    assert other(torch.ones(1, 4)).dtype == module.weight.dtype == torch.float32
