"""The registry that a server is: indexes and archives of what is served, each under a tag of its bytes."""

from __future__ import annotations

import asyncio
import hashlib
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from flows.commands.installing import InstallSettings
from flows.serve.answers.service import Service
from flows.settings import load
from storage.errors import TransientError, UnknownDocument
from storage.lance.served import Licences, Served, require_licences, require_served
from tasks.crawl.registries.formats import FOLDER, INDEX, OLDER_FOLDER, OLDER_INDEX, pack
from tasks.refine.workers import batch_processes, give_memory_back, run_in
from tasks.retrieve.registry.indexes import ARCHIVES, MARKETPLACE, hosted_marketplace, released
from tasks.retrieve.registry.offers import Contents, OfferedSkill, contents_of
from tasks.retrieve.skills.bundle import MARKDOWN, mime_of

_PATIENCE = 20.0  # seconds that a request waits for indexes which are being made
_JSON, _ZIP, _BINARY = "application/json", "application/zip", "application/octet-stream"
_AGAIN = "read the index again"
_RANGE = re.compile(r"bytes=(?=\d|-\d)(\d{0,18})-(\d{0,18})", re.ASCII)  # of several ranges all is sent


@dataclass(frozen=True, slots=True)
class _Release:
    """What the registry offers of one served version: by names, by archives, and the indexes with their tags.

    Of 20,000 skills an index has 12 MB, which no request is to wait for.
    """

    by_name: Mapping[str, OfferedSkill]
    by_archive: Mapping[str, OfferedSkill]
    heads: Mapping[str, tuple[bytes, str]]


_AT_ONCE = 1000  # skills that are read in a second or two, which a process takes to start
_NO_MARKET: tuple[_Release | None, str, tuple[bytes, str]] = (None, "", (b"", ""))  # release, base, answer


