"""What a source is, and which source an operator's spec names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Protocol

from storage.errors import WrongInput
from tasks.crawl.content import Limits
from tasks.crawl.directory import DirectorySource
from tasks.crawl.git import GitSource
from tasks.crawl.identity import hide_credentials
from tasks.crawl.items import Item, Usage
from tasks.crawl.parquet_file import ParquetSource

ACCEPTED = "git+URL[@REF], dir:PATH, parquet:PATH"
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

    def usage(self) -> Usage:
        """Return what reading has cost so far."""


def parse_spec(spec: str, *, max_document_bytes: int = 2_000_000, git_timeout: float = 300.0) -> Source:
    """Return the source on disk or behind git that a spec names, without touching it.

    Only an operator's spec may come here: local paths, `file://` and SSH are allowed.

    Args:
        spec: One of the forms in `ACCEPTED`.
        max_document_bytes: A longer SKILL.md is recorded without its content.
        git_timeout: Seconds that one git command may take.

    Raises:
        WrongInput: The spec has another form; the message is one line that lists the accepted ones.
    """
    limits = Limits(document_bytes=max_document_bytes)
    makers: dict[str, Callable[[str], Source]] = {
        "git+": lambda rest: GitSource(rest, limits=limits, timeout=git_timeout),
        "dir:": lambda rest: DirectorySource(rest, limits=limits),
        "parquet:": lambda rest: ParquetSource(rest, limits=limits),
    }
    for prefix, make in makers.items():
        if spec.startswith(prefix) and len(spec) > len(prefix):
            return make(spec.removeprefix(prefix))
    raise WrongInput(f"unknown source {hide_credentials(spec)!r}; give one of: {ACCEPTED}")
