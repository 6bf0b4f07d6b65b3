from __future__ import annotations

import pytest
import torch

from storage.errors import WrongInput
from tasks.models.with_torch.device import device_of


def test_the_processor_runs_models_where_nothing_faster_is_there() -> None:
    faster = torch.cuda.is_available() or torch.backends.mps.is_available()

    assert (device_of("auto") == "cpu") == (not faster)
    assert device_of("cpu") == "cpu"


@pytest.mark.parametrize("wanted", ["cuda:99", "a fast one", "gpu"])
def test_a_device_that_torch_has_not_is_named(wanted: str) -> None:
    with pytest.raises(WrongInput, match=f"SKILLERY_DEVICE='{wanted}' cannot be used here"):
        device_of(wanted)
