"""An OpenAI-compatible server on loopback that sorts fragments by a rule, and misbehaves on demand."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

from storage.schemas import NODE_TYPES

_BLOCK = re.compile(r"^BEGIN DATA (\w+)\n(.*)\nEND DATA \1$", re.DOTALL | re.MULTILINE)
OVERFLOW = {
    "error": {"message": "This model's maximum context length is 512 tokens.", "code": "context_length"}
}


@dataclass
class Asked:
    """One request: its body, the fragments in it, and how often the same was asked before."""

    body: dict[str, Any]
    headers: Mapping[str, str]
    before: int
    fragments: list[dict[str, Any]] = field(default_factory=list)
    fault: str | None = None

    def __post_init__(self) -> None:
        if found := _BLOCK.search(self.prompt):
            self.fragments = [json.loads(line) for line in found[2].split("\n")]

    @property
    def prompt(self) -> str:
        return str(self.body["messages"][-1]["content"])

    @property
    def corrected(self) -> bool:
        return "An earlier answer could not be used" in self.prompt

    @property
    def key(self) -> str:
        return hashlib.sha256(json.dumps(self.body["messages"]).encode()).hexdigest()

    @property
    def texts(self) -> list[str]:
        return [fragment["text"] for fragment in self.fragments]


Fault = Callable[[Asked], str | None]
Say = Callable[[Asked], str]


def label_of(text: str) -> str:
    """Return the type that the server's model gives a text, whatever stands around it."""
    return NODE_TYPES[hashlib.sha256(text.encode()).digest()[0] % len(NODE_TYPES)]


def sorted_out(asked: Asked) -> str:
    return json.dumps({f["id"]: label_of(f["text"]) for f in asked.fragments})


def never(_: Asked) -> str | None:
    return None


