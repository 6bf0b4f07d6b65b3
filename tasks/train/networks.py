"""Networks that training changes: the default encoder with adapters, how they learn, and their ONNX graph.

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
import numpy.typing as npt
import onnx
import torch
from safetensors.torch import load_file
from torch.nn import functional
from transformers import AutoModel

from tasks import models
from tasks.models.adapted_encoder import BASE, LAYERS, MATRICES, SCALE, WIDTH
from tasks.models.engine import computes_bf16
from tasks.models.onnx_export import GRAPHS, resolve

Halves = dict[str, npt.NDArray[np.float16]]


class AdaptedNetwork(torch.nn.Module):
    """The default encoder with adapters of a rank: states of tokens, in bf16 where the processor computes so.

    Elsewhere bf16 takes many times as long as float32. With autocast, dropout and padding to one length a
    step takes twice as long.
    """

    def __init__(self, rank: int, draw: torch.Generator) -> None:
        super().__init__()
        held = load_file(Path(resolve(BASE)[0]) / "model.safetensors")
        self._dtype = torch.bfloat16 if computes_bf16() else torch.float32
        self._base = {
            name: value.to(self._dtype) for name, value in held.items() if value.is_floating_point()
        }
        self.adapters = torch.nn.ParameterDict()
        for layer in range(LAYERS):
            for matrix in MATRICES:
                outputs, inputs = held[f"encoder.layer.{layer}.{matrix}.weight"].shape
                key = _key(layer, matrix)
                self.adapters[f"{key}:a"] = 0.02 * torch.randn(rank, inputs, generator=draw)
                self.adapters[f"{key}:b"] = torch.zeros(outputs, rank)

    def states(self, ids: torch.Tensor, second: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
        """Return the states of tokens, shape `(texts, tokens, 384)`.

        All arguments have shape `(texts, tokens)`: ids, which tokens are of a pair's second text (1, else 0),
        and which are no padding.
        """
        states, name = self._embedded(ids, second), "encoder.layer"
        texts, tokens = ids.shape
        for layer in range(LAYERS):
            query, key, value = (
                self._changed(states, layer, f"attention.self.{part}")
                .view(texts, tokens, -1, 32)
                .transpose(1, 2)
                for part in ("query", "key", "value")
            )
            # Torch's own attention takes three times as long on a processor, most of it on the way back.
            weights = (query @ key.transpose(2, 3)) * 32**-0.5
            weights = weights.masked_fill(~inside[:, None, None], -1e4).softmax(-1)
            met = (weights @ value).transpose(1, 2).reshape(texts, tokens, WIDTH)
            states = self._normal(
                states + self._changed(met, layer, "attention.output.dense"),
                f"{name}.{layer}.attention.output.LayerNorm",
            )
            wide = functional.gelu(self._changed(states, layer, "intermediate.dense"))
            states = self._normal(
                states + self._changed(wide, layer, "output.dense"), f"{name}.{layer}.output.LayerNorm"
            )
        return states.float()

    def _embedded(self, ids: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        words, places, kinds = (
            self._base[f"embeddings.{n}_embeddings.weight"] for n in ("word", "position", "token_type")
        )
        return self._normal(words[ids] + places[: ids.shape[1]] + kinds[second], "embeddings.LayerNorm")

    def _normal(self, states: torch.Tensor, name: str) -> torch.Tensor:
        weight, bias = self._base[f"{name}.weight"], self._base[f"{name}.bias"]
        return functional.layer_norm(states, (WIDTH,), weight, bias, 1e-12)

    def _changed(self, states: torch.Tensor, layer: int, matrix: str) -> torch.Tensor:
        name, key = f"encoder.layer.{layer}.{matrix}", _key(layer, matrix)
        a, b = (self.adapters[f"{key}:{side}"].to(self._dtype) for side in "ab")
        plain = functional.linear(states, self._base[f"{name}.weight"], self._base[f"{name}.bias"])
        return plain + functional.linear(functional.linear(states, a), SCALE * b)

    def arrays(self) -> Halves:
        """Return the adapters as `AdaptedEncoder` reads them, in half precision."""
        return {
            key.replace(":", ".").replace("/", "."): value.detach().numpy().astype(np.float16)
            for key, value in self.adapters.items()
        }


def mean_states(states: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
    """Return the mean state of each text's tokens, shape `(texts, 384)`."""
    weight = inside[..., None].float()
    return (states * weight).sum(1) / weight.sum(1)


def padded(texts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the ids of texts, and which are no padding, both of shape `(texts, tokens)`."""
    longest = max(map(len, texts))
    ids = torch.tensor([[*text, *[0] * (longest - len(text))] for text in texts])
    return ids, torch.arange(longest) < torch.tensor([[len(text)] for text in texts])


def _key(layer: int, matrix: str) -> str:
    return f"{layer}/{matrix.replace('.', '/')}"  # torch allows no dots


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
