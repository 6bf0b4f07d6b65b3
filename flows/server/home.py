"""The home of Prefect below a root, and the settings that Skillery makes for it."""

from __future__ import annotations

import os
from pathlib import Path

from storage.folder import make_private
from storage.root import Root

_DEFAULTS = {
    # Prefect's server and client send usage figures to their makers unless told otherwise.
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "flows,tasks",
    "PREFECT_CLI_PROMPT": "false",
}


def prepare_home(root: Root) -> Path:
    """Make Prefect's home below the root and set the environment for it; return the home.

    Settings that the user has made stay, also another home.
    """
    home = root.folder / "prefect"
    make_private(home)  # its database holds the parameters of runs
    for name, value in {"PREFECT_HOME": str(home), **_DEFAULTS}.items():
        os.environ.setdefault(name, value)
    # Prefect makes only the last folder of the path, and its server does not start without it.
    chosen = Path(os.environ["PREFECT_HOME"])
    chosen.mkdir(parents=True, exist_ok=True)
    return chosen
