"""Names of skills from skills.sh, the source `skillssh:QUERY`; their bytes come from the repositories."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping

from storage.errors import SourceError
from storage.schemas import Dropped, RawDocument
from tasks.crawl.github.source import is_name
from tasks.crawl.http.settings import SKILLSSH_TOKEN, credential
from tasks.crawl.registries.marketplace import FoldersSource
from tasks.crawl.source.base import CrawlContext, Item, Missed, Unchanged, drain
from tasks.models.fields import mapping_of

_MOST_ROWS = 500


class SkillsShSource(FoldersSource):
    """What skills.sh finds; it asks for no automated readers without a token, so that none is sent."""

    def __init__(self, query: str, context: CrawlContext) -> None:
        super().__init__(f"skillssh:{query}", context)
        self._query, self._key = query, credential(SKILLSSH_TOKEN)

    def read(self) -> Iterator[Item]:
        """Yield the skills found, by repository; raises as `Source.read`, SourceError without a token."""
        if not self._key:
            detail = f"skills.sh answers to a token alone: set {SKILLSSH_TOKEN} to yours"
            raise SourceError(self.spec, "unauthorised", detail)
        places: dict[tuple[str, ...], set[str]] = defaultdict(set)
        for row in drain(self._rows):
            repository, slug = row.get("source"), row.get("slug")
            named = isinstance(repository, str) and is_name(repository) and "@" not in repository
            if row.get("sourceType") == "github" and named and isinstance(slug, str):
                places[str(repository).lower(), ""].add(slug.lower())
            else:
                shown = f"{str(repository)[:100]}/{str(slug)[:100]}"
                detail = f"it lies on no repository of GitHub: {str(row.get('url'))[:200]}"
                yield Dropped(shown, self.spec, "not-read", detail)
        met, missed = set[str](), set[str]()
        for item in self._on_github(places):
            met.update([item.doc_id] if isinstance(item, RawDocument) else ())
            met.update(item.doc_ids if isinstance(item, Unchanged | Missed) else ())
            missed.update(item.doc_ids if isinstance(item, Missed) else ())
            yield item
        for (repository, _), slugs in places.items():
            there = {_last(i) for i in met if f"{i.lower()}/".startswith(f"{repository}/")}
            lacking = () if repository in missed else sorted(slugs - there)
            for slug in lacking:
                detail = f"{repository} has no skill in a folder of this name"
                yield Dropped(f"{repository}/{slug}", self.spec, "missing", detail)
        self._require_reached()

    async def _rows(self) -> AsyncGenerator[Mapping[str, object], None]:
        url = self._settings.skillssh_url.rstrip("/")
        async with self._client(url) as http:
            asked = {"q": self._query, "limit": str(_MOST_ROWS)}
            answer = await http.get(f"{url}/api/v1/skills/search", params=asked, token=self._key)
            rows = mapping_of(answer.json()).get("data")
            if not isinstance(rows, list):
                raise answer.error("shape", "the answer holds no list of skills")
            for row in rows[:_MOST_ROWS]:
                if isinstance(row, Mapping):
                    yield row

    def _takes(self, doc_id: str, folders: Collection[str]) -> bool:
        """Tell whether a folder, or the repository, has one of the names; skills.sh says no path."""
        return _last(doc_id) in folders


def _last(doc_id: str) -> str:
    return doc_id.rpartition("/")[2].lower()
