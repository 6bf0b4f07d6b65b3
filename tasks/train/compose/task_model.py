"""Requests written for this project, with their steps, and what the task model learns from them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer
from torch.nn import functional

from storage.errors import WrongInput
from tasks.models.adapted_encoder import BASE, INPUT, MATRICES, SCALE, WIDTH
from tasks.models.engine import computes_bf16
from tasks.models.onnx_export import resolve
from tasks.models.protocols import Vectors
from tasks.retrieve import compose
from tasks.retrieve.compose.dependencies import closure
from tasks.retrieve.compose.drafts import Span
from tasks.retrieve.compose.local import BEGIN, INSIDE, LABELS, OUT
from tasks.retrieve.compose.task_model import APART, BACKWARD, NEITHER, ONWARD, placed_words
from tasks.train.networks import bare_graph, bert_of, through, train

MASK, FIRST_WORD = 103, 1000  # token ids: of `[MASK]`, and the first that is no special or unused one
REQUESTS = Path(compose.__file__).parent / "data" / "requests.jsonl"


@dataclass(frozen=True, slots=True)
class WrittenRequest:
    """A request with its steps, in an order in which they can be done, and their direct dependencies.

    `servers` are ids that serve each step, in lower case; None where they are not known. Requests of one
    `group` say the same in other words.
    """

    text: str
    steps: tuple[tuple[Span, ...], ...]
    edges: tuple[tuple[int, int], ...]
    servers: tuple[frozenset[str], ...] | None = None
    group: int = -1

    def told(self) -> list[int]:
        """Return the steps' numbers in the order in which the request tells them."""
        return sorted(range(len(self.steps)), key=lambda k: self.steps[k][0])


def read_written(file: Path = REQUESTS) -> list[WrittenRequest]:
    """Return the requests of JSON lines `{request, steps: [[[start, end]]], edges, servers, group}`.

    `edges` are pairs of places from 0 on; `servers`, a list of ids for each step, may be left out; `group` is
    the line of the first wording, from 0 on, in a second one.

    Raises:
        WrongInput: There is no such file.
    """
    if not file.is_file():
        msg = f"{file} is not there: it comes with Skillery's source tree, not with the installed package"
        raise WrongInput(msg)
    found = []
    for number, line in enumerate(file.read_text("utf-8").splitlines()):
        row = json.loads(line)
        steps = tuple(tuple((a, b) for a, b in spans) for spans in row["steps"])
        servers = (
            tuple(frozenset(s.lower() for s in ids) for ids in row["servers"]) if "servers" in row else None
        )
        edges = tuple((a, b) for a, b in row["edges"])
        found.append(WrittenRequest(row["request"], steps, edges, servers, row.get("group", number)))
    return found


@dataclass(frozen=True, slots=True)
class StepLesson:
    """A request to learn from; steps are numbered in the order in which it tells them.

    `places` are the tokens at which its words begin, `labels` what each word is (`local`), `own` the words of
    each step, `pairs` what steps `i < j` are to each other, in order, `served` the rows that serve each step.
    """

    ids: list[int]
    places: list[int]
    labels: list[int]
    own: list[list[int]]
    pairs: list[int]
    served: list[list[int]] | None


