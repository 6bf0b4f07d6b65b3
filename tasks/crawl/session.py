"""aiohttp's session with everything switched off that would happen behind our back."""

from __future__ import annotations

import types
from collections.abc import Callable

import aiohttp
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

from tasks.crawl.http_errors import HttpTransient

_BUFFER = 1 << 16


def open_session(
    *, user_agent: str, connect_timeout: float, timeout: float, sent: Callable[[str], None]
) -> aiohttp.ClientSession:
    """Return a session that keeps no cookies, unpacks no bodies, and sends a request once.

    Args:
        user_agent: What it calls itself.
        connect_timeout: For one connection to be made, seconds.
        timeout: For one request, its body included, seconds.
        sent: Called with a request's `trace_request_ctx` where it has one, when its headers have left.
    """

    async def on_sent(
        _session: aiohttp.ClientSession,
        context: types.SimpleNamespace,
        _parameters: aiohttp.TraceRequestHeadersSentParams,
    ) -> None:
        if context.trace_request_ctx is not None:
            sent(context.trace_request_ctx)

    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(on_sent)
    return aiohttp.ClientSession(
        headers={"User-Agent": user_agent, "Accept-Encoding": "gzip"},
        timeout=aiohttp.ClientTimeout(total=timeout, connect=connect_timeout),
        # Our own slots say how many connections a host gets.
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        read_bufsize=_BUFFER,
        trace_configs=[trace],
        middlewares=(_once,),
        requote_redirect_url=False,
    )


async def _once(request: ClientRequest, send: ClientHandlerType) -> ClientResponse:
    """Send a request, and let no cut connection be seen by aiohttp, which would send it again at once."""
    try:
        return await send(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        said = getattr(error, "strerror", None) or type(error).__name__
        raise HttpTransient("connection", request.url, f"the connection failed ({said})") from None
