"""A second look that is taken once: what it found is kept across nights, by all that it reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from storage.root import Root
from storage.schemas import NODE_TYPES
from storage.vectors import VectorStore, text_hash
from tasks.parse.classify import FragmentInContext
from tasks.parse.context_model import Probabilities, packaged_context_model, packaged_identity
from tasks.parse.context_window import texts_read

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
