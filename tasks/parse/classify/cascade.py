"""The default classifier, a cascade: cues and words first, then a context model where they are unsure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from storage.root import Root
from storage.schemas import NODE_TYPES
from storage.vectors import VectorStore, text_hash
from tasks.parse.classify.context_model import packaged_context_model, packaged_identity, texts_read
from tasks.parse.classify.local import LocalClassifier, LocalModel, packaged_model, softmax, typed_by_batches
from tasks.parse.classify.protocol import Classifier, FragmentInContext, Probabilities, Typed

# Below this confidence of the first model (see the card): a quarter of all fragments, half of the errors.
UNSURE = 0.6
# By cross-validation, beside the temperature under which confidence is the share of right answers.
SHARE, TEMPERATURE = 0.5, 0.85
_BATCH = 4096
CACHED_PROBABILITIES = "state/looks"


class CascadeClassifier:
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
        return typed_by_batches(fragments, self.probabilities, _BATCH)

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


def embedded_classifier(*, cascade: bool, second: Probabilities | None = None) -> Classifier:
    """Return the classifier that needs no endpoint.

    Args:
        cascade: Whether a context model reads what the first model is unsure of. That takes about half as
            long as encoding the fragments; without it, 20,000 skills are typed in minutes.
        second: That context model; None: the packaged one, which keeps no results.
    """
    return CascadeClassifier(second=second) if cascade else LocalClassifier()


def embedded_name(*, cascade: bool) -> str:
    """Return that classifier's name without loading it: if no document changed, no node is classified."""
    return CascadeClassifier.name if cascade else LocalClassifier.name


def cached_probabilities(root: Root) -> VectorStore:
    """Return the packaged context model's results below a root: a row of six probabilities a window."""
    return VectorStore(root, packaged_identity(), len(NODE_TYPES), CACHED_PROBABILITIES)


class CachedContextModel:
    """Reads fragments in their context as the context model does, and none twice in the same context.

    Args:
        root: Where results are kept: hashes of windows, no text.
        model: Reads them; None takes the packaged context model, when first needed.
    """

    def __init__(self, root: Root, model: Probabilities | None = None) -> None:
        self._store, self._model = cached_probabilities(root), model

    def probabilities(self, fragments: Sequence[FragmentInContext]) -> npt.NDArray[np.float64]:
        """Return the probability of each of `NODE_TYPES`, shape `(len(fragments), 6)`.

        Raises:
            StorageError: What is kept is damaged; the message names the file, which may be deleted.
        """

        def read(missing: Sequence[int]) -> npt.NDArray[np.float64]:
            model = self._model or packaged_context_model()
            return model.probabilities([fragments[at] for at in missing])

        hashes = [text_hash(repr(texts_read(fragment))) for fragment in fragments]
        return self._store.complete(hashes, read)[0].astype(np.float64)
