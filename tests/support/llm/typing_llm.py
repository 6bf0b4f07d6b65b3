"""A scripted model that knows the packaged fragments' types, and errs as it is told."""

from __future__ import annotations

import json
from collections.abc import Callable

from tasks.parse.classify.options import known_fragments
from tests.support.llm.llm_server import Asked, Say, label_of

Errs = Callable[[str, str], str]


def says(errs: Errs = lambda _text, true: true) -> Say:
    """Return what types fragments: `errs` is given a text and its type, known or of `label_of`."""
    fragments, types = known_fragments()
    known = {fragment.text: true for fragment, true in zip(fragments, types, strict=True)}

    def say(asked: Asked) -> str:
        texts = {f["id"]: f["text"] for f in asked.fragments}
        return json.dumps({k: errs(text, known.get(text, label_of(text))) for k, text in texts.items()})

    return say
