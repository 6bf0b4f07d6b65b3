"""The settings of a crawl, as operators give them, and credentials, which go to their own host only."""

from __future__ import annotations

import hashlib
import hmac
import os

from pydantic import BaseModel, ConfigDict, Field

from storage.errors import WrongInput


class CrawlSettings(BaseModel):
    """What a source is read with: limits, addresses (also of mirrors), and how politely hosts are asked."""

    model_config = ConfigDict(frozen=True)

    max_document_bytes: int = Field(2_000_000, ge=1, description="A longer SKILL.md is dropped as too large.")
    keep_files: int = Field(
        512, ge=0, description="Files beside a SKILL.md whose bytes are kept at most; 0 keeps none."
    )
    keep_bytes: int = Field(
        16 * 1024 * 1024, ge=0, description="Bytes of a skill's files kept at most; others are listed alone."
    )
    git_timeout: float = Field(300.0, gt=0, description="Seconds that one git command may take.")
    max_repository_paths: int = Field(500_000, ge=1, description="A git repository of more is not read.")
    source_bytes: int = Field(
        10_000_000_000, ge=1, description="Bytes of texts and files that one source may give a run."
    )
    source_seconds: float = Field(43_200.0, gt=0, description="Seconds that reading one source may take.")
    single_files: int = Field(
        2_000, ge=1, description="Files that one run fetches singly of a repository, if no archive has them."
    )
    skillsmp_url: str = Field("https://skillsmp.com", description="The marketplace, or a mirror of it.")
    github_api_url: str = Field("https://api.github.com", description="GitHub's REST API.")
    github_archive_url: str = Field("https://codeload.github.com", description="Archives of repositories.")
    github_raw_url: str = Field("https://raw.githubusercontent.com", description="Single files.")
    mcp_registry_url: str = Field(
        "https://registry.modelcontextprotocol.io", description="The registry of MCP servers."
    )
    clawhub_url: str = Field("https://clawhub.ai", description="ClawHub, or a registry of its kind.")
    skillssh_url: str = Field("https://skills.sh", description="The directory skills.sh.")
    request_delay: float = Field(1.0, ge=0, description="Least seconds between two requests to one host.")
    request_timeout: float = Field(120.0, gt=0, description="Seconds that one request may take in all.")
    request_concurrency: int = Field(4, ge=1, le=100, description="Requests under way to one host at most.")
    retry_wait_max: float = Field(10.0, ge=0, description="Longest wait of a retry, seconds.")
    archive_bytes: int = Field(50_000_000, ge=1, description="A larger archive of a repository is not read.")
    recheck_days: float = Field(
        7.0, gt=0, description="A repository not looked at for so many days is looked at again."
    )
    sweep_keywords: int = Field(
        3, ge=0, description="Keywords asked for a night where a marketplace does not list all it has."
    )


class Secret:
    """A credential, or none: it is false where it is empty, and prints as `***`.

    White space around it is cut off. What no HTTP header can carry, such as a line break, is WrongInput; its
    message hides it.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str | None = None) -> None:
        stripped = (value or "").strip()
        if not (stripped.isascii() and stripped.isprintable()):
            msg = "a credential holds line breaks or characters beyond ASCII: set it to the bare token"
            raise WrongInput(msg)
        self._value = stripped

    def reveal(self) -> str:
        """Return the credential itself, to be put into a request and nowhere else."""
        return self._value

    def fingerprint(self) -> str:
        """Return 12 hexadecimal digits of its SHA-256: they tell credentials apart and give none away."""
        return hashlib.sha256(self._value.encode()).hexdigest()[:12]

    def hide(self, body: bytes) -> bytes:
        """Return a text with every occurrence of the credential replaced by `***`."""
        return body.replace(self._value.encode(), b"***") if self._value else body

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._value, other._value)

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return "***"


GITHUB_TOKEN, SKILLSMP_KEY = "GITHUB_TOKEN", "SKILLERY_SKILLSMP_KEY"
SKILLSSH_TOKEN = "SKILLERY_SKILLSSH_TOKEN"  # noqa: S105 (the name of a variable)


def credential(variable: str) -> Secret:
    """Return the credential in an environment variable; a secret without a value where it is not set."""
    return Secret(os.environ.get(variable))
