"""What Prefect's server answers, as its pages ask it."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import Request, urlopen


def answer_of(api: str, path: str, body: dict[str, Any] | None = None) -> Any:  # noqa: ANN401 (what it answers)
    """Return what the server answers."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"{api}/{path}", data, {"Content-Type": "application/json"})  # noqa: S310
    with urlopen(request) as answer:  # noqa: S310 (the harness' own server)
        return json.load(answer)


def artifact(api: str, key: str) -> dict[str, Any]:
    """Return the last artifact of a key."""
    wanted = {"artifacts": {"key": {"any_": [key]}}, "sort": "UPDATED_DESC", "limit": 1}
    (found,) = answer_of(api, "artifacts/filter", wanted)
    return dict(found)


def table(api: str, key: str) -> list[dict[str, Any]]:
    """Return the rows of the last table of a key."""
    return list(json.loads(artifact(api, key)["data"]))
