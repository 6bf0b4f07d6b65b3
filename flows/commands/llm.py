"""The LLM that is set up, opened for commands that can do without its answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flows.commands.console import say_aside
from flows.settings import Settings, asked_llm
from storage.root import Root
from tasks.models.llm.ask import Llm, open_llm


@contextmanager
def opened_llm(root: Root, settings: Settings, instead: str) -> Iterator[Llm]:
    """Yield the LLM that is set up, whose answers are kept below a root.

    If it gave no answer, stderr says so at the end, and what is there `instead`. Raises `WrongInput` if none
    is set up.
    """
    with open_llm(root, asked_llm(settings)) as llm:
        yield llm
    if llm.fallbacks:
        say_aside(f"the language model gave no answer that can be used ({llm.told()}): {instead}")
