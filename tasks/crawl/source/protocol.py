"""The protocol of sources, and the items that a source yields."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from storage.schemas import Dropped, Listing, RawDocument


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Documents that were looked at and are as they were."""

    doc_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Missed:
    """Documents that could not be looked at: what is known of them stays, marked stale.

    `reason` is a short stable code such as `missing`, `denied`, `too-large`, `timeout`.
    """

    doc_ids: tuple[str, ...]
    reason: str
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
    """What a reading cost: requests sent, retries included; quota left of the day, None for no quota."""

    requests: int = 0
    quota_left: int | None = None


SAMPLE = "sample"  # the marketplace that comes with the package


class Source(Protocol):
    """Somewhere skills come from; nothing is touched before one of its methods is called."""

    @property
    def spec(self) -> str:
        """The spec, without credentials, as every row of this source carries it."""

    def version(self) -> str | None:
        """Return a cheap digest of the source's present state, None when it cannot be told cheaply.

        Raises:
            SourceError: It cannot be read.
            SourceUnavailable: It could not be looked at this time.
        """

    @property
    def exhaustive(self) -> bool:
        """Whether what a whole reading leaves out is gone; otherwise a reading says what is."""

    @property
    def gives_listings(self) -> bool:
        """Whether it yields rows of a list beside documents; otherwise they are made of the documents."""

    def read(self) -> Iterator[Item]:
        """Yield documents and what is known of others, lazily, in the source's own stable order.

        Raises as `version` does, also at its end, where only a part of it could be looked at.
        """

    def unsettle(self, doc_ids: Collection[str]) -> None:
        """Be told that what is kept of these documents is about to change.

        From now until `settled`, what is remembered must not let them pass as unchanged: a run that dies in
        between leaves new text on disk, and the source may go back to the old.
        """

    def settled(self) -> None:
        """Be told that everything yielded so far is on disk: a later reading need not bring it again."""

    def usage(self) -> RequestUsage:
        """Return what reading has cost so far."""


class WholeSource:
    """A source that is read to its end each time: what it does not hold any more is gone."""

    exhaustive = True
    gives_listings = False

    def unsettle(self, doc_ids: Collection[str]) -> None:
        """Do nothing: such a source remembers nothing of its documents."""

    def settled(self) -> None:
        """Do nothing: such a source has no cursor."""

    def usage(self) -> RequestUsage:
        """Return that no counted request was sent."""
        return RequestUsage()
