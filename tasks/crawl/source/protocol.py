"""The protocol of a source: what it yields, and what it is told in return."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from storage.schemas import Dropped, Listing, RawDocument

SAMPLE = "sample"  # the spec of the marketplace that comes with the package


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Documents that were looked at and have not changed."""

    doc_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Missed:
    """Documents that could not be looked at: they are kept, marked stale."""

    doc_ids: tuple[str, ...]
    reason: str  # a short stable code such as `missing`, `denied`, `too-large`, `timeout`
    detail: str


@dataclass(frozen=True, slots=True)
class Gone:
    """Documents that are no longer to be served: removed by their owner, missed too often, or withdrawn."""

    doc_ids: tuple[str, ...]
    reason: Literal["retired", "withdrawn"]
    detail: str


Item: TypeAlias = RawDocument | Dropped | Listing | Unchanged | Missed | Gone


@dataclass(frozen=True, slots=True)
class RequestUsage:
    """Requests sent, retries included, and how many the day's quota still allows (None: no quota)."""

    requests: int = 0
    quota_left: int | None = None


class Source(Protocol):
    """A place that skills come from; it is not touched before one of its methods is called."""

    @property
    def spec(self) -> str:
        """The spec, without credentials, as every row of this source carries it."""

    def version(self) -> str | None:
        """Return a digest of the source's present state, None if there is no cheap one.

        Raises:
            SourceError: It cannot be read.
            SourceUnavailable: It could not be read this time.
        """

    @property
    def exhaustive(self) -> bool:
        """Whether a document that a complete reading does not yield is gone; if not, `Gone` items say so."""

    @property
    def gives_listings(self) -> bool:
        """Whether it yields listings; if not, they are made from its documents."""

    def read(self) -> Iterator[Item]:
        """Yield items lazily, in the source's own stable order.

        Raises as `version`, also at its end if only a part could be read.
        """

    def unsettle(self, doc_ids: Collection[str]) -> None:
        """Forget that these documents are unchanged, since their text on disk is about to change.

        A run that dies before `settled` leaves new text on disk, and the source may go back to the old text.
        """

    def settled(self) -> None:
        """Remember that everything yielded so far is on disk: a later reading may leave it out."""

    def usage(self) -> RequestUsage:
        """Return the requests sent so far."""


class WholeSource:
    """Base of a source that is read to its end each time: a document it no longer holds is gone."""

    exhaustive = True
    gives_listings = False

    def unsettle(self, doc_ids: Collection[str]) -> None:
        """Do nothing: such a source remembers nothing of its documents."""

    def settled(self) -> None:
        """Do nothing: such a source has no cursor."""

    def usage(self) -> RequestUsage:
        """Return that no counted request was sent."""
        return RequestUsage()