class LlmServer:
    """Runs in a thread of its own while entered.

    Args:
        fault: Names what goes wrong with a request, a key of `_ANSWERS` or `_REFUSALS`; None: nothing.
        say: The model's words.
        delay: Seconds that each answer takes.
    """

    def __init__(self, fault: Fault = never, *, say: Say = sorted_out, delay: float = 0.0) -> None:
        self.fault, self.say, self.delay = fault, say, delay
        self.asked: list[Asked] = []
        self.embedded: list[str] = []
        self.usage: dict[str, object] | None = {"prompt_tokens": 100, "completion_tokens": 10}
        self.refuses = "no"
        self.most_at_once = 0
        self._under_way = 0
        self._seen: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10)
        self._loop.close()

    @property
    def requests(self) -> int:
        return len(self.asked)

    def faults(self) -> Counter[str | None]:
        return Counter(asked.fault for asked in self.asked)

    def answered(self) -> Counter[str]:
        """Return how often each question was answered with a completion, right or wrong."""
        lost = ("rate", "rate-after", "500", "timeout", "cut", "cut-stream", "no-format", "html")
        return Counter(asked.key for asked in self.asked if asked.fault not in lost)

    def _serve(self, ready: threading.Event) -> None:
        async def main() -> None:
            runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=0.05)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
            ready.set()
            await self._stopped.wait()
            await runner.cleanup()

        self._loop.run_until_complete(main())

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/v1/embeddings":
            return self._embedded(json.loads(await request.read()))
        assert request.path == "/v1/chat/completions"
        asked = Asked(json.loads(await request.read()), dict(request.headers), 0)
        asked.before = self._seen[asked.key]
        self._seen[asked.key] += 1
        asked.fault = self.fault(asked)
        self.asked.append(asked)
        self._under_way += 1
        self.most_at_once = max(self.most_at_once, self._under_way)
        try:
            await asyncio.sleep(self.delay)
            return await self._reply(request, asked)
        finally:
            self._under_way -= 1

    def _embedded(self, body: dict[str, Any]) -> web.StreamResponse:
        """Return the counts of letters of each text, last text first."""
        self.embedded += body["input"]
        if body["model"] != "letters" and "embedding" not in body["model"]:
            return web.json_response({"error": {"message": "no such model"}}, status=404)
        counts = [[1.0 + text.count(chr(97 + n)) for n in range(26)] for text in body["input"]]
        rows = [{"object": "embedding", "index": n, "embedding": row} for n, row in enumerate(counts)]
        return web.json_response({"object": "list", "model": "letters", "data": rows[::-1]})

    async def _reply(self, request: web.BaseRequest, asked: Asked) -> web.StreamResponse:
        if asked.fault in _REFUSALS:
            status, body, headers = _REFUSALS[asked.fault]
            return web.json_response(body, status=status, headers=headers)
        if asked.fault == "refuses":
            return web.json_response({"error": {"message": self.refuses}}, status=400)
        if asked.fault in _BODIES:
            return web.Response(**_BODIES[asked.fault])
        if asked.fault == "timeout":
            await asyncio.sleep(30)
        if asked.fault in ("stream", "cut-stream"):
            return await self._stream(request, asked)
        if asked.fault == "cut":
            return await _cut(request)
        text = _ANSWERS[asked.fault](asked, self.say(asked))
        finish = "length" if asked.fault == "length" else "stop"
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
        usage = {} if self.usage is None else {"usage": self.usage}
        return web.json_response({"id": "c", "object": "chat.completion", "choices": [choice], **usage})

    async def _stream(self, request: web.BaseRequest, asked: Asked) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        text = self.say(asked)
        pieces = [text[k : k + 7] for k in range(0, len(text), 7)]
        whole = asked.fault == "stream"
        for piece in pieces if whole else pieces[: len(pieces) // 2]:
            event = {"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]}
            await response.write(f"data: {json.dumps(event)}\n\n".encode())
        if whole:
            end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": self.usage}
            await response.write(f"data: {json.dumps(end)}\n\ndata: [DONE]\n\n".encode())
        await response.write_eof()
        return response


_BODIES: dict[str | None, dict[str, Any]] = {
    "html": {"text": "<html><body>Please log in.</body></html>", "content_type": "text/html"},
    # 400 MB of zeros.
    "bomb": {"body": gzip.compress(bytes(1 << 20)) * 400, "headers": {"Content-Encoding": "gzip"}},
}


async def _cut(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"id": "c", "choices": [')
    assert request.transport is not None
    request.transport.abort()
    return response


def _without_last(_: Asked, said: str) -> str:
    return json.dumps(dict(list(json.loads(said).items())[:-1]))


def _with_another(asked: Asked, said: str) -> str:
    return json.dumps({**json.loads(said), str(len(asked.fragments) + 1): "step"})


_ANSWERS: dict[str | None, Callable[[Asked, str], str]] = {
    None: lambda _, said: said,
    "short": _without_last,
    "extra": _with_another,
    "prose": lambda _, said: (
        f"Sure! Here are the kinds [as asked]:\n\n{said}\n\nLet me know {{if}} you need more."
    ),
    "fenced": lambda _, said: f"<think>Perhaps {{}}?</think>```json\n{said}\n```",
    "wrong-ids": lambda _, said: json.dumps({f"f{k}": v for k, v in json.loads(said).items()}),
    "seventh": lambda _, said: json.dumps(dict.fromkeys(json.loads(said), "advice")),
    "twice": lambda _, said: said.replace("{", '{"1": "step", ', 1),
    "no-json": lambda _, _said: "I cannot help with that.",
    "empty": lambda _, _said: "",
    "length": lambda _, said: said[: len(said) // 2],
}
_REFUSALS: dict[str | None, tuple[int, dict[str, Any], dict[str, str]]] = {
    "rate": (429, {"error": {"message": "slow down"}}, {}),
    "rate-after": (429, {"error": {"message": "slow down"}}, {"Retry-After": "7"}),
    "500": (500, {"error": {"message": "oops"}}, {}),
    "overflow": (400, OVERFLOW, {}),
    "no-format": (400, {"error": {"message": "response_format is not supported"}}, {}),
    "401": (401, {"error": {"message": "Incorrect API key provided: sk-hush"}}, {}),
    "404": (404, {"error": {"message": "no such model"}}, {}),
    "refused": (400, {"error": {"message": "not this one"}}, {}),
    "no-money": (429, {"error": {"message": "pay first", "code": "insufficient_quota"}}, {}),
}