def lessons(requests: Sequence[WrittenRequest], rows: Mapping[str, int]) -> list[StepLesson]:
    """Return the lessons of requests; `rows` tells the row of an id in lower case."""
    tokenizer = Tokenizer.from_file(str(Path(resolve(BASE)[0]) / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    return [_lesson(request, tokenizer, rows) for request in requests]


def _lesson(request: WrittenRequest, tokenizer: Tokenizer, rows: Mapping[str, int]) -> StepLesson:
    read = tokenizer.encode(request.text)
    placed = placed_words(request.text, read.offsets)
    told = request.told()
    owners = [_owner(start, [request.steps[k] for k in told]) for (start, _), _ in placed]
    own = [[i for i, owner in enumerate(owners) if owner == k] or [0] for k in range(len(told))]
    served = None
    if request.servers is not None:
        served = [[rows[d] for d in sorted(request.servers[k]) if d in rows] for k in told]
    return StepLesson(read.ids, [k for _, k in placed], _labels(owners), own, pairs_of(request), served)


def _owner(at: int, steps: Sequence[Sequence[tuple[int, int]]]) -> int | None:
    return next((k for k, spans in enumerate(steps) if any(a <= at < b for a, b in spans)), None)


def _labels(owners: Sequence[int | None]) -> list[int]:
    """Return the words' labels; a part of a step that stands after another step has begun is left out."""
    labels, begun, last = [], set[int](), None
    for owner in owners:
        if owner is not None and owner not in begun:
            begun.add(owner)
            last = owner
            labels.append(BEGIN)
        else:
            labels.append(INSIDE if owner is not None and owner == last else OUT)
    return labels


def pairs_of(request: WrittenRequest) -> list[int]:
    """Return what each pair of steps is, `i < j` as the request tells them, in order."""
    place = {k: number for number, k in enumerate(request.told())}
    needed, n = closure({(place[a], place[b]) for a, b in request.edges}), len(place)
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    return [ONWARD if (i, j) in needed else BACKWARD if (j, i) in needed else NEITHER for i, j in pairs]


@dataclass(frozen=True, slots=True)
class LessonBatch:
    """Lessons padded to the longest: tokens `(lessons, tokens)`; the others `(lessons, words)`."""

    ids: torch.Tensor
    mask: torch.Tensor
    places: torch.Tensor
    inside: torch.Tensor
    labels: torch.Tensor
    lessons: Sequence[StepLesson]


def batched(given: Sequence[StepLesson], hidden: float) -> LessonBatch:
    """Return lessons as one batch; a share `hidden` of the tokens is masked."""
    tokens, words = max(len(one.ids) for one in given), max(len(one.places) for one in given)
    ids = torch.tensor([one.ids + [0] * (tokens - len(one.ids)) for one in given])
    drawn = (torch.rand(ids.shape) < hidden) & (ids >= FIRST_WORD)
    size = [len(one.places) for one in given]
    places = torch.tensor([one.places + [0] * (words - n) for one, n in zip(given, size, strict=True)])
    labels = torch.tensor([one.labels + [OUT] * (words - n) for one, n in zip(given, size, strict=True)])
    inside = torch.arange(words)[None] < torch.tensor(size)[:, None]
    return LessonBatch(torch.where(drawn, MASK, ids), (ids > 0).long(), places, inside, labels, given)


def drawn_batches(
    given: Sequence[StepLesson], size: int, chance: np.random.Generator
) -> Iterator[list[StepLesson]]:
    """Yield batches of about equal length, in an order drawn by chance."""
    order = sorted(range(len(given)), key=lambda i: len(given[i].ids) + 8 * chance.random())
    batches = [order[at : at + size] for at in range(0, len(order), size)]
    for k in chance.permutation(len(batches)).tolist():
        yield [given[i] for i in batches[k]]


_NEVER = -1e4
_HIDDEN = 64


class Adapter(torch.nn.Module):
    """An affine map that stays as it is, and what is learned to be added to it (LoRA, equation 3)."""

    def __init__(self, base: torch.nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base.requires_grad_(requires_grad=False)
        self.a = torch.nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.b = torch.nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return mapped rows."""
        mapped: torch.Tensor = self.base(rows) + SCALE * (rows @ self.a.T) @ self.b.T
        return mapped


class StepNetwork(torch.nn.Module):
    """Labels words, tells what pairs of steps are, and what steps seek."""

    def __init__(self, rank: int, dropout: float) -> None:
        super().__init__()
        self.bert = bert_of(BASE)
        self.bert.requires_grad_(requires_grad=False)
        self.adapters: dict[str, Adapter] = {}
        for number, layer in enumerate(self.bert.encoder.layer):
            for name in MATRICES:
                adapter = Adapter(layer.get_submodule(name), rank)
                parent, _, own = name.rpartition(".")
                setattr(layer.get_submodule(parent), own, adapter)
                self.adapters[f"{number}.{name}"] = adapter
        self.dropout = torch.nn.Dropout(dropout)
        self.label = torch.nn.Linear(WIDTH, LABELS)
        self.moves = torch.nn.Parameter(torch.zeros(LABELS, LABELS))
        self.pair1 = torch.nn.Linear(3 * WIDTH + APART + 1, _HIDDEN)
        self.pair2 = torch.nn.Linear(_HIDDEN, 3)
        self.query = torch.nn.Linear(WIDTH, WIDTH)
        torch.nn.init.eye_(self.query.weight)
        torch.nn.init.zeros_(self.query.bias)
        self.sharpness = torch.nn.Parameter(torch.tensor(math.log(20.0)))

    def words(self, batch: LessonBatch) -> torch.Tensor:
        """Return the states of words, shape `(lessons, words, 384)`."""
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=computes_bf16()):
            states = self.bert(input_ids=batch.ids, attention_mask=batch.mask).last_hidden_state
        places = batch.places[:, :, None].expand(-1, -1, WIDTH)
        found: torch.Tensor = states.float().gather(1, places)
        return found

    def label_loss(self, words: torch.Tensor, batch: LessonBatch) -> torch.Tensor:
        """Return the mean negative log-likelihood of the labels (`local`, equation 1)."""
        scores = self.label(self.dropout(words))
        moves, inside, labels = self.moves, batch.inside, batch.labels
        # A fourth state is "left out before any step": nothing continues a step before one has begun.
        onward = torch.full((4, 4), _NEVER)
        onward = onward.index_put((torch.tensor(3), torch.tensor([BEGIN, 3])), moves[OUT, [BEGIN, OUT]])
        onward = torch.cat([functional.pad(moves, (0, 1), value=_NEVER), onward[3:]])
        of_states = scores[:, :, [BEGIN, INSIDE, OUT, OUT]]
        total = of_states[:, 0] + torch.tensor([0.0, _NEVER, _NEVER, 0.0])
        for t in range(1, scores.shape[1]):
            reached = torch.logsumexp(total[:, :, None] + onward, dim=1) + of_states[:, t]
            total = torch.where(inside[:, t, None], reached, total)
        right = (scores.gather(2, labels[:, :, None])[:, :, 0] * inside).sum(1)
        right = right + (moves[labels[:, :-1], labels[:, 1:]] * inside[:, 1:]).sum(1)
        loss: torch.Tensor = (torch.logsumexp(total, dim=1) - right).mean()
        return loss

    def pair_scores(self, words: torch.Tensor, lesson: StepLesson) -> torch.Tensor:
        """Return the scores of what each pair of steps is, shape `(pairs, 3)`."""
        own, n, rows = _pooled(words, lesson), len(lesson.own), []
        for i in range(n):
            for j in range(i + 1, n):
                apart = torch.zeros(APART + 1)
                apart[min(j - i, APART) - 1], apart[APART] = 1, float(j == n - 1)
                rows.append(torch.cat([own[i], own[j], own[i] * own[j], apart]))
        found: torch.Tensor = self.pair2(
            self.dropout(functional.gelu(self.pair1(self.dropout(torch.stack(rows))), approximate="tanh"))
        )
        return found

    def sought(self, words: torch.Tensor, lesson: StepLesson) -> torch.Tensor:
        """Return what each step seeks, unit vectors of shape `(steps, 384)`."""
        return functional.normalize(self.query(_pooled(words, lesson)), dim=1)

    def arrays(self) -> dict[str, npt.NDArray[np.float16]]:
        """Return what the task model reads, in half precision."""
        held: dict[str, Any] = {
            "label.w": self.label.weight, "label.b": self.label.bias, "moves": self.moves,
            "pair.w1": self.pair1.weight, "pair.b1": self.pair1.bias,
            "pair.w2": self.pair2.weight, "pair.b2": self.pair2.bias,
            "query.w": self.query.weight, "query.b": self.query.bias,
        }  # fmt: skip
        for name, adapter in self.adapters.items():
            held |= {f"{name}.a": adapter.a, f"{name}.b": adapter.b}
        return {name: value.detach().numpy().astype(np.float16) for name, value in held.items()}


def _pooled(words: torch.Tensor, lesson: StepLesson) -> torch.Tensor:
    return torch.stack([words[own].mean(0) for own in lesson.own])


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the network learns: `hidden` tokens are masked; `pairs` and `sought` weigh losses.

    `seed` draws the first weights, `order` the order of the lessons and what is masked and dropped.
    """

    rank: int = 32
    epochs: int = 10
    batch: int = 16
    rate: float = 1e-3
    decay: float = 0.01
    dropout: float = 0.1
    hidden: float = 0.15
    pairs: float = 4.0
    sought: float = 0.5
    seed: int = 0
    order: int = 0


def train_network(given: Sequence[StepLesson], vectors: Vectors, recipe: Recipe) -> StepNetwork:
    """Return a network that learned from lessons; `vectors`, shape `(rows, 384)`, are those of the rows."""
    torch.manual_seed(recipe.seed)
    chance, network = np.random.default_rng(recipe.order), StepNetwork(recipe.rank, recipe.dropout)
    torch.manual_seed(recipe.order)
    learned = [p for p in network.parameters() if p.requires_grad]
    rows = torch.from_numpy(np.array(vectors, dtype=np.float32))
    train(
        network, [{"params": learned, "lr": recipe.rate}],
        lambda: list(drawn_batches(given, recipe.batch, chance)),
        lambda some: _loss(network, batched(some, recipe.hidden), rows, recipe),
        epochs=recipe.epochs, decay=recipe.decay,
    )  # fmt: skip
    return network


def train_average(
    given: Sequence[StepLesson], vectors: Vectors, recipe: Recipe, orders: int
) -> dict[str, npt.NDArray[np.float16]]:
    """Return the mean weights of networks that learned from the same first weights in different orders.

    After Wortsman et al., "Model soups", ICML 2022, section 2.
    """
    networks = (train_network(given, vectors, replace(recipe, order=order)) for order in range(orders))
    every = [network.arrays() for network in networks]
    return {
        name: np.mean([arrays[name].astype(np.float32) for arrays in every], axis=0).astype(np.float16)
        for name in every[0]
    }


def _loss(network: StepNetwork, batch: LessonBatch, rows: torch.Tensor, recipe: Recipe) -> torch.Tensor:
    words = network.words(batch)
    loss = network.label_loss(words, batch)
    several = [(own, lesson) for own, lesson in zip(words, batch.lessons, strict=True) if lesson.pairs]
    if several:
        scores = torch.cat([network.pair_scores(own, lesson) for own, lesson in several])
        kinds = torch.tensor([kind for _, lesson in several for kind in lesson.pairs])
        loss = loss + recipe.pairs * functional.cross_entropy(scores, kinds)
    served = [
        (own, lesson, lesson.served)
        for own, lesson in zip(words, batch.lessons, strict=True)
        if lesson.served
    ]
    if served:
        sought = torch.cat([network.sought(own, lesson) for own, lesson, _ in served])
        right = torch.zeros(len(sought), len(rows), dtype=torch.bool)
        for place, serving in enumerate(serving for *_, of_steps in served for serving in of_steps):
            right[place, serving] = True
        scores = network.sharpness.exp() * (sought @ rows.T)
        missed = torch.logsumexp(scores, 1) - torch.logsumexp(scores.masked_fill(~right, -1e9), 1)
        loss = loss + recipe.sought * missed[right.any(1)].mean()
    return loss


class _Layers(torch.nn.Module):
    """The layers of the encoder on embedded tokens of texts of one length."""

    def __init__(self) -> None:
        super().__init__()
        self.bert = bert_of(BASE)

    def forward(self, embedded: torch.Tensor) -> torch.Tensor:
        return through(self.bert.encoder.layer, self.bert.embeddings.LayerNorm(embedded), None)


def write_graph(file: Path) -> None:
    """Write the graph of `AdaptedEncoder`, without weights."""
    axes = {name: {0: "texts", 1: "tokens"} for name in (INPUT, "states")}
    file.write_bytes(bare_graph(_Layers().eval(), (torch.zeros(2, 8, WIDTH),), [INPUT], "states", axes))
