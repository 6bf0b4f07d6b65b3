"""Trainers of bi-encoders and rerankers on queries with hard negatives, by sentence-transformers."""

from __future__ import annotations

import importlib.util
import json
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from storage.errors import WrongInput
from tasks.models.onnx_export import resolve
from tasks.models.with_torch.bi_encoder import sentence_model
from tasks.models.with_torch.device import AUTO, compute_in_bf16, device_of
from tasks.models.with_torch.reranker import ASKED, asked_row, missing_model

Report = Callable[[int, int], None]
Loss = Literal["listwise", "pointwise"]
_ASKING = 256  # tokens around query and text, at most
_AT_ONCE = 32  # queries read with their texts


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """How a model is trained; the learning rate rises over 5 % of the steps and falls as a cosine.

    `batch` counts the queries of an update, or of one of `accumulation` parts of it; `tokens` what is read of
    each text, and `temperature` divides the scores. `pooling` is a bi-encoder's, as `sentence_model` takes
    it, `checkpointing` of gradients, `bf16` a reranker's, and `kept` is the
    share of what a bi-encoder learned that is kept, above 0, at most 1. `checkpoint`
    updates lie between two states on disk. `device` is as `device_of` takes it.
    """

    batch: int = 16
    learning_rate: float = 5e-5
    temperature: float = 0.05
    kept: float = 1.0
    tokens: int = 128
    checkpoint: int = 25
    seed: int = 0
    device: str = AUTO
    accumulation: int = 1
    checkpointing: bool = False
    pooling: Literal["own", "last"] = "own"
    bf16: bool = False


@dataclass(frozen=True, slots=True)
class Trained:
    """What training came to: updates made, seconds and tokens of this call, and the loss by update."""

    steps: int
    seconds: float
    tokens: int
    losses: list[tuple[int, float]]


def require_training() -> None:
    """Raise `WrongInput` if a package that the trainers need is not installed."""
    for package in ("datasets", "accelerate"):
        if importlib.util.find_spec(package) is None:
            msg = f"training needs the package {package}: pip install '.[train]' in Skillery's folder"
            raise WrongInput(msg)


def train_bi_encoder(
    name: str, rows: Sequence[Sequence[str]], how: TrainingSettings, target: Path,
    report: Report = lambda _done, _total: None,
) -> Trained:  # fmt: skip
    """Train a sentence encoder by InfoNCE with in-batch negatives, and save it to the folder `target`.

    Each query's positive is told from its own negatives and from all texts of the batch's other queries
    (SkillRouter, equation 1; Karpukhin et al., "Dense Passage Retrieval", 2020). No text stands twice in a
    batch. A large batch is read in parts, by gradient caching (Gao et al., "Scaling Deep Contrastive Learning
    Batch Size", 2021). The weights are brought back towards those before, as far as `how.kept`
    says (Wortsman et al., "Robust fine-tuning of zero-shot models", 2022, equation 1). One pass over the
    rows (query, positive and as many negatives in each); a pass that was cut off goes on from its last
    checkpoint beside `target`. `report` is called with the updates made and their total.

    Raises:
        ModelMismatch: There is no such model.
        WrongInput: The trainers' packages are not installed.
    """
    require_training()
    from sentence_transformers import SentenceTransformerTrainer  # noqa: PLC0415 (torch)
    from sentence_transformers import SentenceTransformerTrainingArguments as Arguments  # noqa: PLC0415
    from sentence_transformers.sentence_transformer import losses as known  # noqa: PLC0415 (torch)

    longest = 1 << 30  # the model's own window
    model = _readied(sentence_model(name, longest, device_of(how.device), how.pooling), how)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    compute_in_bf16(model[0], how.device)
    window, model.max_seq_length = model.max_seq_length, min(how.tokens, model.max_seq_length)
    arguments = {**_arguments(how, len(rows), target, at_once=how.batch), "batch_sampler": "no_duplicates"}
    scale = 1 / how.temperature
    if how.batch > _AT_ONCE:
        loss: Any = known.CachedMultipleNegativesRankingLoss(model, scale=scale, mini_batch_size=_AT_ONCE)
    else:
        loss = known.MultipleNegativesRankingLoss(model, scale=scale)
    trainer = SentenceTransformerTrainer(
        model, Arguments(**arguments), train_dataset=_dataset(rows, how.seed), loss=loss
    )
    seconds, losses, share = _run(trainer, target, report)
    model.max_seq_length = how.tokens if window == longest else window
    _keep(model, before, how.kept)
    _save(model, target)
    tokens = _tokens(model.tokenizer, [text for row in rows for text in row], how.tokens)
    return Trained(trainer.state.global_step, seconds, round(share * tokens), losses)


