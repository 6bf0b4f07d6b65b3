"""Attribution of types: which classifier typed each fragment, and what a later run would ask again."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tasks.models.llm.ask import EARLY
from tasks.parse.classify.protocol import Classifier, FragmentInContext, Fragments, Typed

# Begins the keys of `Typing.counts` that count fallbacks by reason.
FALLBACKS = "fallbacks: "
_AT_ONCE = 512  # fragments between two reports
Documents = Sequence[str | None]
Report = Callable[[int, int], None]
_ORDINAL = re.compile(r"#\d+$")


class TypedBy(NamedTuple):
    """A fragment's type and the name of the classifier that gave it."""

    typed: Typed
    classifier: str


@dataclass(frozen=True, slots=True)
class Typing:
    """How fragments were typed."""

    rows: list[TypedBy]  # one a fragment, in order
    asked: int = 0  # number of fragments sent to a language model
    # Number of these that it did not type, by reason: `rejected` (no answer for the fragment alone passed the
    # checks), `refused` (too long, or refused by the server), `budget`, `unavailable`.
    fallbacks: Counter[str] = field(default_factory=Counter)
    # Documents with fragments left for `budget` or `unavailable`; a later run asks again.
    unfinished: frozenset[str] = frozenset()

    @property
    def partial(self) -> bool:
        """Whether the ceiling, or a server that did not answer, ended the asking early."""
        return any(self.fallbacks[reason] for reason in EARLY)

    def counts(self) -> Counter[str]:
        """Return `asked`, `unfinished` (documents) and `fallbacks: <reason>`, without those that are 0."""
        by_reason = {FALLBACKS + reason: n for reason, n in self.fallbacks.items()}
        return +Counter({"asked": self.asked, "unfinished": len(self.unfinished), **by_reason})


class AttributedClassifier(ABC):
    """A classifier that combines several; each row names the one that typed it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the combination."""

    def type_all(
        self, fragments: Fragments, documents: Documents | None = None, report: Report | None = None
    ) -> Typing:
        """Type the fragments of any number of documents, many batches at once.

        Args:
            fragments: Those of one document stand together, in document order.
            documents: The document of each; None: what stands before `#` and a number in its id, if any.
            report: Called with the number of fragments done and in all.

        Raises:
            LlmDenied: The server rejects the key, or has no such model.
        """
        owners = [document_of(fragment) for fragment in fragments] if documents is None else documents
        return self._type(fragments, owners, report)

    @abstractmethod
    def _type(self, fragments: Fragments, documents: Documents, report: Report | None) -> Typing: ...

    def classify(self, fragments: Fragments) -> list[Typed]:
        """Return one answer a fragment, in order, without the names that `type_all` adds."""
        return [row.typed for row in self.type_all(fragments).rows]


def typed_by(
    classifier: Classifier, fragments: Fragments, documents: Documents | None = None,
    report: Report | None = None,
) -> Typing:  # fmt: skip
    """Type fragments by any classifier; arguments as `AttributedClassifier.type_all`."""
    if isinstance(classifier, AttributedClassifier):
        return classifier.type_all(fragments, documents, report)
    rows: list[TypedBy] = []
    step = len(fragments) if report is None else _AT_ONCE
    for start in range(0, len(fragments), max(step, 1)):
        typed = classifier.classify(fragments[start : start + step])
        rows += [TypedBy(answer, classifier.name) for answer in typed]
        if report is not None:
            report(len(rows), len(fragments))
    return Typing(rows)


def document_of(fragment: FragmentInContext) -> str | None:
    """Return the document in a node's id; None for an id of another kind."""
    name = _ORDINAL.sub("", fragment.fragment_id)
    return None if name == fragment.fragment_id else name


def document_in(line: Mapping[str, Any], fragment: FragmentInContext) -> str | None:
    """Return the document of a fragment read from a line: the line's `doc_id`, else the one in its id."""
    given = line.get("doc_id")
    return given if isinstance(given, str) else document_of(fragment)
