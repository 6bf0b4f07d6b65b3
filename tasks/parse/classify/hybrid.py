"""The hybrid classifier: the local one first, and an LLM where it is unsure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storage.errors import WrongInput
from tasks.parse.classify.attribution import AttributedClassifier, Documents, Report, TypedBy, Typing
from tasks.parse.classify.llm import LlmClassifier
from tasks.parse.classify.protocol import Classifier, Fragments, Typed


class HybridClassifier(AttributedClassifier):
    """Asks a language model about the fragments whose local confidence is below a threshold.

    The threshold is in [0, 1] (else `WrongInput`): 0 asks about none, 1 about all.
    """

    def __init__(self, local: Classifier, llm: LlmClassifier, threshold: float) -> None:
        if not 0 <= threshold <= 1:
            msg = f"threshold {threshold}: a confidence lies in 0 to 1"
            raise WrongInput(msg)
        self.local, self.llm, self.threshold = local, llm, threshold

    @property
    def name(self) -> str:
        """The name of the pair."""
        return hybrid_name(self.local.name, self.threshold, self.llm.name)

    def _type(self, fragments: Fragments, documents: Documents, report: Report | None) -> Typing:
        rows = [TypedBy(typed, self.local.name) for typed in self.local.classify(fragments)]
        unsure = [k for k, row in enumerate(rows) if row.typed.confidence < self.threshold]
        # Without fragments to ask about, the answers kept are not opened.
        if not unsure:
            return Typing(rows)
        sent = self.llm.type_all([fragments[k] for k in unsure], [documents[k] for k in unsure], report)
        for place, row in zip(unsure, sent.rows, strict=True):
            rows[place] = row
        return Typing(rows, len(unsure), sent.fallbacks, sent.unfinished)


def merged(local: Sequence[TypedBy], llm: Sequence[TypedBy], threshold: float) -> list[TypedBy]:
    """Return a hybrid's rows, given those of both classifiers for all fragments."""
    pairs = zip(local, llm, strict=True)
    return [asked if own.typed.confidence < threshold else own for own, asked in pairs]


def hybrid_name(local: str, threshold: float, llm: str) -> str:
    """Return the name of the pair of a local classifier and a language model's."""
    return f"{local}<{threshold:g}:{llm}"


@dataclass(frozen=True, slots=True)
class HybridPoint:
    """A hybrid's threshold, the share of fragments sent to the model, and the accuracy over all."""

    threshold: float
    sent: float
    accuracy: float


def hybrid_curve(
    gold: Sequence[str], local: Sequence[Typed], llm: Sequence[str], thresholds: Sequence[float]
) -> list[HybridPoint]:
    """Return the point of each threshold in [0, 1], from the true types and both classifiers' answers."""
    points = []
    for threshold in thresholds:
        sent = [typed.confidence < threshold for typed in local]
        given = [m if s else typed.node_type for s, m, typed in zip(sent, llm, local, strict=True)]
        right = sum(g == t for g, t in zip(given, gold, strict=True))
        points.append(HybridPoint(threshold, sum(sent) / len(gold), right / len(gold)))
    return points
