"""What sources have in common that are read whole, without requests that count."""

from __future__ import annotations

from tasks.crawl.items import Usage


class WholeSource:
    """A source that is read to its end each time: what it does not hold any more is gone."""

    exhaustive = True
    gives_listings = False

    def settled(self) -> None:
        """Do nothing: such a source has no cursor."""

    def usage(self) -> Usage:
        """Return that no counted request was sent."""
        return Usage()
