"""The MCP server: the tools, and the Skills extension beside them, whatever the transport."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from flows.serve.answers.service import NOTICE, Service
from flows.serve.answers.tools import TOOLS
from flows.serve.mcp.skills import SkillsExtension
from storage.errors import SkilleryError

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
            found = await tool.answer(service, params.arguments)
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
