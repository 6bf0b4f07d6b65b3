"""The source `marketplace:`: the skills of a marketplace's plugins, each read where it lies."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import AsyncGenerator, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from storage.errors import SourceError, SourceUnavailable, WrongInput
from storage.partitions import partition_of
from storage.schemas import Dropped, RawDocument
from storage.state import listed_table, rename, repositories_table
from tasks.crawl.git.source import GitSource, normal_address, split_ref
from tasks.crawl.github.api import GitHub
from tasks.crawl.github.repositories import ListedRepository
from tasks.crawl.github.source import RepositorySource, is_name, split_name
from tasks.crawl.http.responses import HttpTerminal, HttpTransient, host_of, load_json, web_url
from tasks.crawl.registries.artifact import fetch, opened
from tasks.crawl.registries.digested import Digests, Fetched
from tasks.crawl.registries.discovery import NoIndex
from tasks.crawl.registries.manifest import PATHS, Manifest, Plugin, read_manifest
from tasks.crawl.source.base import CrawlContext, Item, Missed, Unchanged, drain, in_order
from tasks.crawl.source.bundle import plan, read_skill
from tasks.crawl.source.identity import parse_github_url, repository_name

if TYPE_CHECKING:  # what opens it loads it
    from tasks.crawl.http.client import Http

_LARGEST = 10_000_000  # bytes of a manifest
_AHEAD = 2  # archives under way at once


def normal_marketplace(text: str) -> str:
    """Return `OWNER/REPO[@REF]`, the URL of a manifest or that of a git repository as it is remembered."""
    named = parse_github_url(text)
    if named and named.kind == "root":
        return named.repository
    if is_name(text):
        return text
    if "://" not in text and not text.startswith(("/", ".", "~")):
        raise WrongInput(
            f"marketplace:{text}: give OWNER/REPO, the URL of a manifest, or of a git repository"
        )
    if not urlsplit(text).path.endswith(".json"):
        return normal_address(text)
    try:
        return str(web_url(text))
    except HttpTerminal as error:
        raise WrongInput(f"marketplace:{text.rpartition('@')[2]}: {error.detail}") from error


class FoldersSource(RepositorySource):
    """A source of which some folders of repositories on GitHub are taken, and nothing beside them."""

    gives_listings = False

    def _on_github(self, places: dict[tuple[str, ...], set[str]]) -> Iterator[Item]:
        wanted = [self._repository(name, ref, folders) for (name, ref), folders in places.items()]
        for result in self._fetch_all(wanted) if wanted else ():
            found = result.repository
            folders = places[found.name, found.ref]
            for item in self._changes.items(result):
                if isinstance(item, Unchanged | Missed):
                    # The name stands for all of it where it could not be read, else for a skill at its root.
                    whole = found.name if isinstance(item, Missed) else None
                    ids = tuple(i for i in item.doc_ids if i == whole or self._takes(i, folders))
                    if ids:
                        yield replace(item, doc_ids=ids)
                elif not isinstance(item, RawDocument | Dropped) or self._takes(item.doc_id, folders):
                    yield item

    def _repository(self, name: str, ref: str, folders: Collection[str]) -> ListedRepository:
        """Return a repository as it was found last, or as a new one if other folders of it are wanted."""
        key, digest = name.lower(), hashlib.sha256("\n".join(sorted(folders)).encode()).hexdigest()[:24]
        mine, place = {"source": self.spec, "repository": key, "ref": ref}, [partition_of(key)]
        rows = repositories_table(self._root).read(place).filter(**mine).to_dicts()
        row = rows[0] if rows else None
        if row is not None and row["listed"] != digest:
            row |= {"commit": None, "etag": None}
            return ListedRepository(self.spec, name, ref, (), row, digest, whole=True)
        listed = tuple(listed_table(self._root).read(place).filter(**mine).sort("rest").to_dicts())
        return ListedRepository(self.spec, name, ref, listed, row, digest, whole=True)

    def _takes(self, doc_id: str, folders: Collection[str]) -> bool:
        """Tell whether a skill's folder is one of those wanted; a repository's name has two parts."""
        return is_below("/".join(doc_id.split("/")[2:]), folders)


class MarketplaceSource(FoldersSource):
    """The skills of the plugins that a marketplace's manifest names; one that it no longer names is gone."""

    exhaustive = True

    def __init__(self, place: str, context: CrawlContext) -> None:
        self._place = normal_marketplace(place)
        super().__init__(f"marketplace:{self._place}", context)
        self._digests = Digests(context.root, self.spec, context.limits)
        self._renamed: dict[str, str] = {}
        named = is_name(self._place)
        self._own: tuple[str, str, str] | None = None  # the kind of the marketplace's own repository
        if named:
            name, ref = split_name(self._place)
            self._own = ("github", name.lower(), ref)
        elif not urlsplit(self._place).path.endswith(".json"):
            self._own = ("git", *split_ref(self._place))

    def invalidate(self, doc_ids: Collection[str]) -> None:
        """Forget what was read before of these documents, wherever they lie."""
        super().invalidate(doc_ids)
        self._digests.invalidate(doc_ids)

    def checkpoint(self) -> None:
        """Remember what was yielded, and the ids that plugins were renamed to."""
        super().checkpoint()
        self._digests.write()
        if self._renamed:
            rename(self._root, self._renamed, self._now)
            self._renamed = {}

    def read(self) -> Iterator[Item]:
        """Yield the skills of all plugins: those on GitHub, in other git repositories, then in archives."""
        manifest, places = self._manifest(), defaultdict[tuple[str, str, str], set[str]](set)
        for name, reason, why in manifest.refused:
            yield Dropped(f"{self._place}#{name}", self.spec, reason, why)
        for plugin in manifest.plugins:
            if plugin.kind == "own" and self._own is None:
                why = "its path is relative, and the marketplace is a manifest alone"
                yield Dropped(f"{self._place}#{plugin.name}", self.spec, "not-read", why)
            elif plugin.kind != "archive":
                own = plugin.kind == "own" and self._own
                # GitHub compares names in any letter case.
                place = plugin.place.lower() if plugin.kind == "github" else plugin.place
                places[own or (plugin.kind, place, plugin.ref)].update(plugin.folders)
        yield from self._on_github({key[1:]: found for key, found in places.items() if key[0] == "github"})
        for (kind, url, ref), folders in places.items():
            if kind == "git":
                yield from self._in_git(url, ref, folders)
        self._note_renames(manifest)
        archives = [plugin for plugin in manifest.plugins if plugin.kind == "archive"]
        yield from drain(lambda: self._in_archives(archives))
        self._require_reached()

    def _manifest(self) -> Manifest:
        """Return what the manifests that are there say together; raises as `read`."""
        texts = self._in_own() if self._own and self._own[0] == "git" else list(drain(self._texts))
        if not texts:
            raise SourceError(self.spec, "missing", f"there is no {' or '.join(PATHS)} in it")
        whole = Manifest()
        place = self._settings.github_raw_url if is_name(self._place) else self._place
        for text in texts:
            try:
                found = read_manifest(load_json(text.encode()), secure=place.startswith(("https:", "ssh:")))
            except (ValueError, RecursionError) as error:
                if not isinstance(error, NoIndex):
                    raise SourceError(self.spec, "not-json", "its manifest is no JSON") from error
                raise SourceError(self.spec, "shape", str(error)) from error
            whole.plugins += found.plugins
            whole.refused += found.refused
            whole.renames |= found.renames
        return whole

    def _in_own(self) -> list[str]:
        """Return the manifests of a git repository, which are not read again of the same commit."""
        source = GitSource(self._place, limits=self._limits, timeout=self._settings.git_timeout)
        commit, marks = source.version(), self._digests.marks
        if commit != marks.get("commit"):
            texts = [text.decode("utf-8", "replace") for text in source.files(PATHS).values()]
            self._digests.end(**(marks := {"commit": commit, "manifests": texts}))
        return list(marks["manifests"])

    async def _texts(self) -> AsyncGenerator[str, None]:
        """Yield the manifests of a repository on GitHub, or the one at a URL; the former as `_in_own`."""
        given, marks = self._settings, self._digests.marks
        if self._own is None:
            async with self._client(self._place) as http:
                answer = await http.get(self._place, max_bytes=_LARGEST, roams=True)
                answer.json()  # a page for people is told as one
                yield answer.body.decode("utf-8", "replace")
            return
        _, name, ref = self._own
        async with self._client(given.github_api_url) as http:
            github = GitHub(http, self._token, given)
            etag = marks.get("etag") if marks.get("of") == self._etag_key else None
            commit = await github.commit(name, ref or "HEAD", etag=etag)
            if commit is not None and commit.sha != marks.get("commit"):
                texts = []
                for path in PATHS:
                    try:
                        text = await github.raw(name, commit.sha, path, _LARGEST)
                        texts.append(text.decode("utf-8", "replace"))
                    except HttpTerminal as error:
                        if error.reason != "missing":
                            raise
                marks = {"commit": commit.sha, "etag": commit.etag, "of": self._etag_key, "manifests": texts}
                self._digests.end(**marks)
        for text in marks["manifests"]:
            yield text

    def _in_git(self, url: str, ref: str, folders: Collection[str]) -> Iterator[Item]:
        key = f"{url}@{ref}" if ref else url
        name = repository_name(url)
        held = self._digests.ids(key) or (name,)
        try:
            own = self._own is not None and url == self._own[1]
            if not own:
                from tasks.crawl.http.public import check_host  # noqa: PLC0415 (loads what asks servers)

                check_host(web_url(url), self._own_host())
            source = GitSource(key, limits=self._limits, timeout=self._settings.git_timeout, redirects=own)
            digest = f"{source.version()} {' '.join(sorted(folders))}"
            if ids := self._digests.same(key, digest):
                yield Unchanged(ids)
                return
            taken = []
            for item in source.read():
                if is_below(item.doc_id.removeprefix(name).removeprefix("/"), folders):
                    yield replace(item, source=self.spec)
                    taken += [item.doc_id] * isinstance(item, RawDocument)
            self._digests.take(key, digest, taken)
        except (SourceError, SourceUnavailable, HttpTerminal, HttpTransient) as error:
            yield Missed(held, error.reason, error.detail)

    def _own_host(self) -> str:
        return host_of(web_url(self._place)) if self._place.startswith("http") else ""

    async def _in_archives(self, plugins: list[Plugin]) -> AsyncGenerator[Item, None]:
        own = self._place if self._place.startswith("http") else self._settings.github_raw_url
        async with self._client(own) as http:

            async def one(plugin: Plugin) -> Fetched:
                doc_id = self._archive_id(plugin)
                key = f"plugin {plugin.name}"
                is_renamed = not self._renamed.keys().isdisjoint(self._digests.ids(key))
                digest = plugin.digest and " ".join(filter(None, (plugin.digest, plugin.licence)))
                return await self._digests.fetched(
                    key, None if is_renamed else digest, doc_id,
                    lambda at: self._archive(http, plugin, doc_id, at / "artifact"),
                )  # fmt: skip

            async for item in self._digests.taken(in_order(one, plugins, _AHEAD)):
                yield item

    async def _archive(self, http: Http, plugin: Plugin, doc_id: str, path: Path) -> list[Item]:
        await fetch(http, plugin.place, path, plugin.digest, self._limits)
        with opened(path, archive=True, limits=self._limits) as (entries, read):
            origin = {"url": plugin.place, "repo_licence": plugin.licence}
            return [
                read_skill(row, read, self._limits, self.spec, **origin)
                for row in plan(entries, doc_id, self.spec)
                if isinstance(row, Dropped) or is_below(row.entry.folder, plugin.folders)
            ]

    def _note_renames(self, manifest: Manifest) -> None:
        """Let the ids of an archive's skills lead to those that its plugin's new name gives them.

        Once ids did not name their marketplace: those lead on too.
        """
        plugins = {plugin.name: plugin for plugin in manifest.plugins if plugin.kind == "archive"}
        names = {old: new for old, new in manifest.renames.items() if new in plugins and old not in plugins}
        for old, new in (names | {name: name for name in plugins}).items():
            now, ids = self._archive_id(plugins[new]), self._digests.ids(f"plugin {old}")
            named = self._archive_id(replace(plugins[new], name=old))
            for before in (named, named.rpartition("~")[0]):
                found = [i for i in ids if i == before or i.startswith(f"{before}/")]
                self._renamed |= {i: now + i.removeprefix(before) for i in found if before != now}

    def _archive_id(self, plugin: Plugin) -> str:
        """Return what the ids of an archive's skills begin with.

        Its names are those that the manifest's author chose: the digest keeps them apart from repositories
        and from other marketplaces.
        """
        mark = hashlib.sha256(self.spec.encode()).hexdigest()[:16]
        return f"{urlsplit(plugin.place).hostname}/{plugin.name}~{mark}"


def is_below(folder: str, folders: Collection[str]) -> bool:
    """Tell whether a folder is one of these, or lies in one; the empty one is the root."""
    return any(not above or folder == above or folder.startswith(f"{above}/") for above in folders)
