"""Opens one of the sources by the spec that an operator gives."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from storage.errors import WrongInput
from tasks.crawl.git.sample import SampleSource
from tasks.crawl.git.source import GitSource, split_ref
from tasks.crawl.github.source import GitHubSource, is_name, split_name
from tasks.crawl.mcp.awesome_list import AwesomeListSource
from tasks.crawl.mcp.registry import McpRegistrySource
from tasks.crawl.skillsmp.source import SkillsMPSource
from tasks.crawl.source.content import DEFAULT_LIMITS, DocumentLimits
from tasks.crawl.source.directory import DirectorySource
from tasks.crawl.source.github_url import parse_github_url
from tasks.crawl.source.identity import hide_credentials, parse_remote, public_url
from tasks.crawl.source.parquet_file import ParquetSource
from tasks.crawl.source.protocol import SAMPLE, Source
from tasks.crawl.source.remote import SourceOptions

ACCEPTED = (
    "skillsmp[:QUERY], github:OWNER/REPO[@REF], git+URL[@REF], dir:PATH, parquet:PATH, "
    "awesome:PATH-or-URL, mcp-registry, sample"
)

_ADDRESS = re.compile(r"\w+://|(www\.)?github\.com/")
_WORDS = (SAMPLE, "skillsmp", "mcp-registry")


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
    raise WrongInput(f"unknown source {hide_credentials(spec)!r}; give one of: {ACCEPTED}")


def normal_spec(spec: str) -> str:
    """Return an operator's spec as it is run, remembered and printed: local paths are absolute.

    A path, `OWNER/REPO` and an address of GitHub become the spec that they mean.

    Raises:
        WrongInput: It has none of the forms in `ACCEPTED`, may mean several of them, or contains a password,
            which would be logged.
    """
    spec = _meant(spec)
    kind, _, rest = spec.partition(":")
    if spec in _WORDS or (kind == "skillsmp" and rest.strip()):
        return spec
    if kind == "github":
        split_name(rest)
        return spec
    if kind == "awesome" and rest:
        return _normal_list(rest)
    return _normal_local(spec)


def _meant(text: str) -> str:
    """Return the spec that a path, `OWNER/REPO[@REF]` or an address means, and any other text as it is."""
    is_path = text.startswith((".", "/", "~"))
    if _ADDRESS.match(text):
        return _address_meant(text)
    if text.startswith("git@"):
        return f"git+{text}"
    if text in _WORDS or (":" in text and not is_path):
        return text
    if is_name(text):
        if Path(text).exists():
            msg = f"{text} is a folder here, and may be a repository: give dir:{text} or github:{text}"
            raise WrongInput(msg)
        return f"github:{text}"
    if is_path or Path(text).exists():
        return f"{'parquet' if text.endswith('.parquet') else 'dir'}:{text}"
    return text


def _address_meant(text: str) -> str:
    url = text if "://" in text else f"https://{text}"
    if (found := parse_github_url(url)) is None:
        shown = hide_credentials(url)
        msg = f"{shown}: give git+{shown} for a git repository, awesome:{shown} for a list of MCP servers"
        raise WrongInput(msg)
    if len(found.rest) > 1:
        whole = f"github:{found.repository}@{found.rest[0]}"
        raise WrongInput(f"{text} may name a folder, and a source is a whole repository: give {whole}")
    return f"github:{'@'.join([found.repository, *found.rest])}"


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
