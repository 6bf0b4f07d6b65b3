"""The MCP server: the tools, and the Skills extension (`io.modelcontextprotocol/skills`, SEP-2640)."""

from __future__ import annotations

import base64
from collections.abc import Callable
from importlib import metadata
from typing import Any, TypeVar

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from flows.serve.answers.service import NOTICE, Service
from flows.serve.answers.tools import TOOLS
from storage.errors import NotPublished, SkilleryError, UnknownDocument, Withheld, WrongInput
from tasks.retrieve.revisions.edition import SKILL_FILE
from tasks.retrieve.skills.bundle import MARKDOWN, ServedBundle, mime_of
from tasks.retrieve.skills.catalogue import EntryPage

EXTENSION = "io.modelcontextprotocol/skills"
# What is served may change with every publication: a host asks again after a minute.
_FRESH_MS = 60_000
_T = TypeVar("_T")


class UriParams(types.RequestParams):
    """The parameters of a request for one address."""

    uri: str


class SkillsExtension:
    """Answers the methods of the extension out of the catalogue."""

    def __init__(self, service: Service, *, shared: bool) -> None:
        self._service = service
        self._cache: dict[str, Any] = {"ttlMs": _FRESH_MS, "cacheScope": "public" if shared else "private"}

    def register(self, server: Server[Any]) -> None:
        """Add the methods, and the capability, to a server."""
        server.extensions[EXTENSION] = {"directoryRead": True}
        server.add_request_handler("skills/list", types.PaginatedRequestParams, self.list_skills)
        server.add_request_handler("skills/get", UriParams, self.get_skill)
        server.add_request_handler("resources/directory/read", UriParams, self.read_directory)

    async def list_skills(self, _: object, params: types.PaginatedRequestParams) -> dict[str, Any]:
        """Return a page of entries; `_meta` counts what is left to the tools, by reason."""
        page = await self._page(params.cursor)
        told = {"skillery/version": page.version, "skillery/left_to_tools": page.left_out}
        return self._complete(skills=[b.entry() for b in page.bundles], **_next(page), _meta=told)

    async def get_skill(self, _: object, params: UriParams) -> dict[str, Any]:
        """Return the entry of the skill whose SKILL.md has this address."""

        def found() -> dict[str, Any]:
            bundle, address = self._service.skills.bundle(params.uri)
            if address.path != SKILL_FILE:
                raise WrongInput(f"{params.uri[:200]!r} is no skill's address: it ends in /{SKILL_FILE}")
            return bundle.entry()

        return self._complete(skill=await self._ask(found))

    async def read_directory(self, _: object, params: UriParams) -> dict[str, Any]:
        """Return what lies right below a folder of a skill."""

        def found() -> list[dict[str, Any]]:
            bundle, address = self._service.skills.bundle(params.uri)
            return bundle.children(address.path)

        return self._complete(resources=await self._ask(found))

    async def list_resources(
        self, _: object, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """Return the SKILL.md files of a page of skills."""
        page = await self._page(params.cursor if params else None)
        told = {"resources": [_resource(bundle) for bundle in page.bundles], **_next(page), **self._cache}
        return types.ListResourcesResult.model_validate(told)

    async def list_templates(self, _: object, __: object) -> types.ListResourceTemplatesResult:
        """Return the form of all addresses: hosts ask for it where resources are served."""
        told = {"name": "file of a skill", "uriTemplate": "skill://{id}/{name}/{+path}"}
        return types.ListResourceTemplatesResult.model_validate({"resourceTemplates": [told], **self._cache})

    async def read_resource(
        self, _: object, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """Return a file: as text where its bytes are UTF-8, else in base64."""

        def found() -> dict[str, Any]:
            bundle, address = self._service.skills.bundle(params.uri)
            return _contents(params.uri, bundle, address.path, bundle.read(address.path))

        return types.ReadResourceResult.model_validate({"contents": [await self._ask(found)], **self._cache})

    async def _page(self, cursor: str | None) -> EntryPage:
        return await self._ask(lambda: self._service.skills.page(_key(cursor)))

    async def _ask(self, work: Callable[[], _T]) -> _T:
        """Return what a function returns; its errors become those of the protocol."""
        try:
            return await self._service.run(work)
        except (UnknownDocument, WrongInput, Withheld) as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error
        except NotPublished as error:
            raise MCPError(types.INTERNAL_ERROR, f"{error}; then ask again") from error
        except SkilleryError as error:
            raise MCPError(types.INTERNAL_ERROR, str(error)) from error

    def _complete(self, **found: Any) -> dict[str, Any]:  # noqa: ANN401 (JSON)
        return {"resultType": "complete", **found, **self._cache}


def _next(page: EntryPage) -> dict[str, str]:
    if page.after is None:
        return {}
    return {"nextCursor": base64.urlsafe_b64encode(page.after.encode()).decode()}


def _key(cursor: str | None) -> str | None:
    """Return the key that a cursor stands for; raises `WrongInput` if it is none that a page gave."""
    try:
        return None if cursor is None else base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
    except ValueError as error:
        raise WrongInput(f"cursor {str(cursor)[:60]!r} was not given by a page: begin without one") from error


def _resource(bundle: ServedBundle) -> dict[str, Any]:
    told = {"name": bundle.name, "description": bundle.skill.front_matter["description"]}
    size = len(bundle.skill.content)
    return {"uri": bundle.uri(), **told, "mimeType": MARKDOWN, "size": size, "_meta": bundle.meta()}


def _contents(uri: str, bundle: ServedBundle, path: str, content: bytes) -> dict[str, Any]:
    told, media = {"uri": uri, "_meta": bundle.meta()}, mime_of(path)
    try:
        return {**told, "mimeType": media or "text/plain", "text": content.decode()}
    except UnicodeDecodeError:
        blob = base64.b64encode(content).decode()
        return {**told, "mimeType": media or "application/octet-stream", "blob": blob}


_INSTRUCTIONS = (
    "Skills of third parties, searched and read. search_skills finds them, page_skill gives what a request "
    "needs of one, read_skill_file its files; skills/list and skill:// addresses serve them whole. "
    "compose_plan finds skills for a task of several steps, suggest_steps what agents did before at such a "
    f"step. {NOTICE}"
)
_READ_ONLY = types.ToolAnnotations(read_only_hint=True)


def mcp_server(service: Service, *, shared: bool) -> Server[Any]:
    """Return a server of MCP; `shared` tells whether caches of clients may share what it answers."""
    extension = SkillsExtension(service, shared=shared)
    by_name = {tool.name: tool for tool in TOOLS}
    listed = types.ListToolsResult(tools=tool_definitions())

    async def list_tools(_: object, __: object) -> types.ListToolsResult:
        return listed

    async def call_tool(_: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = by_name.get(params.name)
        if tool is None:
            msg = f"there is no tool {params.name[:100]!r}: tools/list names all"
            raise MCPError(types.INVALID_PARAMS, msg)
        try:
            found = await tool.answer(service, params.arguments, "mcp")
        except SkilleryError as error:
            return types.CallToolResult(content=[types.TextContent(text=str(error))], is_error=True)
        text = types.TextContent(text=found.as_text())
        return types.CallToolResult(content=[text], structured_content=found.as_json())

    server: Server[Any] = Server(
        "skillery", version=metadata.version("skillery"), instructions=_INSTRUCTIONS,
        # No parameter of a tool is repeated in a header: there is nothing to compare.
        get_tool_input_schema=lambda _: None,
        on_list_tools=list_tools, on_call_tool=call_tool,
        on_list_resources=extension.list_resources, on_read_resource=extension.read_resource,
        on_list_resource_templates=extension.list_templates,
    )  # fmt: skip
    extension.register(server)
    return server


def tool_definitions() -> list[types.Tool]:
    """Return all tools as `tools/list` gives them."""
    found = []
    for tool in TOOLS:
        arguments, outcome = tool.schemas()
        found.append(
            types.Tool(
                name=tool.name, description=tool.description, input_schema=arguments, output_schema=outcome,
                annotations=_READ_ONLY,
            )
        )  # fmt: skip
    return found
