"""The registry that a server is: indexes and archives of what is served, each under a tag of its bytes."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from typing import TypeVar

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from flows.commands.installing import InstallSettings
from flows.serve.answers.service import Service
from flows.settings import load
from storage.errors import TransientError, UnknownDocument
from storage.lance.served import Licences, Served, require_licences, require_served
from tasks.crawl.registries.discovery import FOLDER, INDEX, OLDER_FOLDER, OLDER_INDEX, digest_of, pack
from tasks.refine.workers import batch_processes, give_memory_back, run_in
from tasks.retrieve.registry.indexes import ARCHIVES, MARKETPLACE, Release, hosted_at, released, tag_of
from tasks.retrieve.registry.offers import Contents, contents_of
from tasks.retrieve.skills.bundle import MARKDOWN, mime_of

_PATIENCE = 20.0  # seconds that a request waits for indexes which are being made
_JSON, _ZIP, _BINARY = "application/json", "application/zip", "application/octet-stream"
_hosted_at = lru_cache(1)(hosted_at)
_T = TypeVar("_T")
_AGAIN = "read the index again"
_RANGE = re.compile(r"bytes=(?=\d|-\d)(\d{0,18})-(\d{0,18})", re.ASCII)  # of several ranges all is sent


_PIECE = 1 << 18  # bytes sent at once: a copy of 12 MB would take longer to make than to send, and stay
_AT_ONCE = 1000  # skills that are read in a second or two, which a process takes to start


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
        self._made: Future[Release] | None = None
        self._noted: bytes | None = None

    async def release(self) -> Release:
        """Return what is offered now.

        Raises `TransientError` if the indexes are being made, which takes longer than a request may wait;
        `NotPublished` if nothing is served; `StorageError` if a file of the root cannot be read.
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

    def _begun(self) -> Future[Release]:
        now = require_served(self._service.root), require_licences(self._service.root)
        with self._lock:
            failed = self._made is not None and self._made.done() and self._made.exception() is not None
            if self._made is None or failed or now != self._asked:
                self._asked, self._made = now, self._maker.submit(self._make, now[0])
            return self._made

    def _make(self, served: Served) -> Release:
        with self._service.index.version() as now:
            count = len(now.names())
        make = partial(released, self._service.root.uri, served, self._refused, self._noted)
        # What reading 20,000 skills takes, 300 MB, goes with the process that did it.
        with batch_processes(count // _AT_ONCE, 2, 2) as apart:
            made = run_in(apart, make)
        self._noted = made.noted
        _hosted_at.cache_clear()
        give_memory_back()
        return made

    def contents(self, release: Release, archive: str) -> tuple[Contents, bytes]:
        """Return the files of a skill, and its archive; raise `UnknownDocument` if they are others by now."""
        edition, _, _ = self._service.skills.edition(_offered(release.documents, archive))
        found = contents_of(edition, self._refused, lambda: str(edition.row["body"]))
        made = b"" if isinstance(found, str) else pack(found)
        if isinstance(found, str) or digest_of(made) != f"sha256:{archive.removesuffix('.zip')}":
            raise UnknownDocument(f"{edition.row['doc_id']} has changed: {_AGAIN}")
        return found, made

    def base(self, request: Request) -> str:
        """Return the address below which archives lie: the public one, or the one that was asked."""
        return self._public_url or f"http://{request.headers['host']}"

    def answer(
        self, request: Request, content: bytes, tag: str, media: str, *, lasting: bool = False
    ) -> Response:
        """Return a file under a tag, or 304 if the caller holds it; `lasting`: for good, and in ranges."""
        whose = "private" if self._service.limits.token.get_secret_value() else "public"
        kept = f"{whose}, max-age=31536000, immutable" if lasting else f"{whose}, no-cache"
        headers = {"etag": tag, "cache-control": kept}
        if _is_held(request, tag):
            return Response(status_code=304, headers=headers)
        if lasting:
            headers["accept-ranges"] = "bytes"
            wanted = request.method == "GET" and request.headers.get("if-range", tag) == tag
            found = wanted and _RANGE.fullmatch(request.headers.get("range", ""))
            if found and int(found[1] or 0) <= int(found[2] or found[1]):  # else it is none (RFC 9110)
                return _part(content, found[1], found[2], headers, media)
        if media == _BINARY:  # whatever a third party calls its file, no browser may run it
            headers["content-disposition"] = "attachment"
        headers["content-length"] = str(len(content))
        return StreamingResponse(_pieces(content), headers=headers, media_type=media)

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
        release = await registry.release()
        _, made = await service.run(lambda: registry.contents(release, name))
        return registry.answer(request, made, tag_of(made), _ZIP, lasting=True)

    async def file(request: Request, name: str, path: str) -> Response:
        release = await registry.release()
        archive = _offered(release.archives, name)
        files, _ = await service.run(lambda: registry.contents(release, archive))
        content, media = _offered(files, path), MARKDOWN if mime_of(path) == MARKDOWN else _BINARY
        return registry.answer(request, content, tag_of(content), media)

    async def marketplace(request: Request) -> Response:
        content, tag = (await registry.release()).heads[MARKETPLACE]
        base = registry.base(request)
        tag = tag_of(f"{tag} {base}".encode())
        made = b"" if _is_held(request, tag) else await service.run(lambda: _hosted_at(base, content))
        return registry.answer(request, made, tag, _JSON)

    for path in (INDEX, OLDER_INDEX):
        head(path)
    _add(router, f"/{FOLDER}/{ARCHIVES}/{{name}}", archive)
    _add(router, f"/{OLDER_FOLDER}/{{name}}/{{path:path}}", file)
    _add(router, f"/{MARKETPLACE}", marketplace)
    return router


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(content), _PIECE):
        yield content[at : at + _PIECE]


def _is_held(request: Request, tag: str) -> bool:
    return tag in request.headers.get("if-none-match", "")


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


def _offered(offers: Mapping[str, _T], name: str) -> _T:
    if name not in offers:
        raise UnknownDocument(f"nothing is offered as {name[:200]!r}: {_AGAIN}")
    return offers[name]
