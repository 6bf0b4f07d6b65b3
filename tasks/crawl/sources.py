"""Opens one of the sources by the spec that an operator gives."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from storage.errors import WrongInput
from tasks.crawl.git.sample import SampleSource
from tasks.crawl.git.source import GitSource, split_ref
from tasks.crawl.github.source import GitHubSource, split_name
from tasks.crawl.mcp.awesome_list import AwesomeListSource
from tasks.crawl.mcp.registry import McpRegistrySource
from tasks.crawl.skillsmp.source import SkillsMPSource
from tasks.crawl.source.content import DEFAULT_LIMITS, DocumentLimits
from tasks.crawl.source.directory import DirectorySource
from tasks.crawl.source.identity import hide_credentials, parse_remote, public_url
from tasks.crawl.source.parquet_file import ParquetSource
from tasks.crawl.source.protocol import SAMPLE, Source
from tasks.crawl.source.remote import SourceOptions

ACCEPTED = (
    "skillsmp[:QUERY], github:OWNER/REPO[@REF], git+URL[@REF], dir:PATH, parquet:PATH, "
    "awesome:PATH-or-URL, mcp-registry, sample"
)


def open_source(spec: str, options: SourceOptions) -> Source:
    """Return the source that a spec names, without touching it; an unknown form raises WrongInput."""
    kind, _, rest = spec.partition(":")
    limits, timeout = options.limits, options.git_timeout
    makers: dict[str, Callable[[], Source]] = {
        "skillsmp": lambda: SkillsMPSource(rest, options),
        "github": lambda: GitHubSource(rest, options),
        "awesome": lambda: AwesomeListSource(rest, options),
        "mcp-registry": lambda: McpRegistrySource(options),
        SAMPLE: lambda: SampleSource(options.root, limits=limits, timeout=timeout),
    }
    if kind in makers and normal_spec(spec):
        return makers[kind]()
    return parse_spec(spec, limits, timeout)


def parse_spec(spec: str, limits: DocumentLimits = DEFAULT_LIMITS, timeout: float = 300.0) -> Source:
    """Return the source on disk or behind git that a spec names; raise WrongInput with the accepted forms."""
    makers: dict[str, Callable[[str], Source]] = {
        "git+": lambda rest: GitSource(rest, limits=limits, timeout=timeout),
        "dir:": lambda rest: DirectorySource(rest, limits=limits),
        "parquet:": lambda rest: ParquetSource(rest, limits=limits),
    }
    for prefix, make in makers.items():
        if spec.startswith(prefix) and len(spec) > len(prefix):
            return make(spec.removeprefix(prefix))
    meant = f"; you may mean {hide_credentials(near)}" if (near := meant_spec(spec)) else ""
    raise WrongInput(f"unknown source {hide_credentials(spec)!r}{meant}; give one of: {ACCEPTED}")


_GITHUB = re.compile(
    r"(?:https?://)?(?:www\.)?github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?(?:/tree/([^/]+).*)?/?"
)
_REPOSITORY = re.compile(r"[\w-]+/[\w.-]+(?:@[\w./-]+)?")


def meant_spec(given: str) -> str | None:
    """Return the spec that is meant by a path, a web address or `OWNER/REPO`; None if it is like nothing."""
    if address := _GITHUB.fullmatch(given):
        return f"github:{address[1]}" + (f"@{address[2]}" if address[2] else "")
    if given.endswith(".parquet"):
        return f"parquet:{given}"
    if given.startswith((".", "/", "~")) or Path(given).is_dir():
        return f"dir:{given}"
    if re.match(r"(?:https?|ssh|file|git)://|git@", given):
        return f"git+{given}"
    return f"github:{given}" if _REPOSITORY.fullmatch(given) else None


def normal_spec(spec: str) -> str:
    """Return an operator's spec as it is run, remembered and printed: local paths are absolute.

    Raises:
        WrongInput: It has none of the forms in `ACCEPTED`, or contains a password, which would be logged.
    """
    kind, _, rest = spec.partition(":")
    if spec in (SAMPLE, "skillsmp", "mcp-registry") or (kind == "skillsmp" and rest.strip()):
        return spec
    if kind == "github":
        split_name(rest)
        return spec
    if kind == "awesome" and rest:
        return _normal_list(rest)
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
        detail = "a spec may hold no user or password: put them into ~/.netrc, or use SSH"
        raise WrongInput(f"{source.spec}: {detail}")
    return source.spec
