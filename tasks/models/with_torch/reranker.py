"""Rerankers: cross-encoders, and causal models that say yes or no; a checkpoint is opened by its name."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from storage.errors import ModelMismatch
from tasks.models.hub import require_on_hub
from tasks.models.protocols import Tokenizer
from tasks.models.tokens import TokenSpans, first_tokens
from tasks.models.with_torch.device import AUTO, device_of

PairScores = npt.NDArray[np.float64]


class PairScorer(Protocol):
    """Scores texts against a query, each pair by itself; higher is better."""

    def score(self, query: str, texts: Sequence[str]) -> PairScores:
        """Return a score a text, shape `(len(texts),)`."""


class CrossEncoder(TokenSpans):
    """A sequence classifier with one output, loaded when first asked (Nogueira and Cho, 2019).

    `name` is a folder or a hub id, such as `cross-encoder/ms-marco-MiniLM-L-6-v2`. Each text is cut to
    `max_tokens` (SkillFlow, equations 2 and 4); query and text together to what the model reads, the longer
    first. `batch` pairs are scored at a time.
    """

    def __init__(self, name: str, *, max_tokens: int = 512, batch: int = 32, device: str = AUTO) -> None:
        self.name, self._max_tokens, self._batch, self._device = name, max_tokens, batch, device

    def score(self, query: str, texts: Sequence[str]) -> PairScores:
        """Return the model's score of each text, shape `(len(texts),)`.

        Raises:
            ModelMismatch: There is no such model, or it has more than one output.
        """
        if not texts:
            return np.zeros(0)
        pairs = [(query, first_tokens(text, self._max_tokens, self)) for text in texts]
        scores = self._model.predict(pairs, batch_size=self._batch, show_progress_bar=False)
        return np.asarray(scores, dtype=np.float64)

    @property
    def tokenizer(self) -> Any:  # noqa: ANN401 (transformers has no common type)
        """The model's own."""
        return self._model.tokenizer

    @functools.cached_property
    def _model(self) -> Any:  # noqa: ANN401 (a class of a library that is loaded here alone)
        from sentence_transformers import CrossEncoder as Loaded  # noqa: PLC0415 (torch: seconds, megabytes)

        try:
            model = Loaded(self.name, device=device_of(self._device))
        except (OSError, ValueError) as error:
            raise missing_model(self.name, error) from error
        if model.num_labels != 1:
            msg = f"{self.name} has {model.num_labels} outputs, a reranker has one: name another model"
            raise ModelMismatch(msg)
        longest = model.tokenizer.model_max_length
        model.max_seq_length = min(getattr(model.model.config, "max_position_embeddings", longest), longest)
        return model


def missing_model(name: str, error: Exception) -> ModelMismatch:
    """Return the error of a model that cannot be loaded, with what to do."""
    reason = " ".join(str(error).split())[:300]
    said = f"model {name} cannot be loaded ({reason}): name a folder that holds it, or a hub id"
    return ModelMismatch(said)


# How the Qwen3 rerankers were trained to be asked: marks of their chat, and a thought that is empty.
_BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the"
    ' Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
_AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
# In the folder of a model that was trained here: the instruction, and the tokens of query and text.
ASKED = "asked.json"


class _Loaded(NamedTuple):
    model: Any
    tokenizer: Any
    before: list[int]
    after: list[int]
    yes: int
    no: int


