"""The encoder as ONNX: what the index is built with and what answers queries, without torch."""

from __future__ import annotations

import functools
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits
from tokenizers import Tokenizer

from storage.errors import EncodingTooLong, ModelMismatch
from storage.folder import threads_of_process
from tasks.models.engine import SMALL, Engine, OnnxRuntime, batches_of
from tasks.models.model_cache import engine_of
from tasks.models.preloaded import Preloaded
from tasks.models.protocols import Vectors
from tasks.models.token_states import STATE_MODEL, pack, unit
from tasks.models.tokens import whole_tokenizer, word_counts

log = logging.getLogger(__name__)
_SECONDS_BETWEEN_REPORTS = 5.0
_WORTH_THREADS = 400  # tokens: more than a request has, beside whose encoding others work already
POOLINGS = ("mean", "cls")
_Window = tuple[int, list[int]]
# A batch's vectors and packed states, and what makes them of the tokens' states.
_Found = tuple[Vectors, list[bytes]]
_Read = Callable[[Vectors], _Found]


def card_of(folder: str | Path) -> dict[str, Any]:
    """Return what an export says of itself: name, revision, dimension, max_tokens, pooling.

    Raises:
        ModelMismatch: The folder holds no export, a damaged one, or one of a pooling not known here.
    """
    try:
        card: dict[str, Any] = json.loads((Path(folder) / "encoder.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        msg = f"{folder} holds no exported encoder ({error}): run `skillery run` once to export it"
        raise ModelMismatch(msg) from error
    if card.get("pooling") not in POOLINGS:
        msg = f"{folder}: pooling {card.get('pooling')!r} is not known, known are {', '.join(POOLINGS)}"
        raise ModelMismatch(msg)
    return card


@functools.lru_cache(maxsize=2)
def load_encoder(folder: str) -> OnnxEncoder:
    """Return the encoder of an export with all cores, loaded once a process."""
    return OnnxEncoder(Path(folder))


class OnnxEncoder:
    """Encodes texts with an exported sentence encoder; implements IndexEncoder, PartEncoder and StateEncoder.

    Texts longer than the model's window are cut into windows, whose unit vectors are averaged and normalised
    again.

    Args:
        folder: An export as `tasks.models.onnx_export` writes it, else `ModelMismatch`.
        threads: Batches encoded at a time, each on its own thread; None means as many as cores.
        seconds: The longest that one call may encode, else `EncodingTooLong`; None means no limit.
    """

    def __init__(self, folder: Path, *, threads: int | None = None, seconds: float | None = None) -> None:
        self.card, self.seconds = card_of(folder), seconds
        self._folder, self._threads = folder, threads or threads_of_process()
        # Loaded when first used: a night with nothing new needs neither.
        self._engines = Preloaded(self._open_engine)
        self._tokenizers = Preloaded(functools.partial(whole_tokenizer, folder))

    @property
    def _engine(self) -> Engine:
        return self._engines.get()

    @property
    def _tokenizer(self) -> Tokenizer:
        return self._tokenizers.get()

    def _open_engine(self) -> Engine:
        small = self._folder / SMALL  # exports from before OpenVINO ran them lack it
        model = (small if small.is_file() else self._folder / "model.onnx").resolve()
        return engine_of(model, model.stat().st_mtime_ns)

    def load_ahead(self) -> None:
        """Begin to load tokenizer and engine, each on a thread of its own, while the caller does other work.

        What fails is tried again at each use, which raises: its files may have been mended since.
        """
        self._engines.begin()
        self._tokenizers.begin()

    def by_onnx_runtime(self) -> OnnxEncoder:
        """Return an encoder of the same export that ONNX Runtime runs, as all were before OpenVINO did."""
        other = OnnxEncoder(self._folder, threads=self._threads)
        other._engines = Preloaded(lambda: OnnxRuntime(self._folder / "model.onnx"))
        return other

    @property
    def engine(self) -> str:
        """What computes the vectors, and in which precision."""
        return self._engine.name

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text, without special tokens."""
        return word_counts(self._tokenizer).count(texts)

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Return each token's character span in `text`, in order."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).offsets)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector a text, float32 of shape `(len(texts), dimension)`."""
        return self._encoded(texts, self._pooled)[0]

    def encode_states(self, texts: Sequence[str]) -> tuple[Vectors, list[bytes]]:
        """Return what `encode` does, and each text's packed states, none of other models, from one pass."""
        if self.card["name"] != STATE_MODEL:
            return self.encode(texts), [b""] * len(texts)
        return self._encoded(texts, self._pooled_and_packed)

    def _encoded(self, texts: Sequence[str], read: _Read) -> tuple[Vectors, list[bytes]]:
        sums = np.zeros((len(texts), int(self.card["dimension"])), dtype=np.float32)
        windows = list(self._windows(texts))
        packed = [b""] * len(windows)
        done, started = 0, time.monotonic()
        reported = started
        for batch, (vectors, states) in self._read([ids for _, ids in windows], read):
            np.add.at(sums, [windows[n][0] for n in batch], vectors)
            for n, of_window in zip(batch, states, strict=True):
                packed[n] = of_window
            done += len(batch)
            if self.seconds is not None and time.monotonic() - started > self.seconds and done < len(windows):
                msg = f"{done} of {len(windows)} windows were encoded in {self.seconds:g} seconds"
                raise EncodingTooLong(msg)
            if time.monotonic() - reported > _SECONDS_BETWEEN_REPORTS:
                reported = time.monotonic()
                log.info("encoded %d of %d windows", done, len(windows))
        by_text: list[list[bytes]] = [[] for _ in texts]
        for (owner, _), of_window in zip(windows, packed, strict=True):
            by_text[owner].append(of_window)
        return unit(sums), [b"".join(parts) for parts in by_text]

    def encode_parts(self, text: str, parts: Sequence[tuple[int, int]]) -> Vectors:
        """Return the unit vectors of a text and of its parts out of one pass, shape `(1 + parts, dimension)`.

        A part is a character span; its vector is the normalised mean of its tokens' states in their context,
        that of the whole text where it has none.
        """
        offsets = np.array(self.offsets(text), dtype=np.int64).reshape(-1, 2)
        prefix, suffix = self._special_tokens
        wholes, states = [], []
        for _, ids in self._windows([text]):
            found = self._states([ids])
            wholes.append(unit(_pool(found, self.card["pooling"]))[0])
            states.append(found[0, len(prefix) : found.shape[1] - len(suffix)])
        rows = np.concatenate(states)
        vectors = [np.sum(wholes, axis=0)]
        for start, end in parts:
            inside = (offsets[:, 0] < end) & (offsets[:, 1] > start)
            vectors.append(rows[inside].mean(axis=0) if inside.any() else vectors[0])
        return unit(np.stack(vectors))

    def _read(self, windows: list[list[int]], read: _Read) -> Iterator[tuple[list[int], _Found]]:
        """Yield batches, as places in `windows`, and what is read in them."""

        def infer(batch: list[int]) -> _Found:
            return read(self._states([windows[n] for n in batch]))

        around = sum(map(len, self._special_tokens))
        batches = batches_of([len(ids) + around for ids in windows], self._engine.batch_tokens)
        if self._threads == 1 or len(batches) <= 1 or sum(map(len, windows)) < _WORTH_THREADS:
            yield from zip(batches, map(infer, batches), strict=True)
            return
        # Nor are there cores left for the linear algebra to take several for a product.
        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(self._threads) as pool:
            try:
                yield from zip(batches, pool.map(infer, batches), strict=True)
            finally:  # batches that nobody waits for any more
                pool.shutdown(cancel_futures=True)

    def _pooled(self, states: Vectors) -> _Found:
        return unit(_pool(states, self.card["pooling"])), [b""] * len(states)

    def _pooled_and_packed(self, states: Vectors) -> _Found:
        prefix, suffix = self._special_tokens
        return self._pooled(states)[0], pack(states[:, len(prefix) : states.shape[1] - len(suffix)])

    def _states(self, windows: list[list[int]]) -> Vectors:
        """Return the states of the tokens of windows of one length, special tokens included."""
        prefix, suffix = self._special_tokens
        ids = np.array([[*prefix, *ids, *suffix] for ids in windows], dtype=np.int64)
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        return self._engine.run({k: v for k, v in feed.items() if k in self._engine.inputs})

    def _windows(self, texts: Sequence[str]) -> Iterator[_Window]:
        prefix, suffix = self._special_tokens
        length = int(self.card["max_tokens"]) - len(prefix) - len(suffix)
        for owner, found in enumerate(self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)):
            for start in range(0, max(len(found.ids), 1), length):
                yield owner, found.ids[start : start + length]

    @functools.cached_property
    def _special_tokens(self) -> tuple[list[int], list[int]]:
        """Return the ids that the model expects around a text, read off the tokenizer itself."""
        bare = self._tokenizer.encode("a", add_special_tokens=False).ids
        full = self._tokenizer.encode("a", add_special_tokens=True).ids
        at = next(i for i in range(len(full)) if full[i : i + len(bare)] == bare)
        return full[:at], full[at + len(bare) :]


def _pool(states: Vectors, pooling: str) -> Vectors:
    return states[:, 0] if pooling == "cls" else states.mean(axis=1)
