"""Suggests learned skills of whatever version is served, for a process that goes on answering."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from flows.commands.induction.suggest import Suggester, SuggestWishes
from storage.served import Served
from tasks.retrieve.open_version import OpenVersion
from tasks.retrieve.served_index import ServedIndex
from tasks.retrieve.suggest.served import ServedSkills


class ServedSuggester:
    """Suggests skills of what an index serves; a publication between two answers shows in the second.

    What is read of a version is kept until another one is asked. Threads may share it.
    """

    def __init__(self, index: ServedIndex) -> None:
        self._index, self._opening = index, threading.Lock()
        self._last: tuple[Served, Suggester] | None = None

    def suggest(
        self, task: str, domain: str | None, state: Mapping[str, Any], wishes: SuggestWishes
    ) -> dict[str, Any]:
        """Return what `Suggester.suggest` does, with `index_version`.

        Raises:
            WrongInput: No learned skills are served; or as `Suggester.suggest`.
            ModelMismatch: The learned skills, or the index, were made with another encoder.
            NotPublished: Nothing is served.
            StorageError: A table is damaged or missing.
        """
        now, found = self._index.read(lambda now: self._of(now).suggest(task, domain, state, wishes))
        return {**found, "index_version": now.served.version}

    def _of(self, now: OpenVersion) -> Suggester:
        with self._opening:
            if self._last is None or self._last[0] != now.served:
                skills = ServedSkills(now.root, now.served)
                skills.require_made_with(now.encoder)
                self._last = now.served, Suggester(skills, now.encoder.encode)
            return self._last[1]