def train_reranker(
    name: str, rows: Sequence[Sequence[str]], how: TrainingSettings, target: Path,
    report: Report = lambda _done, _total: None, *, loss: Loss = "listwise", instruction: str = "",
) -> Trained:  # fmt: skip
    """Train a cross-encoder or a causal reranker on each query's candidates, and save it to `target`.

    Listwise it is cross-entropy: the softmax goes over the scores of a query's own candidates, divided by the
    temperature (SkillRouter, equation 2). Pointwise it is the binary cross-entropy of each candidate by
    itself. `tokens` cuts query and text together; a causal model is asked as `CausalReranker` asks it, with
    the instruction, and its score is the logit of `yes` less that of `no`. The model's folder says both, so
    that it is asked as it was trained. All else is as in `train_bi_encoder`.
    """
    require_training()
    from sentence_transformers import CrossEncoder  # noqa: PLC0415 (torch)
    from sentence_transformers.cross_encoder import CrossEncoderTrainer, losses  # noqa: PLC0415
    from sentence_transformers.cross_encoder import CrossEncoderTrainingArguments as Arguments  # noqa: PLC0415
    from sentence_transformers.cross_encoder.modules import LogitScore  # noqa: PLC0415

    try:
        loaded = CrossEncoder(resolve(name)[0], device=device_of(how.device), max_length=how.tokens)
    except (OSError, ValueError) as error:
        raise missing_model(name, error) from error
    model: Any = _readied(loaded, how)
    if how.bf16:
        compute_in_bf16(model[0], how.device)
    if isinstance(model[-1], LogitScore):
        rows = [asked_row(row, instruction, how.tokens, model.tokenizer) for row in rows]
        # The texts are cut already, so that no cut hits the question behind them.
        model.max_seq_length = how.tokens + _ASKING
    candidates = len(rows[0]) - 1
    if loss == "pointwise":
        how = replace(how, batch=how.batch * candidates)
        least: Any = losses.BinaryCrossEntropyLoss(model)
        dataset, at_once = _dataset(rows, how.seed, labelled=True), candidates
    else:
        scale: Any = 1 / how.temperature  # whose type is said to be a whole number
        # Read one list at a time there are no candidates of other queries, and what is left is equation 2.
        least = losses.MultipleNegativesRankingLoss(
            model, num_negatives=None, scale=scale, activation_fn=None
        )
        dataset, at_once = _dataset(rows, how.seed), 1
    arguments = Arguments(**_arguments(how, len(dataset), target, at_once=at_once))
    trainer = CrossEncoderTrainer(model, arguments, train_dataset=dataset, loss=least)
    seconds, told, share = _run(trainer, target, report)
    _save(model, target, {"instruction": instruction, "tokens": how.tokens})
    pairs = [f"{query} {text}" for query, *texts in rows for text in texts]
    tokens = round(share * _tokens(model.tokenizer, pairs, how.tokens))
    return Trained(trainer.state.global_step, seconds, tokens, told)


def _keep(model: Any, before: dict[str, Any], share: float) -> None:  # noqa: ANN401
    """Set each weight of a model to a share of the way that it went from what it was before."""
    for name, value in model.state_dict().items():  # which shares its memory with the model
        if value.is_floating_point():
            value.copy_(before[name].to(value.device).lerp(value, share))


def _readied(model: Any, how: TrainingSettings) -> Any:  # noqa: ANN401 (of an optional package)
    # Without examples in its card they are made, with a progress bar, for a card that nobody writes.
    model.model_card_data.widget = [{"text": ""}]
    if how.checkpointing:
        model[0].auto_model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


