"""What sources have in common that are read whole, without requests that count."""

from __future__ import annotations

from collections.abc import Collection

from tasks.crawl.items import Usage


class WholeSource:
    """A source that is read to its end each time: what it does not hold any more is gone."""

    exhaustive = True
    gives_listings = False

    def unsettle(self, doc_ids: Collection[str]) -> None:
        """Do nothing: such a source remembers nothing of its documents."""

    def settled(self) -> None:
        """Do nothing: such a source has no cursor."""

    def usage(self) -> Usage:
        """Return that no counted request was sent."""
        return Usage()
