"""Graphs without weights: what a network does, as ONNX, where the package has its weights already.

Run as a module it writes the packaged graph of the default encoder again.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
import torch
from transformers import AutoModel

from tasks.models.onnx_export import GRAPHS, resolve

_STATES = "last_hidden_state"


def bare_graph(
    network: torch.nn.Module,
    example: Sequence[torch.Tensor],
    inputs: Sequence[str],
    output: str,
    axes: Mapping[str, Mapping[int, str]],
) -> bytes:
    """Return the graph of a network, which names its weights as the network does and holds none of them.

    Args:
        network: In evaluation mode.
        example: Arguments of a call.
        inputs: Their names.
        output: The name of what it returns.
        axes: By name of an input or output, the axes whose length differs from call to call.
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


class _States(torch.nn.Module):
    def __init__(self, folder: str) -> None:
        super().__init__()
        bert = AutoModel.from_pretrained(folder, attn_implementation="eager", add_pooling_layer=False)
        self.embeddings, self.encoder = bert.embeddings, bert.encoder

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.embeddings(input_ids=ids, token_type_ids=kinds)
        away = (1 - mask[:, None, None, :].to(states.dtype)) * torch.finfo(states.dtype).min
        for layer in self.encoder.layer:
            found = layer(states, away)
            states = found[0] if isinstance(found, tuple) else found
        return states


def encoder_graph(name: str) -> bytes:
    """Return the graph of a BERT's token states, from ids, mask and kinds, shape `(texts, tokens)` each."""
    ids = torch.full((2, 8), 5)
    inputs = ("input_ids", "attention_mask", "token_type_ids")
    axes = {key: {0: "texts", 1: "tokens"} for key in (*inputs, _STATES)}
    example = (ids, torch.ones_like(ids), torch.zeros_like(ids))
    return bare_graph(_States(resolve(name)[0]).eval(), example, inputs, _STATES, axes)


if __name__ == "__main__":
    for encoder, file in GRAPHS.items():
        (Path(__file__).parents[1] / file).write_bytes(encoder_graph(encoder))