class LiveRegistry:
    """Makes the indexes of what is served when they are first asked for, and archives one by one.

    Args:
        service: What is served.
        public_url: The address at which others reach it; None: the one that each of them asked at.
    """

    def __init__(self, service: Service, public_url: str | None = None) -> None:
        self._service, self._public_url = service, public_url
        self._refused = load(InstallSettings).refuse
        self._maker, self._lock = ThreadPoolExecutor(1, "registry"), threading.Lock()
        self._asked: tuple[Served, Licences] | None = None
        self._made: Future[_Release] | None = None
        self._known: dict[str, OfferedSkill] = {}
        self._market = _NO_MARKET

    async def release(self) -> _Release:
        """Return what is offered now.

        Raises:
            TransientError: The indexes are being made, which takes longer than a request may wait.
            NotPublished: Nothing is served.
            StorageError: A file of the root cannot be read.
        """
        made = asyncio.wrap_future(await self._service.run(self._begun))
        try:
            return await asyncio.wait_for(asyncio.shield(made), _PATIENCE)
        except TimeoutError as error:
            msg = "the indexes of what is served are being made: ask again in a minute"
            raise TransientError(msg) from error

    def warm(self) -> None:
        """Begin to make the indexes if others are to reach them; a request is told what goes wrong."""
        if self._public_url is not None:
            self._maker.submit(self._begun)

    def _begun(self) -> Future[_Release]:
        now = require_served(self._service.root), require_licences(self._service.root)
        with self._lock:
            failed = self._made is not None and self._made.done() and self._made.exception() is not None
            if self._made is None or failed or now != self._asked:
                self._asked, self._made = now, self._maker.submit(self._make, now[0])
            return self._made

    def _make(self, served: Served) -> _Release:
        count = (served.counts(self._service.root) or {}).get("documents") or 0
        make = partial(released, self._service.root.uri, served, self._refused, self._known)
        # What reading 20,000 skills takes, 300 MB, goes with the process that did it.
        with batch_processes(count // _AT_ONCE, 2, 2) as apart:
            by_name, files = run_in(apart, make)
        self._known, self._market = {offer.doc_id: offer for offer in by_name.values()}, _NO_MARKET
        heads = {path: (content, _tag(content)) for path, content in files.items()}
        give_memory_back()
        return _Release(by_name, {offer.archive: offer for offer in by_name.values()}, heads)

    def contents(self, offer: OfferedSkill) -> Contents:
        """Return the files of a skill; raise `UnknownDocument` if they are not those offered any more."""
        edition, _, _ = self._service.skills.edition(offer.doc_id)
        found = contents_of(edition, self._refused, lambda: str(edition.row["body"]))
        if (
            isinstance(found, str)
            or {p: hashlib.sha256(c).hexdigest() for p, c in found.items()} != offer.files
        ):
            raise UnknownDocument(f"{offer.doc_id} has changed: {_AGAIN}")
        return found

    def marketplace(self, release: _Release, base: str) -> tuple[bytes, str]:
        """Return the marketplace of Claude's format; each archive lies below the public address or `base`."""
        base = self._public_url or base
        held, held_base, found = self._market
        if held is not release or held_base != base:
            made = hosted_marketplace(release.by_name, base)
            self._market = release, base, (found := (made, _tag(made)))
            give_memory_back()
        return found

    def answer(
        self, request: Request, content: bytes, tag: str, media: str, *, lasting: bool = False
    ) -> Response:
        """Return a file under a tag, or 304 if the caller holds it; `lasting`: for good, and in ranges."""
        whose = "private" if self._service.limits.token.get_secret_value() else "public"
        kept = f"{whose}, max-age=31536000, immutable" if lasting else f"{whose}, no-cache"
        headers = {"etag": tag, "cache-control": kept}
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if lasting:
            headers["accept-ranges"] = "bytes"
            wanted = request.method == "GET" and request.headers.get("if-range", tag) == tag
            found = wanted and _RANGE.fullmatch(request.headers.get("range", ""))
            if found and int(found[1] or 0) <= int(found[2] or found[1]):  # else it is none (RFC 9110)
                return _part(content, found[1], found[2], headers, media)
        if media == _BINARY:  # whatever a third party calls its file, no browser may run it
            headers["content-disposition"] = "attachment"
        return Response(content, headers=headers, media_type=media)

    def close(self) -> None:
        """Take no more work; what is under way is not waited for."""
        self._maker.shutdown(wait=False, cancel_futures=True)


def registry_router(service: Service, registry: LiveRegistry) -> APIRouter:
    """Return the routes of the registry, each for GET and HEAD."""
    router = APIRouter(include_in_schema=False)

    def head(path: str) -> None:
        async def index(request: Request) -> Response:
            return registry.answer(request, *(await registry.release()).heads[path], _JSON)

        _add(router, f"/{path}", index)

    async def archive(request: Request, name: str) -> Response:
        offer = _offered((await registry.release()).by_archive, name)
        made = await service.run(lambda: pack(registry.contents(offer)))
        return registry.answer(request, made, _tag(made), _ZIP, lasting=True)

    async def file(request: Request, name: str, path: str) -> Response:
        offer = _offered((await registry.release()).by_name, name)
        if path not in offer.files:
            raise UnknownDocument(f"{name} has no such file: {_AGAIN}")
        content = (await service.run(lambda: registry.contents(offer)))[path]
        media = MARKDOWN if mime_of(path) == MARKDOWN else _BINARY
        return registry.answer(request, content, _tag(content), media)

    async def marketplace(request: Request) -> Response:
        release, base = await registry.release(), f"http://{request.headers['host']}"
        made = await service.run(lambda: registry.marketplace(release, base))
        return registry.answer(request, *made, _JSON)

    for path in (INDEX, OLDER_INDEX):
        head(path)
    _add(router, f"/{FOLDER}/{ARCHIVES}/{{name}}", archive)
    _add(router, f"/{OLDER_FOLDER}/{{name}}/{{path:path}}", file)
    _add(router, f"/{MARKETPLACE}", marketplace)
    return router


def _tag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def _part(content: bytes, first: str, last: str, headers: dict[str, str], media: str) -> Response:
    """Return the bytes from `first` to `last`, or if there is no first the last so many (RFC 9110)."""
    size = len(content)
    begin = int(first) if first else max(0, size - int(last))
    end = min(int(last) + 1, size) if first and last else size
    if begin >= end:
        return Response(status_code=416, headers={**headers, "content-range": f"bytes */{size}"})
    told = {**headers, "content-range": f"bytes {begin}-{end - 1}/{size}"}
    return Response(content[begin:end], 206, told, media)


def _add(router: APIRouter, path: str, answer: Callable[..., object]) -> None:
    router.add_api_route(path, answer, methods=["GET", "HEAD"], response_class=Response)


def _offered(offers: Mapping[str, OfferedSkill], name: str) -> OfferedSkill:
    if name not in offers:
        raise UnknownDocument(f"nothing is offered as {name[:200]!r}: {_AGAIN}")
    return offers[name]
