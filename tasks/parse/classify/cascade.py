"""The default classifier, a cascade: cues and words first, then a context model where they are unsure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from storage.root import Root
from storage.schemas import NODE_TYPES
from storage.vectors import VectorStore, text_hash
from tasks.parse.classify.context_model import (
    packaged_context_model,
    packaged_identity,
    texts_read,
)
from tasks.parse.classify.local import SUREST, LocalClassifier, LocalModel, packaged_model, softmax
from tasks.parse.classify.protocol import Classifier, FragmentInContext, Probabilities, Typed

# Below this confidence of the first look (see the card): a quarter of all fragments, half of the errors.
UNSURE = 0.6
# By cross-validation, beside the temperature under which confidence is the share of right answers.
SHARE, TEMPERATURE = 0.5, 0.85
_BATCH = 4096


class CarefulClassifier:
    """Types fragments as in SkillPager, section 3.1, with weights that come with the package.

    What the first model is less than 60 % sure of is read in its context too, and the geometric mean of both
    decides. Deterministic, and independent of the order and number of fragments but for rounding.

    Args:
        first: As `tasks.train.local_model` makes it; None takes the one in the package.
        second: As `tasks.train.context_model` makes it; None takes the packaged one, when needed.
    """

    name = "local-5"

    def __init__(self, first: LocalModel | None = None, second: Probabilities | None = None) -> None:
        self._first, self._second = first or packaged_model(), second

    def classify(self, fragments: Sequence[FragmentInContext]) -> list[Typed]:
        """Return one answer a fragment, in order; a tie goes to the type that `NODE_TYPES` names first."""
        answers: list[Typed] = []
        for start in range(0, len(fragments), _BATCH):
            given = self.probabilities(fragments[start : start + _BATCH])
            best, sure = given.argmax(axis=1), np.minimum(given.max(axis=1), SUREST)
            answers += [Typed(NODE_TYPES[k], p) for k, p in zip(best.tolist(), sure.tolist(), strict=True)]
        return answers

    def probabilities(self, fragments: Sequence[FragmentInContext]) -> npt.NDArray[np.float64]:
        """Return the probability of each of `NODE_TYPES`, shape `(len(fragments), 6)`."""
        given = self._first.probabilities(fragments)
        unsure = np.flatnonzero(given.max(axis=1, initial=0.0) < UNSURE)
        if len(unsure):
            second = self._second or packaged_context_model()
            again = second.probabilities([fragments[at] for at in unsure.tolist()])
            given[unsure] = together(given[unsure], again)
        return given


def together(
    first: npt.NDArray[np.float64], second: npt.NDArray[np.float64], temperature: float = TEMPERATURE
) -> npt.NDArray[np.float64]:
    """Return the weighted geometric mean of two models' probabilities, at a temperature above 0."""
    return softmax(((1 - SHARE) * np.log(first + 1e-9) + SHARE * np.log(second + 1e-9)) / temperature)


def embedded_classifier(*, careful: bool, look: Probabilities | None = None) -> Classifier:
    """Return the classifier that needs no endpoint.

    If `careful`, it takes the second look, which costs about half of what encoding the fragments does;
    without, 20,000 skills are typed in minutes. `look` takes the second look; None: the packaged model, which
    keeps nothing.
    """
    return CarefulClassifier(second=look) if careful else LocalClassifier()


def embedded_name(*, careful: bool) -> str:
    """Return that classifier's name without loading it: a night with nothing new types nothing."""
    return CarefulClassifier.name if careful else LocalClassifier.name


LOOKS = "state/looks"


def looks_of(root: Root) -> VectorStore:
    """Return what the packaged context model found below a root: a row of six probabilities a window."""
    return VectorStore(root, packaged_identity(), len(NODE_TYPES), LOOKS)


class KeptLook:
    """Reads fragments in their context as the context model does, and none twice in the same context.

    Args:
        root: Where what it found is kept: hashes of windows, no text.
        look: Takes the look; None takes the packaged context model, when first needed.
    """

    def __init__(self, root: Root, look: Probabilities | None = None) -> None:
        self._store, self._look = looks_of(root), look

    def probabilities(self, fragments: Sequence[FragmentInContext]) -> npt.NDArray[np.float64]:
        """Return the probability of each of `NODE_TYPES`, shape `(len(fragments), 6)`.

        Raises:
            StorageError: What is kept is damaged; the message names the file, which may be deleted.
        """
        hashes = [text_hash(repr(texts_read(fragment))) for fragment in fragments]
        given, _ = self._store.complete(
            hashes, lambda missing: self._taken([fragments[at] for at in missing])
        )
        return given.astype(np.float64)

    def _taken(self, fragments: Sequence[FragmentInContext]) -> npt.NDArray[np.float64]:
        return (self._look or packaged_context_model()).probabilities(fragments)
