"""The hybrid classifier: the local one first, and an LLM where it is unsure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storage.errors import WrongInput
from tasks.parse.classify.attribution import (
    AttributedClassifier,
    Documents,
    Report,
    TypedBy,
    Typing,
    document_of,
)
from tasks.parse.classify.llm import LlmClassifier
from tasks.parse.classify.protocol import Classifier, FragmentInContext, Typed


class HybridClassifier(AttributedClassifier):
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
        """The identity of the pair."""
        return hybrid_name(self.local.name, self.threshold, self.llm.name)

    def type_all(
        self,
        fragments: Sequence[FragmentInContext],
        documents: Documents | None = None,
        report: Report | None = None,
    ) -> Typing:
        """Type fragments as every attributed classifier does; `report` counts those sent."""
        names = [document_of(f) for f in fragments] if documents is None else list(documents)
        rows = [TypedBy(typed, self.local.name) for typed in self.local.classify(fragments)]
        unsure = [k for k, row in enumerate(rows) if row.typed.confidence < self.threshold]
        if not unsure:
            return Typing(rows)
        sent = self.llm.type_all([fragments[k] for k in unsure], [names[k] for k in unsure], report)
        for place, row in zip(unsure, sent.rows, strict=True):
            rows[place] = row
        return Typing(rows, len(unsure), sent.fallbacks, sent.unfinished)


def merged(local: Sequence[TypedBy], llm: Sequence[TypedBy], threshold: float) -> list[TypedBy]:
    """Return the rows that a hybrid gives, from those of both classifiers for all fragments."""
    pairs = zip(local, llm, strict=True)
    return [asked if own.typed.confidence < threshold else own for own, asked in pairs]


def hybrid_name(local: str, threshold: float, llm: str) -> str:
    """Return the name of the pair of a local classifier and a language model's."""
    return f"{local}<{threshold:g}:{llm}"


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
