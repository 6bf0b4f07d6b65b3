"""The credentials of crawls: from the environment alone, never from settings, files or parameters."""

from __future__ import annotations

import os

from tasks.crawl.secret import Secret

GITHUB_TOKEN, SKILLSMP_KEY = "GITHUB_TOKEN", "SKILLERY_SKILLSMP_KEY"


def credential(variable: str) -> Secret:
    """Return the credential in an environment variable; a secret without a value where it is not set."""
    return Secret(os.environ.get(variable))
