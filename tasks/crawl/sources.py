"""Opens one of the sources by the spec that an operator gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from storage.errors import WrongInput
from storage.root import Root
from tasks.crawl.git.sample import SampleSource
from tasks.crawl.git.source import GitSource, split_ref
from tasks.crawl.github.source import GitHubSource, split_name
from tasks.crawl.http.network import Reach
from tasks.crawl.mcp.awesome_list import AwesomeListSource
from tasks.crawl.mcp.registry import McpRegistrySource
from tasks.crawl.skillsmp.source import SkillsMPSource
from tasks.crawl.source.content import DocumentLimits
from tasks.crawl.source.directory import DirectorySource
from tasks.crawl.source.identity import hide_credentials, parse_remote, public_url
from tasks.crawl.source.parquet_file import ParquetSource
from tasks.crawl.source.protocol import SAMPLE, Source

ACCEPTED = (
    "skillsmp[:QUERY], github:OWNER/REPO[@REF], git+URL[@REF], dir:PATH, parquet:PATH, "
    "awesome:PATH-or-URL, mcp-registry, sample"
)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How a source is read.

    Args:
        root: Where state lies.
        now: When the reading begins.
        limit: How many documents are wanted; None: all.
        max_document_bytes: A longer SKILL.md is recorded without its content.
        git_timeout: Longest time of one git command, seconds.
        reach: The network as the operator set it.
    """

    root: Root
    now: datetime
    limit: int | None = None
    max_document_bytes: int = 2_000_000
    git_timeout: float = 300.0
    reach: Reach = field(default_factory=Reach)

    @property
    def limits(self) -> DocumentLimits:
        """The most that is taken of one document."""
        return DocumentLimits(document_bytes=self.max_document_bytes)


def open_source(spec: str, options: SourceOptions) -> Source:
    """Return the source that a spec names, without touching it.

    Raises:
        WrongInput: The spec has none of the known forms.
    """
    root, reach, limits, now = options.root, options.reach, options.limits, options.now
    kind, _, rest = spec.partition(":")
    makers: dict[str, Callable[[], Source]] = {
        "skillsmp": lambda: SkillsMPSource(
            rest, root, reach=reach, limits=limits, now=now, limit=options.limit
        ),
        "github": lambda: GitHubSource(rest, root, reach=reach, limits=limits, now=now),
        "awesome": lambda: AwesomeListSource(rest, root, reach),
        "mcp-registry": lambda: McpRegistrySource(root, reach, clock=lambda: now),
        SAMPLE: lambda: SampleSource(root, limits=limits, timeout=options.git_timeout),
    }
    if kind in makers and normal_spec(spec):
        return makers[kind]()
    return parse_spec(spec, max_document_bytes=options.max_document_bytes, git_timeout=options.git_timeout)


def parse_spec(spec: str, *, max_document_bytes: int = 2_000_000, git_timeout: float = 300.0) -> Source:
    """Return the source on disk or behind git that a spec names, without touching it.

    Only an operator's spec may come here: local paths, `file://` and SSH are allowed.

    Raises:
        WrongInput: The spec has another form; the message is one line that lists the accepted ones.
    """
    limits = DocumentLimits(document_bytes=max_document_bytes)
    makers: dict[str, Callable[[str], Source]] = {
        "git+": lambda rest: GitSource(rest, limits=limits, timeout=git_timeout),
        "dir:": lambda rest: DirectorySource(rest, limits=limits),
        "parquet:": lambda rest: ParquetSource(rest, limits=limits),
    }
    for prefix, make in makers.items():
        if spec.startswith(prefix) and len(spec) > len(prefix):
            return make(spec.removeprefix(prefix))
    raise _unknown(spec)


def _unknown(spec: str) -> WrongInput:
    return WrongInput(f"unknown source {hide_credentials(spec)!r}; give one of: {ACCEPTED}")


def normal_spec(spec: str) -> str:
    """Return an operator's spec as it is run, remembered and printed: local paths are absolute.

    Raises:
        WrongInput: The spec has none of the forms in `ACCEPTED`, or contains a password or token, which
            would appear in parameters and logs.
    """
    kind, colon, rest = spec.partition(":")
    if spec in (SAMPLE, "skillsmp", "mcp-registry") or (kind == "skillsmp" and rest.strip()):
        return spec
    if kind == "github":
        split_name(rest)
        return spec
    if kind == "awesome" and rest:
        return _normal_list(rest)
    if colon and kind in ("skillsmp", "mcp-registry", "awesome"):
        raise _unknown(spec)
    return _normal_local(spec)


def _normal_list(location: str) -> str:
    if "://" not in location:
        return f"awesome:{Path(location).expanduser().absolute()}"
    if parse_remote(location).user:
        raise WrongInput(f"awesome:{public_url(location)}: a spec may hold no user or password")
    return f"awesome:{public_url(location)}"


def _normal_local(spec: str) -> str:
    source = parse_spec(spec)
    kind, _, rest = spec.partition(":")
    if not isinstance(source, GitSource):
        return f"{kind}:{Path(rest).expanduser().absolute()}"
    remote = parse_remote(split_ref(spec.removeprefix("git+"))[0])
    login, _, password = remote.user.partition(":")
    # The name before an SSH host is part of the address; before any other it may be a token.
    if password or (login and remote.scheme not in ("ssh", "scp")):
        msg = f"{source.spec}: a spec may hold no user or password: put them into ~/.netrc, or use SSH"
        raise WrongInput(msg)
    return source.spec
