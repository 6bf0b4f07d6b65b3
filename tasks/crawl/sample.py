"""The sample marketplace: a git repository made on the fly of the skills that come with the package."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from storage.root import Root
from storage.schemas import Dropped, RawDocument
from tasks.crawl.git_sample import make_repository
from tasks.crawl.local import WholeSource
from tasks.crawl.source import SAMPLE, Source, parse_spec

FOLDER = Path(__file__).parent / "marketplace"


class SampleSource(WholeSource):
    """Crawls the repository below a root as any git source, under a name that holds no path of the root's.

    Args:
        root: Where the repository is made.
        options: As `parse_spec` takes them.
    """

    spec = SAMPLE

    def __init__(self, root: Root, **options: Any) -> None:  # noqa: ANN401 (parse_spec's own)
        self._place, self._options = root.folder / "state" / "sample" / "marketplace", options

    def _repository(self) -> Source:
        return parse_spec(make_repository(FOLDER, self._place), **self._options)

    def version(self) -> str | None:
        """Return the commit of the package's skills, which depends on their bytes alone."""
        return self._repository().version()

    def read(self) -> Iterator[RawDocument | Dropped]:
        """Yield what the repository holds."""
        for item in self._repository().read():
            if isinstance(item, RawDocument):
                yield replace(item, source=SAMPLE, url=None)
            elif isinstance(item, Dropped):
                yield replace(item, source=SAMPLE)
