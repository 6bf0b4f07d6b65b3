"""Options of classification: which classifier types nodes, and how an LLM takes part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from storage.answers import Answers
from storage.root import Root
from tasks.models.llm.answer_cache import open_book
from tasks.models.llm.budget import Carried, Ceiling, Ledger, Prices
from tasks.models.llm.endpoint import Endpoint
from tasks.models.llm.question import Sampling
from tasks.parse.classify.attribution import EARLY, FALLBACKS
from tasks.parse.classify.hybrid import HybridClassifier, hybrid_name
from tasks.parse.classify.llm import ACCURACY, BATCH, LlmClassifier, llm_name
from tasks.parse.classify.protocol import Classifier

Slot = Callable[[], AbstractAsyncContextManager[object]]


@dataclass(frozen=True, slots=True)
class LlmOptions:
    """How a language model takes part in typing; small, and fit to be sent to another process."""

    endpoint: Endpoint  # where it is served, and how it is asked
    # Only nodes whose local confidence is under it are asked about; None: all, whatever it is.
    threshold: float | None
    sampling: Sampling = field(default_factory=Sampling)  # how answers are drawn
    batch: int = BATCH  # most fragments a question
    accuracy: float = ACCURACY  # the confidence of the model's labels
    prices: Prices = field(default_factory=Prices)  # what its tokens cost
    ceiling: Ceiling = field(default_factory=Ceiling)  # what one run may spend

    def shared_by(self, batches: int) -> LlmOptions:
        """Return the options of each of several batches that ask at once: its share of the questions."""
        share = max(1, self.endpoint.concurrency // batches)
        return replace(self, endpoint=replace(self.endpoint, concurrency=share))


class Opened(NamedTuple):
    """A classifier that is ready, and the account of what it asks."""

    classifier: Classifier
    ledger: Ledger


def everything(llm: LlmOptions) -> LlmOptions:
    """Return options by which the model is asked about every fragment."""
    return replace(llm, threshold=None)


def classifier_name(local: str, llm: LlmOptions | None) -> str:
    """Return the name of the classifier that `open_classifier` opens, given the local one's."""
    if llm is None:
        return local
    model = llm_name(llm.endpoint.model)
    return model if llm.threshold is None else hybrid_name(local, llm.threshold, model)


def typing_identity(local: str, llm: LlmOptions | None) -> str:
    """Return all that types depend on beside the text: names, prompt version, and what shapes an answer.

    Neither the address, the timeouts and retries nor the ceiling are part of it.
    """
    if llm is None:
        return local
    shaping = (local, sorted(asdict(llm.sampling).items()), llm.batch, llm.accuracy)
    return f"{classifier_name(local, llm)} {shaping!r}"


@contextmanager
def open_classifier(
    root: Root,
    local: Classifier,
    llm: LlmOptions | None,
    *,
    ledger: Ledger | None = None,
    slot: Slot = nullcontext,
) -> Iterator[Opened]:
    """Hold a classifier; with a language model, its answers are kept below the root.

    Args:
        root: Nothing is read or written there without a language model.
        local: Types alone, or what the model does not.
        llm: None: no model takes part.
        ledger: The account of the run; None: one that begins here.
        slot: Entered around each question: a limit across processes.

    Raises:
        WrongInput: A number in `llm` is out of its range.
        StorageError: The answers kept cannot be read.
    """
    if llm is None:
        yield Opened(local, ledger or Ledger())
        return
    ledger = ledger or Ledger(llm.prices, llm.ceiling)
    with Answers(root) as answers:
        book = open_book(llm.endpoint, answers, ledger, slot=slot)
        model = LlmClassifier(book, local, sampling=llm.sampling, batch=llm.batch, accuracy=llm.accuracy)
        yield Opened(
            model if llm.threshold is None else HybridClassifier(local, model, llm.threshold), ledger
        )


def llm_report(
    name: str, llm: LlmOptions | None, typed: Mapping[str, int], account: Carried | None
) -> dict[str, Any] | None:
    """Return what a run asked of the model and what that cost; None where no model takes part.

    Args:
        name: The classifier's.
        llm: How the model takes part.
        typed: Counts as `Typing.counts` gives them, added up; others are passed over.
        account: What the run's ledger has carried to its end; None: nothing was typed.

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
