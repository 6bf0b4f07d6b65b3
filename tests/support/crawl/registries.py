"""Sites on loopback: any, one with a discovery index, ClawHub, and an MCP server of skills."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from tasks.crawl.registries.discovery import INDEX, SCHEMA, digest_of, index_entry
from tasks.crawl.registries.mcp_server import EXTENSION
from tests.support.crawl.zip_files import zipped

Files = dict[str, bytes]
# A body, a JSON value, a status with headers and a body, or what answers with one of them.
Page = bytes | dict[str, Any] | list[Any] | tuple[int, Mapping[str, str], bytes]


class Site:
    """Serves `pages` by path, 404 for any other; a function gets the query, or the JSON that was posted."""

    def __init__(self, pages: Mapping[str, Page | Callable[[Any], Page]] | None = None) -> None:
        self.pages: dict[str, Page | Callable[[Any], Page]] = dict(pages or {})
        self.asked: list[str] = []

    def __enter__(self) -> Self:
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else a body waits 40 ms for the client to have read its head

            def do_GET(self) -> None:
                self._answer(dict(parse_qsl(urlsplit(self.path).query)))

            def do_POST(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

            def _answer(self, given: Any) -> None:  # noqa: ANN401
                site.asked.append(self.path)
                page = site.pages.get(urlsplit(self.path).path, (404, {}, b""))
                page = page(given) if callable(page) else page
                if not isinstance(page, tuple):
                    body = page if isinstance(page, bytes) else json.dumps(page).encode()
                    page = (200, {"ETag": f'"{hashlib.sha256(body).hexdigest()[:12]}"'}, body)
                status, headers, body = page
                if headers.get("ETag", "-") == self.headers.get("If-None-Match"):
                    status, body = 304, b""
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def since(self) -> list[str]:
        """Return the paths asked for since the last call."""
        asked, self.asked = self.asked, []
        return asked


class Garden(Site):
    """A site whose skills are set by name, as the bytes of an artifact."""

    def plant(self, artifacts: dict[str, bytes]) -> None:
        entries = []
        for name, content in artifacts.items():
            self.pages[f"/a/{name}"] = content
            entry = index_entry(name, f"Grows {name}.", f"/a/{name}", digest_of(content), {})
            entries.append(entry | ({"type": "skill-md"} if content.startswith(b"---") else {}))
        self.pages[f"/{INDEX}"] = {"$schema": SCHEMA, "skills": entries}

    def alter(self, number: int, **fields: object) -> None:
        page = self.pages[f"/{INDEX}"]
        assert isinstance(page, dict)
        page["skills"][number] |= fields


class Hub(Site):
    """A registry of skills by slug, listed by when they were updated."""

    def __init__(self) -> None:
        super().__init__({"/api/v1/skills": self.listing, "/api/v1/search": self.found})
        self.rows: dict[str, dict[str, Any]] = {}
        self.flagged: set[str] = set()
        self.clock = 1_000

    def put(
        self, slug: str, content: bytes, *, moderation: dict[str, Any] | None = None, **files: str
    ) -> None:
        self.clock += 1
        version = f"1.0.{self.clock}"
        created = self.rows.get(slug, {"createdAt": self.clock})["createdAt"]
        row = {"slug": slug, "createdAt": created, "updatedAt": self.clock}
        self.rows[slug] = row = row | {"latestVersion": {"version": version}}
        digest = files or {"SKILL.md": hashlib.sha256(content).hexdigest()}
        base, rows = f"/api/v1/skills/{slug}", [{"path": p, "sha256": d} for p, d in digest.items()]
        self.pages[base] = {"skill": row, "owner": {"handle": "ann"}, "moderation": moderation}
        self.pages[f"{base}/versions/{version}"] = {"version": {"version": version, "files": rows}}
        self.pages[f"/zip/{slug}"] = zipped({"SKILL.md": content, "_meta.json": version.encode()})

    def judge(self, slug: str, **moderation: object) -> None:
        """Judge a skill, which is no update of it; without words it is clean."""
        page = self.pages[f"/api/v1/skills/{slug}"]
        assert isinstance(page, dict)
        page["moderation"] = moderation or None
        (self.flagged.add if moderation else self.flagged.discard)(slug)

    def share(self, slug: str, owner: str, content: bytes) -> None:
        """Let another owner have a slug too: without a handle it is ambiguous from now on."""
        other, base = f"{slug}.{owner}", "/api/v1/skills"
        self.put(other, content)
        (row := self.rows[other])["slug"] = slug
        details: dict[str, Page] = {owner: {"skill": row, "owner": {"handle": owner}}}
        details["ann"] = self.pages[f"{base}/{slug}"]  # type: ignore[assignment]
        matches = [{"ownerHandle": handle, "slug": slug} for handle in ("nobody", *details)]
        refused = (409, {}, json.dumps({"code": "AMBIGUOUS_SKILL_SLUG", "matches": matches}).encode())
        details |= {"": refused, "nobody": (404, {}, b"")}
        self.pages[f"{base}/{slug}"] = lambda query: details[query.get("ownerHandle", "")]
        version = f"versions/{row['latestVersion']['version']}"
        self.pages[f"{base}/{slug}/{version}"] = self.pages[f"{base}/{other}/{version}"]

    def drop(self, slug: str) -> None:
        del self.rows[slug]
        self.pages[f"/api/v1/skills/{slug}"] = (404, {}, b"")

    def sorted_rows(self) -> list[dict[str, Any]]:
        return sorted(self.rows.values(), key=lambda row: -row["updatedAt"])

    def listing(self, query: dict[str, str]) -> Page:
        assert query["sort"] == "updated"
        at, rows = int(query.get("cursor", 0)), self.sorted_rows()
        if query.get("nonSuspiciousOnly") == "true":
            rows = [row for row in rows if row["slug"] not in self.flagged]
        end = at + int(query["limit"])
        return {"items": rows[at:end], "nextCursor": str(end) if end < len(rows) else None}

    def found(self, query: dict[str, str]) -> Page:
        return {"results": [row for row in self.sorted_rows() if query["q"] in row["slug"]]}

    def download(self, query: dict[str, str]) -> Page:
        owned = f"/zip/{query['slug']}.{query.get('ownerHandle')}"
        page = self.pages.get(owned) or self.pages[f"/zip/{query['slug']}"]
        assert not callable(page)
        return page


class SkillServer(Site):
    """Serves skills, by the path of their folder, two a page; `entries` and `reads` may be falsified."""

    def __init__(self) -> None:
        super().__init__({"/mcp": self.answer})
        self.skills: dict[str, Files] = {}
        self.entries: dict[str, dict[str, Any]] = {}
        self.unlisted: set[str] = set()
        self.extensions: dict[str, Any] = {EXTENSION: {}}
        self.cursor: str | None = None
        self.ttl, self.code = 0, -32602
        self.calls: list[str] = []

    def entry(self, path: str) -> dict[str, Any]:
        root = f"skill://{path}"
        files = [
            {"uri": f"{root}/{name}", "digest": digest_of(content), "size": len(content)}
            for name, content in self.skills[path].items()
        ]
        return {"uri": f"{root}/SKILL.md", "frontmatter": {}, "resources": files} | self.entries.get(path, {})

    def answer(self, call: dict[str, Any]) -> Any:  # noqa: ANN401 (a page)
        method, params = call["method"], call["params"]
        assert params["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        self.calls.append(method)
        result = self.result(method, params)
        if result is None:
            error = {"code": self.code, "message": "there is none"}
            return (400, {}, json.dumps({"jsonrpc": "2.0", "id": call["id"], "error": error}).encode())
        return {"jsonrpc": "2.0", "id": call["id"], "result": result}

    def result(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        if method == "server/discover":
            return {"capabilities": {"extensions": self.extensions, "resources": {}}}
        if method == "skills/list":
            paths = [path for path in self.skills if path not in self.unlisted]
            at = int(params.get("cursor", 0))
            more = self.cursor or (str(at + 2) if at + 2 < len(paths) else None)
            skills = [self.entry(path) for path in paths[at : at + 2]]
            return {"skills": skills, "nextCursor": more, "ttlMs": self.ttl}
        root, name = params["uri"].removeprefix("skill://").split("/SKILL.md")[0], "SKILL.md"
        if method == "skills/get":
            return {"skill": self.entry(root)} if root in self.skills else None
        for path, files in self.skills.items():
            name = params["uri"].removeprefix(f"skill://{path}/")
            if name in files:
                blob = base64.b64encode(files[name]).decode()
                told = {"text": files[name].decode()} if name == "SKILL.md" else {"blob": blob}
                return {"contents": [{"uri": params["uri"], **told}]}
        return None

    def called(self) -> list[str]:
        calls, self.calls = self.calls, []
        return calls
