"""Attribution of types: which classifier typed each fragment, and what a later run would ask again."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tasks.parse.classify.protocol import Classifier, FragmentInContext, Typed

EARLY = ("budget", "unavailable")

"""The reasons for which asking ended early: a later run asks for what they left."""

FALLBACKS = "fallbacks: "

"""Begins the names under which `Typing.counts` has fallbacks by reason."""

_AT_ONCE = 512  # fragments, between two reports
Documents = Sequence[str | None]
Report = Callable[[int, int], None]
_ORDINAL = re.compile(r"#\d+$")


class TypedBy(NamedTuple):
    """A fragment's type and the name of the classifier that gave it."""

    typed: Typed
    classifier: str


@dataclass(frozen=True, slots=True)
class Typing:
    """What became of fragments, in order.

    Args:
        rows: One a fragment.
        asked: Fragments that a language model was to type.
        fallbacks: Of these, how many it did not, by reason: `rejected` (no answer for it alone passed the
            checks), `refused` (too long, or refused by the server, even alone), `budget`, `unavailable`.
        unfinished: Documents with fragments that a later run would ask about: `budget` and `unavailable`.
    """

    rows: list[TypedBy]
    asked: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter)
    unfinished: frozenset[str] = frozenset()

    @property
    def partial(self) -> bool:
        """Whether the ceiling, or a server that did not answer, ended the asking early."""
        return any(self.fallbacks[reason] for reason in EARLY)

    def counts(self) -> Counter[str]:
        """Return `asked`, `unfinished` (documents) and `fallbacks: <reason>`, each where it is not zero."""
        by_reason = {FALLBACKS + reason: n for reason, n in self.fallbacks.items()}
        return +Counter({"asked": self.asked, "unfinished": len(self.unfinished), **by_reason})


class AttributedClassifier(ABC):
    """A classifier of which several have a hand in the answers: each row says who gave it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The identity of the whole; each row names the classifier that typed it."""

    @abstractmethod
    def type_all(
        self,
        fragments: Sequence[FragmentInContext],
        documents: Documents | None = None,
        report: Report | None = None,
    ) -> Typing:
        """Type fragments of any number of documents, many batches at once; call it for many documents.

        Args:
            fragments: Those of one document stand together, in document order.
            documents: The document of each; None: what stands before `#` and a number in its id, if any.
            report: Told of fragments done and in all.

        Raises:
            LlmDenied: The server lets nobody in, or has no such model.
        """

    def classify(self, fragments: Sequence[FragmentInContext]) -> list[Typed]:
        """Return one answer a fragment, in order; `type_all` also says who gave it."""
        return [row.typed for row in self.type_all(fragments).rows]


def typed_by(
    classifier: Classifier,
    fragments: Sequence[FragmentInContext],
    documents: Documents | None = None,
    report: Report | None = None,
) -> Typing:
    """Type fragments by a classifier of either kind: one that answers alone signs each row itself.

    Arguments as `AttributedClassifier.type_all`.
    """
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
    """Return the document that a node's id names; None for an id of another kind."""
    name = _ORDINAL.sub("", fragment.fragment_id)
    return None if name == fragment.fragment_id else name


def document_in(line: Mapping[str, Any], fragment: FragmentInContext) -> str | None:
    """Return the document of a fragment read from a line: the line's `doc_id`, else what its id names."""
    given = line.get("doc_id")
    return given if isinstance(given, str) else document_of(fragment)
