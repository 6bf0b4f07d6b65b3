"""Requests written for this project, with their steps, and what the task model learns from them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from storage.errors import WrongInput
from tasks.models.adapted_encoder import BASE
from tasks.models.onnx_export import resolve
from tasks.retrieve import compose
from tasks.retrieve.compose.chain import BEGIN, INSIDE, OUT
from tasks.retrieve.compose.dependencies import closure
from tasks.retrieve.compose.drafts import Span
from tasks.retrieve.compose.task_model import BACKWARD, NEITHER, ONWARD, placed_words

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

    `places` are the tokens at which its words begin, `labels` what each word is (`chain`), `own` the words of
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
