"""Tools asked in this process, without a protocol around them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from flows.serve.answers.service import Service, load_serving
from flows.serve.answers.tool import ToolOutcome
from flows.serve.answers.tools import TOOLS
from flows.settings import load_settings
from tests.support.roots.skill_root import SkillRoot
from tests.support.serving import Tools


@pytest.fixture
def tools_of() -> Iterator[Callable[[SkillRoot], Tools]]:
    """Return what calls the tools of a root's service by name, as all its protocols do."""
    services: list[Service] = []

    def of(root: SkillRoot) -> Tools:
        service = Service(root.root, load_settings(), load_serving())
        services.append(service)

        def call(name: str, given: dict[str, Any]) -> ToolOutcome:
            tool = next(tool for tool in TOOLS if tool.name == name)
            found: ToolOutcome = asyncio.run(tool.answer(service, given, "mcp"))
            return found

        return call

    yield of
    for service in services:
        service.close()
