"""The local classifier first; a language model where it is unsure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from storage.errors import WrongInput
from tasks.parse.classify import Classifier, FragmentInContext, Typed
from tasks.parse.llm import LlmClassifier, TypedBy, Typing, document_of


class HybridClassifier:
    """Sends the fragments that the local classifier is unsure of to a language model.

    Args:
        local: Types every fragment.
        llm: Types those again whose local confidence is under the threshold.
        threshold: In [0, 1]; 0 sends none, 1 all.

    Raises:
        WrongInput: The threshold is out of its range.
    """

    def __init__(self, local: Classifier, llm: LlmClassifier, threshold: float) -> None:
        if not 0 <= threshold <= 1:
            msg = f"threshold {threshold}: a confidence lies in 0 to 1"
            raise WrongInput(msg)
        self.local, self.llm, self.threshold = local, llm, threshold

    @property
    def name(self) -> str:
        """The identity of the pair; each row of `type_all` names the one that typed it."""
        return f"{self.local.name}<{self.threshold:g}:{self.llm.name}"

    def classify(self, fragments: Sequence[FragmentInContext]) -> list[Typed]:
        """Return one answer a fragment, in order; `type_all` also says who gave it."""
        return [row.typed for row in self.type_all(fragments).rows]

    def type_all(
        self,
        fragments: Sequence[FragmentInContext],
        documents: Sequence[str | None] | None = None,
        report: Callable[[int, int], None] | None = None,
    ) -> Typing:
        """Type fragments; arguments and errors as `LlmClassifier.type_all`, `report` counts those sent."""
        names = [document_of(f) for f in fragments] if documents is None else list(documents)
        rows = [TypedBy(typed, self.local.name) for typed in self.local.classify(fragments)]
        unsure = [k for k, row in enumerate(rows) if row.typed.confidence < self.threshold]
        if not unsure:
            return Typing(rows, 0, Counter(), frozenset())
        sent = self.llm.type_all([fragments[k] for k in unsure], [names[k] for k in unsure], report)
        for place, row in zip(unsure, sent.rows, strict=True):
            rows[place] = row
        return Typing(rows, len(unsure), sent.fallbacks, sent.unfinished)


@dataclass(frozen=True, slots=True)
class HybridPoint:
    """One threshold: the share of fragments sent, and the accuracy of all."""

    threshold: float
    sent: float
    accuracy: float


def hybrid_curve(
    gold: Sequence[str], local: Sequence[Typed], llm: Sequence[str], thresholds: Sequence[float]
) -> list[HybridPoint]:
    """Return, for each threshold, the share sent and the accuracy, from one pass of both classifiers.

    Args:
        gold: The true types.
        local: The local classifier's answers, in the same order.
        llm: The model's labels, in the same order.
        thresholds: In [0, 1].
    """
    points = []
    for threshold in thresholds:
        sent = [typed.confidence < threshold for typed in local]
        given = [m if s else typed.node_type for s, m, typed in zip(sent, llm, local, strict=True)]
        right = sum(g == t for g, t in zip(given, gold, strict=True))
        points.append(HybridPoint(threshold, sum(sent) / len(gold), right / len(gold)))
    return points