class CausalReranker(TokenSpans):
    """Scores by the logits of `yes` and `no` after query and document, as SkillRouter has it.

    The score is the probability of `yes` among the two. Loaded when first asked. Marks of the chat in a query
    or a text are read as plain characters. Zhang et al., "Qwen3 Embedding", 2025.

    `name` is a folder or a hub id, such as `pipizhao/SkillRouter-Reranker-0.6B`. `instruction` is one
    sentence; a model does best with the one it was trained with. A folder of a model that was trained here
    names its own, and how many tokens it reads. A longer prompt is cut where the document ends.
    """

    def __init__(
        self, name: str, *, instruction: str, max_tokens: int = 6144, batch: int = 4, device: str = AUTO
    ) -> None:
        self.name, self._instruction, self._tokens = name, instruction, 0
        if (own := Path(name) / ASKED).is_file():
            asked = json.loads(own.read_text("utf-8"))
            self._instruction, self._tokens = asked["instruction"], asked["tokens"]
        self._max_tokens, self._batch, self._device = max_tokens, batch, device

    def score(self, query: str, texts: Sequence[str]) -> PairScores:
        """Return the probability of yes for each text, shape `(len(texts),)`.

        Raises:
            ModelMismatch: There is no such model, or its tokenizer has no single tokens `yes` and `no`.
        """
        prompts = [self._prompt(query, text) for text in texts]
        # Batches of like lengths waste least on padding.
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        scores = np.zeros(len(prompts))
        for start in range(0, len(order), self._batch):
            some = order[start : start + self._batch]
            scores[some] = self._probabilities([prompts[i] for i in some])
        return scores

    def attention(self, query: str, text: str, parts: Sequence[tuple[int, int]]) -> PairScores:
        """Return how much the place of the answer attends to parts of a text, means over a layer's heads.

        Parts are character spans; a token belongs to each part that it shares a character with. Returned are
        shares of what the place attends to in all, shape `(layers, parts)`; errors as of `score`.
        """
        import torch  # noqa: PLC0415 (seconds, megabytes)

        model = self._loaded.model
        read, spans = self._read(query, text)
        ids = torch.tensor([[*self._loaded.before, *read, *self._loaded.after]], device=model.device)
        usual = model.config._attn_implementation
        with torch.no_grad():
            # The weights of every place, which only the slow attention tells, are too many to hold.
            before = model(input_ids=ids[:, :-1], use_cache=True, logits_to_keep=1).past_key_values
            model.set_attn_implementation("eager")
            try:
                last = model(input_ids=ids[:, -1:], past_key_values=before, output_attentions=True)
            finally:
                model.set_attn_implementation(usual)
        weights = torch.stack([layer[0, :, -1].float().mean(dim=0) for layer in last.attentions])
        found = weights.cpu().numpy().astype(np.float64)
        starts, ends = spans.T
        first = len(self._loaded.before)
        inside = [first + np.flatnonzero((starts < end) & (ends > start)) for start, end in parts]
        return np.stack([found[:, places].sum(axis=1) for places in inside], axis=1)

    @property
    def tokenizer(self) -> Any:  # noqa: ANN401 (transformers has no common type)
        """The model's own."""
        return self._loaded.tokenizer

    def _prompt(self, query: str, text: str) -> list[int]:
        return [*self._loaded.before, *self._read(query, text)[0], *self._loaded.after]

    def _read(self, query: str, text: str) -> tuple[list[int], npt.NDArray[np.int64]]:
        """Return the ids of query and text, and where they stand in the text (below 0: before it)."""
        if self._tokens:
            query, text = _cut([query, text], self._tokens, self)
        loaded, asked = self._loaded, _asked(self._instruction, query)
        room = self._max_tokens - len(loaded.before) - len(loaded.after)
        found = loaded.tokenizer(
            f"{asked}{text}", add_special_tokens=False, split_special_tokens=True,
            return_offsets_mapping=True, verbose=False,
        )  # fmt: skip
        spans = np.array(found["offset_mapping"][:room], dtype=np.int64).reshape(-1, 2)
        return found["input_ids"][:room], spans - len(asked)

    def _probabilities(self, prompts: list[list[int]]) -> PairScores:
        import torch  # noqa: PLC0415 (seconds, megabytes)

        loaded = self._loaded
        width = max(map(len, prompts))
        padding = loaded.tokenizer.pad_token_id or 0
        # Padded on the left, so that the last place is the answer's in every row.
        ids = torch.tensor([[padding] * (width - len(p)) + p for p in prompts], device=loaded.model.device)
        seen = [[0] * (width - len(p)) + [1] * len(p) for p in prompts]
        mask = torch.tensor(seen, device=loaded.model.device)
        with torch.no_grad():
            logits = loaded.model(input_ids=ids, attention_mask=mask, logits_to_keep=1).logits[:, -1]
        both = logits[:, [loaded.no, loaded.yes]].float().softmax(dim=-1)
        return np.asarray(both[:, 1].cpu().numpy(), dtype=np.float64)

    @functools.cached_property
    def _loaded(self) -> _Loaded:
        import transformers  # noqa: PLC0415 (torch: seconds, megabytes)

        library: Any = transformers
        try:
            tokenizer = library.AutoTokenizer.from_pretrained(self.name)
            model = library.AutoModelForCausalLM.from_pretrained(self.name).eval().to(device_of(self._device))
        except (OSError, ValueError) as error:
            raise missing_model(self.name, error) from error
        yes, no = (_single(tokenizer, word, self.name) for word in ("yes", "no"))
        before, after = (tokenizer(t, add_special_tokens=False)["input_ids"] for t in (_BEFORE, _AFTER))
        return _Loaded(model, tokenizer, before, after, yes, no)


def _single(tokenizer: Any, word: str, name: str) -> int:  # noqa: ANN401 (transformers has no common type)
    ids = tokenizer(word, add_special_tokens=False)["input_ids"]
    if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
        msg = f"{name} has no token of its own for {word!r}, by which pairs are scored: name a reranker"
        raise ModelMismatch(msg)
    return int(ids[0])


def asked_row(row: Sequence[str], instruction: str, tokens: int, tokenizer: Any) -> tuple[str, ...]:  # noqa: ANN401
    """Return a query and its texts as two parts of a prompt each, the texts cut to what is left of `tokens`.

    A query may take half of them. Marks of the chat within are broken up, so that they are plain characters.
    """
    plain = [text.replace("<|", "< |") for text in row]
    query, *texts = _cut(plain, tokens, TokenSpans(tokenizer))
    return f"{_BEFORE}{_asked(instruction, query)}", *(f"{text}{_AFTER}" for text in texts)


def _cut(row: Sequence[str], tokens: int, spans: Tokenizer) -> list[str]:
    query = first_tokens(row[0], tokens // 2, spans)
    left = tokens - len(spans.offsets(query))
    return [query, *(first_tokens(text, left, spans) for text in row[1:])]


def _asked(instruction: str, query: str) -> str:
    return f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: "


class LoadedReranker(PairScorer, Tokenizer, Protocol):
    """Scores texts against a query, and cuts them by its own tokens."""


def load_reranker(name: str, *, instruction: str, max_tokens: int, device: str) -> LoadedReranker:
    """Return the reranker of a checkpoint, published or trained here, by the architecture it names.

    `instruction` is for a causal one alone, `max_tokens` for a cross-encoder.

    Raises:
        ModelMismatch: A folder holds no model.
        TerminalError: The hub has no such model, or it cannot be asked.
    """
    if not Path(name).is_dir():
        require_on_hub(name)
    import transformers  # noqa: PLC0415 (torch: seconds, megabytes)

    library: Any = transformers
    try:
        config = library.AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise missing_model(name, error) from error
    if any(kind.endswith("ForCausalLM") for kind in config.architectures or ()):
        return CausalReranker(name, instruction=instruction, device=device)
    return CrossEncoder(name, max_tokens=max_tokens, device=device)
