"""Options of classification: which classifier types nodes, how an LLM takes part, how far it is believed.

An LLM is measured on fragments of known type before it types any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from importlib import resources
from typing import Any, Self

from storage.errors import WrongInput
from storage.jsonl import read_lines
from storage.root import Root
from storage.schemas import NODE_TYPES
from tasks.models.llm.ask import EARLY, Fallback, LlmOptions, Slot, open_llm
from tasks.models.llm.budget import Carried, Ledger
from tasks.parse.classify.llm import (
    ACCURACY,
    BATCH,
    FALLBACKS,
    Belief,
    HybridClassifier,
    LlmClassifier,
    hybrid_name,
    llm_name,
)
from tasks.parse.classify.local import SUREST
from tasks.parse.classify.protocol import Classifier, FragmentInContext, read_fragments

# Stands for the figures where types are identified; it changes with the fragments and the rule below.
MEASURED = "measured-1"
_TOLD = 3  # types of which the refusal says how often they were mistaken
# Twelve fragments of a type say little: a type's share counts as if so many more had the share of all.
_DRAWN = 5


@dataclass(frozen=True, slots=True)
class TypingOptions(LlmOptions):
    """How a language model takes part in typing; small, and fit to be sent to another process."""

    # Only nodes whose local confidence is under it are asked about; None: all, whatever it is.
    threshold: float | None = None
    batch: int = BATCH  # most fragments a question
    accuracy: Belief | None = ACCURACY  # the confidence of the model's labels; None: to be measured

    def shared_by(self, batches: int) -> Self:
        """Return the options of each of several batches that ask at once: its share of the questions."""
        share = max(1, self.endpoint.concurrency // batches)
        return replace(self, endpoint=replace(self.endpoint, concurrency=share))


def everything(llm: TypingOptions) -> TypingOptions:
    """Return options by which the model is asked about every fragment, without being measured first."""
    return replace(llm, threshold=None, accuracy=ACCURACY if llm.accuracy is None else llm.accuracy)


def belief(
    root: Root, local: Classifier, llm: TypingOptions, ledger: Ledger, slot: Slot = nullcontext
) -> Belief:
    """Return how far the model's labels are believed, measured unless the options say it.

    Arguments as `open_classifier`; raises `WrongInput` and `LlmDenied` as `measured` does.
    """
    if llm.accuracy is not None:
        return llm.accuracy
    with open_llm(root, llm, ledger=ledger, slot=slot) as asked:
        return measured(LlmClassifier(asked, local, batch=llm.batch))


def classifier_name(local: str, llm: TypingOptions | None) -> str:
    """Return the name of the classifier that `open_classifier` opens, given the local one's."""
    if llm is None:
        return local
    model = llm_name(llm.endpoint.model)
    return model if llm.threshold is None else hybrid_name(local, llm.threshold, model)


def typing_identity(local: str, llm: TypingOptions | None) -> str:
    """Return all that types depend on beside the text: names, prompt version, and what shapes an answer.

    Neither the address, the timeouts and retries nor the ceiling are part of it, nor measured figures: they
    follow from the rest.
    """
    if llm is None:
        return local
    accuracy = llm.accuracy if isinstance(llm.accuracy, float) else MEASURED
    shaping = (local, sorted(asdict(llm.sampling).items()), llm.batch, accuracy)
    return f"{classifier_name(local, llm)} {shaping!r}"


@contextmanager
def open_classifier(
    root: Root, local: Classifier, llm: TypingOptions | None, *, ledger: Ledger | None = None,
    slot: Slot = nullcontext,
) -> Iterator[tuple[Classifier, Ledger]]:  # fmt: skip
    """Hold a classifier and its account; with a language model, its answers are kept below the root.

    `local` types alone, or what the model does not; `ledger` is the account of the run, None: one that begins
    here; `slot` is entered around each question: a limit across processes.

    Raises:
        WrongInput: A number in `llm` is out of its range, or as `belief`.
        LlmDenied: As `belief`.
        StorageError: The answers kept cannot be read.
    """
    if llm is None:
        yield local, ledger or Ledger()
        return
    ledger = ledger or Ledger(llm.prices, llm.ceiling)
    accuracy = belief(root, local, llm, ledger, slot)
    with open_llm(root, llm, ledger=ledger, slot=slot) as asked:
        model = LlmClassifier(asked, local, batch=llm.batch, accuracy=accuracy)
        yield model if llm.threshold is None else HybridClassifier(local, model, llm.threshold), ledger


