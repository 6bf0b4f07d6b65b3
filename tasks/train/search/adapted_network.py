"""Adapted network: the default encoder in torch with low-rank adapters, written out to learn fast."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file
from torch.nn import functional

from tasks.models.adapted_encoder import BASE, LAYERS, MATRICES, SCALE, WIDTH
from tasks.models.engine import computes_bf16
from tasks.models.onnx_export import resolve

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
