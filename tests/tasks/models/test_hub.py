from __future__ import annotations

import socket
from pathlib import Path

import pytest

from storage.errors import TerminalError, WrongInput
from tasks.models.hub import require_on_hub
from tasks.models.onnx_export import require_encoder
from tests.support.models.loopback_hub import loopback_hub
from tests.support.roots.skill_root import MINILM

ENDPOINT = "huggingface_hub.constants.ENDPOINT"


def test_a_model_that_the_hub_has_passes_and_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with loopback_hub(["someone/model"], gated=["someone/gated"]) as address:
        monkeypatch.setattr(ENDPOINT, address)
        require_on_hub("someone/model")
        require_encoder(tmp_path, "someone/model")
        with pytest.raises(TerminalError, match=rf"'no/such' is no folder, and {address} has none of that"):
            require_on_hub("no/such")
        with pytest.raises(TerminalError, match=rf"accept them at {address}/someone/gated, and set HF_TOKEN"):
            require_on_hub("someone/gated")
        with pytest.raises(WrongInput, match=r"^SKILLERY_ENCODER=no/such: .*; unset it to use the default$"):
            require_encoder(tmp_path, "no/such")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["./mine", "/no/such/folder", "a/b/c", "a b", ""])
def test_what_is_neither_a_folder_nor_a_name_is_said_without_asking(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ENDPOINT, "http://127.0.0.1:9")
    with pytest.raises(TerminalError, match="a model of a hub is named OWNER/MODEL"):
        require_on_hub(name)


def test_a_hub_that_does_not_answer_is_named_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setattr(ENDPOINT, address)
        with pytest.raises(TerminalError) as caught:
            require_on_hub("someone/model")
    assert f"{address} cannot be asked for it: Failed to establish a new connection" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_packaged_encoder_and_an_exported_one_need_no_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ENDPOINT, "http://127.0.0.1:9")
    require_encoder(tmp_path, MINILM)


def test_a_folder_without_weights_is_named(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match=r"SKILLERY_ENCODER=.*holds none of model\.safetensors"):
        require_encoder(tmp_path / "models", str(tmp_path))