def _arguments(how: TrainingSettings, rows: int, target: Path, *, at_once: int) -> dict[str, Any]:
    parts = how.batch // at_once * how.accumulation
    steps = int(np.ceil(rows / (at_once * parts)))
    return {
        "output_dir": str(_checkpoints(target)), "num_train_epochs": 1, "learning_rate": how.learning_rate,
        "per_device_train_batch_size": at_once, "gradient_accumulation_steps": parts,
        "lr_scheduler_type": "cosine", "warmup_steps": round(0.05 * steps), "seed": how.seed,
        "save_strategy": "steps", "save_steps": how.checkpoint, "save_total_limit": 1, "logging_steps": 1,
        "report_to": "none", "disable_tqdm": True, "use_cpu": device_of(how.device) == "cpu",
        "dataloader_pin_memory": False,
    }  # fmt: skip


def _dataset(rows: Sequence[Sequence[str]], seed: int, *, labelled: bool = False) -> Any:  # noqa: ANN401
    """Return rows in random order; labelled, a row a candidate, 1 for the positive, a query's together."""
    from datasets import Dataset, disable_progress_bars  # noqa: PLC0415 (pandas: seconds)

    disable_progress_bars()
    # The trainers' samplers begin with the same seed whatever theirs is.
    drawn: Any = [rows[i] for i in np.random.default_rng(seed).permutation(len(rows)).tolist()]
    names = ["query", "positive", *(f"negative_{n}" for n in range(1, len(rows[0]) - 1))]
    if labelled:
        drawn = [(query, text, float(n == 0)) for query, *texts in drawn for n, text in enumerate(texts)]
        names = ["query", "text", "label"]
    return Dataset.from_dict(dict(zip(names, map(list, zip(*drawn, strict=True)), strict=True)))


def _run(trainer: Any, target: Path, report: Report) -> tuple[float, list[tuple[int, float]], float]:  # noqa: ANN401
    """Train to the end, from the last checkpoint if there is one.

    Return the seconds, the loss by update, and the share of the updates that were made now.
    """
    from transformers import PrinterCallback, TrainerCallback, trainer_utils  # noqa: PLC0415 (torch)

    library: Any = trainer_utils

    class _Reporting(TrainerCallback):
        begun = 0  # the updates that a checkpoint holds

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401, ARG002
            self.begun = state.global_step

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401, ARG002
            report(state.global_step, state.max_steps)

    # It prints to stdout, which holds the command's answer alone.
    trainer.remove_callback(PrinterCallback)
    reporting = _Reporting()
    trainer.add_callback(reporting)
    began, scratch = time.perf_counter(), _checkpoints(target)
    last = library.get_last_checkpoint(str(scratch)) if scratch.is_dir() else None
    with warnings.catch_warnings():
        # States that lie less than a second apart are told by their numbers, which is as good.
        warnings.filterwarnings("ignore", "mtime may not be reliable", UserWarning)
        trainer.train(resume_from_checkpoint=last)
    losses = [(int(e["step"]), float(e["loss"])) for e in trainer.state.log_history if "loss" in e]
    share = 1 - reporting.begun / max(trainer.state.global_step, 1)
    return time.perf_counter() - began, losses, share


def _checkpoints(target: Path) -> Path:
    return target.with_name(f"{target.name}-checkpoints")


def _save(model: Any, target: Path, asked: dict[str, Any] | None = None) -> None:  # noqa: ANN401
    """Put a model in its place whole, with how a reranker is `asked`, and drop its checkpoints."""
    unfinished = target.with_name(f".{target.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    model.save_pretrained(str(unfinished), create_model_card=False)
    if asked is not None:
        (unfinished / ASKED).write_text(json.dumps(asked, indent=1), "utf-8")
    shutil.rmtree(target, ignore_errors=True)
    unfinished.rename(target)
    shutil.rmtree(_checkpoints(target), ignore_errors=True)


def _tokens(tokenizer: Any, texts: Sequence[str], most: int) -> int:  # noqa: ANN401
    found = tokenizer(list(texts), truncation=True, max_length=most, padding=False)["input_ids"]
    return sum(map(len, found))
