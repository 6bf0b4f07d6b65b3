"""The source `github:OWNER/REPO[@REF]`: every skill of a repository, by GitHub's API and archives."""

from __future__ import annotations

import re
from collections.abc import Iterator

from storage.errors import SourceError, WrongInput
from storage.partitions import partition_of
from storage.state import listed_table, repositories_table
from tasks.crawl.github.due import Unit, digest
from tasks.crawl.github.fetch import Fetched
from tasks.crawl.github.repository_source import RepositorySource
from tasks.crawl.source.identity import GIT_REF
from tasks.crawl.source.protocol import Gone, Item
from tasks.crawl.source.remote import SourceOptions

_NAME = re.compile(r"([A-Za-z0-9][\w-]{0,38}/(?!\.{1,2}(?:@|$))[\w.-]{1,100}?)(?:\.git)?(?:@(.+))?", re.ASCII)


def split_name(text: str) -> tuple[str, str]:
    """Return repository and ref (empty: the default branch) of `OWNER/REPO[@REF]`, or raise WrongInput."""
    if not is_name(text) or (match := _NAME.fullmatch(text)) is None:
        raise WrongInput(f"github:{text} is no repository: give github:OWNER/REPO or github:OWNER/REPO@REF")
    return match[1], match[2] or ""


def is_name(text: str) -> bool:
    """Tell whether a text has the form `OWNER/REPO[@REF]`."""
    match = _NAME.fullmatch(text)
    return match is not None and (not match[2] or GIT_REF.fullmatch(match[2]) is not None)


class GitHubSource(RepositorySource):
    """The skills of one repository, `OWNER/REPO[@REF]` (else WrongInput), in the order of their paths."""

    exhaustive, gives_listings = True, False

    def __init__(self, name: str, options: SourceOptions) -> None:
        self._name, self._ref = split_name(name)
        super().__init__(f"github:{name}", options)

    def read(self) -> Iterator[Item]:
        """Yield the repository's skills and the dropped entries.

        Raises:
            SourceError: It is missing, denied, withdrawn, too large or refused, or holds no skill.
            SourceUnavailable: It could not be looked at this time.
        """
        for look in self._look_at([self._unit()]):
            found = 0
            for item in self._changes.items(look):
                found += not isinstance(item, Gone)
                if look.error is None or isinstance(item, Gone):
                    yield item
            self._require(look, found)

    def _unit(self) -> Unit:
        key = self._name.lower()
        mine, place = {"source": self.spec, "repository": key, "ref": self._ref}, [partition_of(key)]
        listed = tuple(listed_table(self._root).read(place).filter(**mine).sort("rest").to_dicts())
        rows = repositories_table(self._root).read(place).filter(**mine).to_dicts()
        return Unit(
            self.spec, self._name, self._ref, listed, rows[0] if rows else None, digest(()), whole=True
        )

    def _require(self, look: Fetched, found: int) -> None:
        if look.error is not None:
            raise self._error(look.error) from look.error
        if not found and not look.unit.listed:
            raise SourceError(self.spec, "no-skill", "there is no SKILL.md in this repository")