def llm_report(
    name: str, llm: TypingOptions | None, typed: Mapping[str, int], account: Carried | None
) -> dict[str, Any] | None:
    """Return what a run asked of the model and what that cost; None where no model takes part.

    `typed` holds counts as `Typing.counts` gives them, added up; `account` is what the run's ledger has
    carried to its end, None: nothing was typed.

    Returns:
        `classifier`, `asked` (fragments), `fallbacks` (of these, typed locally, by reason), `unfinished`
        (documents that the next run asks about again), `partial`, and the keys of `Ledger.report`.
    """
    if llm is None:
        return None
    fallbacks = {k.removeprefix(FALLBACKS): n for k, n in sorted(typed.items()) if k.startswith(FALLBACKS)}
    return {
        "classifier": name,
        "asked": typed.get("asked", 0),
        "fallbacks": fallbacks,
        "unfinished": typed.get("unfinished", 0),
        "partial": any(fallbacks.get(reason) for reason in EARLY),
        **Ledger(llm.prices, llm.ceiling, account).report(),
    }


def known_fragments() -> tuple[list[FragmentInContext], list[str]]:
    """Return the packaged fragments of known type, in order, and their types."""
    with resources.as_file(resources.files("tasks.parse").joinpath("data/measured.jsonl")) as path:
        lines = read_lines(path, "{id, heading_path, block, previous, text, next, node_type}")
        return list(read_fragments(path)), [record["node_type"] for _, record in lines]


def measured(classifier: LlmClassifier) -> dict[str, float] | Fallback:
    """Return the confidence of a model's labels: how often it was right where it gave each type.

    Returns:
        The shares by type, drawn towards the share over all types; a fallback if the ceiling or the server
        ended the asking early: what was answered is kept, and a later call asks for the rest.

    Raises:
        WrongInput: The model is right less often than the local classifier, or types less than half.
        LlmDenied: The server rejects the key, or has no such model.
    """
    fragments, types = known_fragments()
    typing = classifier.type_all(fragments, [None] * len(fragments))
    for reason in EARLY:
        if typing.fallbacks[reason]:
            return Fallback(reason, f"{classifier.llm.model} could not be measured")
    rows = zip(typing.rows, types, classifier.local.classify(fragments), strict=True)
    given = [
        (row.typed.node_type, t, own.node_type) for row, t, own in rows if row.classifier == classifier.name
    ]
    right, local = (sum(answer[k] == answer[1] for answer in given) for k in (0, 2))
    if right < local or 2 * len(given) < len(types):
        raise WrongInput(_refusal(classifier.llm.model, len(types), given, right, local))
    share, said = right / len(given), Counter(said for said, _, _ in given)
    hits = Counter(said for said, true, _ in given if said == true)
    return {t: min((hits[t] + _DRAWN * share) / (said[t] + _DRAWN), SUREST) for t in NODE_TYPES}


def _refusal(model: str, count: int, given: list[tuple[str, str, str]], right: int, local: int) -> str:
    of_type = Counter(true for _, true, _ in given)
    wrong = Counter(true for said, true, _ in given if said != true).most_common(_TOLD)
    worst = ", ".join(f"{n} of {of_type[name]} {name}" for name, n in wrong) or "none"
    shares = (f"{n / max(len(given), 1):.2f}" for n in (right, local))
    return (
        "SKILLERY_LLM_MODEL {}: of {} fragments whose type is known it typed {}, {} of these right, "
        "the local classifier {} (mistaken: {}); SKILLERY_LLM_ACCURACY=SHARE believes it anyway, "
        "SKILLERY_CLASSIFIER=local or --classifier local types without it"
    ).format(model, count, len(given), *shares, worst)
