"""Prefect's settings for a run in this process; to be called before Prefect is imported."""

from __future__ import annotations

import os
from pathlib import Path

from storage.root import Root

_DEFAULTS = {
    # Its own start has taken up to 30 s on a busy machine; Prefect gives it 20.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "flows,tasks",
    "PREFECT_CLI_PROMPT": "false",
}


def prepare_prefect(root: Root) -> None:
    """Put Prefect's home below the root and its start-up limit up, where the user has not set them."""
    os.environ.setdefault("PREFECT_HOME", str(root.folder / "prefect"))
    # Prefect makes the last folder of the path only, and its server does not start without.
    Path(os.environ["PREFECT_HOME"]).mkdir(parents=True, exist_ok=True)
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
