"""The options of all sources, and the base of remote ones, which are read over HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime

import polars as pl

from storage.errors import SourceError, SourceUnavailable
from storage.root import Root
from storage.state import seen_table
from tasks.crawl.http.client import Http
from tasks.crawl.http.errors import HttpTerminal, HttpTransient
from tasks.crawl.http.network import Network
from tasks.crawl.http.redirects import web_url
from tasks.crawl.source.content import DocumentLimits
from tasks.crawl.source.protocol import RequestUsage


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How a source is read."""

    root: Root  # where state lies
    now: datetime  # when the reading begins
    limit: int | None = None  # how many documents are wanted; None: all
    max_document_bytes: int = 2_000_000  # a longer SKILL.md is recorded without its content
    max_repository_paths: int = 500_000  # a git repository of more is not read
    keep_files: int = 512  # bundled files of a skill whose bytes are kept at most
    keep_bytes: int = 16 * 1024 * 1024  # of them in all
    git_timeout: float = 300.0  # longest time of one git command, seconds
    network: Network = field(default_factory=Network)  # the network as the operator set it

    @property
    def limits(self) -> DocumentLimits:
        """The most that is taken of one document."""
        return DocumentLimits(
            self.max_document_bytes,
            repository_paths=self.max_repository_paths,
            kept_files=self.keep_files,
            kept_bytes=self.keep_bytes,
        )


class RemoteSource:
    """A source of listings and documents that is asked over the network."""

    exhaustive, gives_listings = False, True

    def __init__(self, spec: str, options: SourceOptions) -> None:
        self.spec, self._root, self._network, self._now = spec, options.root, options.network, options.now
        self._usage = RequestUsage()

    def version(self) -> str | None:
        """Return None: a remote source tells its state only by being read."""
        return None

    def usage(self) -> RequestUsage:
        """Return the requests sent so far."""
        return self._usage

    @asynccontextmanager
    async def _client(self, url: str) -> AsyncGenerator[Http, None]:
        """Open a client; at its end record its requests and the quota left at `url`, the operator's setting.

        Raises:
            SourceError: No request can be sent to `url`.
        """
        try:
            web_url(url)
        except HttpTerminal as error:
            raise self._error(error) from error
        async with self._network.open(self._root) as http:
            try:
                yield http
            finally:
                self._usage = RequestUsage(http.requests, http.quota_left(url))

    def _error(self, error: HttpTerminal | HttpTransient) -> SourceError | SourceUnavailable:
        kind = SourceUnavailable if isinstance(error, HttpTransient) else SourceError
        return kind(self.spec, error.reason, str(error))

    def _present(self) -> set[str]:
        """Return the ids of the source's documents that are not retired."""
        seen = seen_table(self._root).read(columns=["doc_id", "source", "retired_at"])
        return set(seen.filter(pl.col("retired_at").is_null(), source=self.spec)["doc_id"])
