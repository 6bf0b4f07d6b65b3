"""Networks that training changes: the loop by which they learn, and their ONNX graph without weights.

`python -m tasks.train.networks` writes the packaged graph of the default encoder again.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx
import torch
from transformers import AutoModel

from tasks import models
from tasks.models.onnx_export import GRAPHS, resolve

_STATES = "last_hidden_state"
_WARM = 0.1  # share of the steps over which the rate rises; then it falls to 0
_CLIP = 1.0  # of the gradient's norm
Batch = TypeVar("Batch")


def train(
    network: torch.nn.Module, groups: Sequence[dict[str, Any]], batches: Callable[[], Sequence[Batch]],
    loss: Callable[[Batch], torch.Tensor], *, epochs: int, decay: float,
) -> None:  # fmt: skip
    """Train a network by AdamW, and leave it in evaluation mode; standard error tells the loss of each epoch.

    `groups` are parameters with their peak learning rate, as an optimizer of torch takes them; `batches`
    draws the batches of an epoch, as many each time; `decay` is of weights.
    """
    learned = [parameter for group in groups for parameter in group["params"]]
    optimizer = torch.optim.AdamW(list(groups), weight_decay=decay)
    drawn = batches()
    steps = epochs * len(drawn)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / (_WARM * steps), 1.0) * max(0.02, 1 - step / steps)
    )
    network.train()
    for epoch in range(epochs):
        losses = []
        for batch in drawn if epoch == 0 else batches():
            found = loss(batch)
            optimizer.zero_grad()
            found.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(learned, _CLIP)
            optimizer.step()
            schedule.step()
            losses.append(float(found.detach()))
        sys.stderr.write(f"epoch {epoch + 1} of {epochs}: loss {np.mean(losses):.3f}\n")
    network.eval()


def bare_graph(
    network: torch.nn.Module, example: Sequence[torch.Tensor], inputs: Sequence[str], output: str,
    axes: Mapping[str, Mapping[int, str]],
) -> bytes:  # fmt: skip
    """Return the graph of a network, which names its weights as the network does and holds none of them.

    It is in evaluation mode. `inputs` are the names of the arguments of a call, of which `example` is one,
    `output` that of what it returns, and `axes` by these names those whose length differs between calls.
    """
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
        whole, bare = (Path(scratch) / name for name in ("whole.onnx", "bare.onnx"))
        warnings.simplefilter("ignore", DeprecationWarning)  # the newer exporter names weights its own way
        torch.onnx.export(
            network, tuple(example), str(whole), dynamo=False, input_names=list(inputs),
            output_names=[output], dynamic_axes={name: dict(held) for name, held in axes.items()},
            opset_version=17, do_constant_folding=False,  # so that each weight keeps its name
        )  # fmt: skip
        onnx.save(onnx.load(whole), bare, save_as_external_data=True, location="weights", size_threshold=0)
        return bare.read_bytes()


def bert_of(name: str) -> Any:  # noqa: ANN401 (of a library without types)
    """Return the layers of a model by its name, without a pooler, as they are written out."""
    folder = resolve(name)[0]
    return AutoModel.from_pretrained(folder, attn_implementation="eager", add_pooling_layer=False)


def through(
    layers: Iterable[torch.nn.Module], states: torch.Tensor, away: torch.Tensor | None
) -> torch.Tensor:
    """Return the states of tokens behind layers; `away` is added to the scores of attention."""
    for layer in layers:
        found = layer(states, away)
        states = found[0] if isinstance(found, tuple) else found
    return states


class _States(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        bert = bert_of(name)
        self.embeddings, self.encoder = bert.embeddings, bert.encoder

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.embeddings(input_ids=ids, token_type_ids=kinds)
        away = (1 - mask[:, None, None, :].to(states.dtype)) * torch.finfo(states.dtype).min
        return through(self.encoder.layer, states, away)


def encoder_graph(name: str) -> bytes:
    """Return the graph of a BERT's token states, from ids, mask and kinds, shape `(texts, tokens)` each."""
    ids = torch.full((2, 8), 5)
    inputs = ("input_ids", "attention_mask", "token_type_ids")
    axes = {key: {0: "texts", 1: "tokens"} for key in (*inputs, _STATES)}
    example = (ids, torch.ones_like(ids), torch.zeros_like(ids))
    return bare_graph(_States(name).eval(), example, inputs, _STATES, axes)


if __name__ == "__main__":
    for encoder, file in GRAPHS.items():
        (Path(models.__file__).parent / file).write_bytes(encoder_graph(encoder))
