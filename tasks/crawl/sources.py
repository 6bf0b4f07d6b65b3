"""Opens one of the sources by the spec that an operator gives; `SOURCES` is the registry of their forms."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from storage.errors import SourceError, WrongInput
from tasks.crawl.git.source import GitSource, SampleSource, normal_address
from tasks.crawl.github.source import GitHubSource, is_name, split_name
from tasks.crawl.local.directory import DirectorySource
from tasks.crawl.local.parquet_file import ParquetSource
from tasks.crawl.mcp.awesome import AwesomeListSource, normal_location
from tasks.crawl.mcp.registry import McpRegistrySource
from tasks.crawl.registries.clawhub import ClawHubSource
from tasks.crawl.registries.marketplace import MarketplaceSource, normal_marketplace
from tasks.crawl.registries.mcp_server import McpServerSource, normal_server
from tasks.crawl.registries.skills_sh import SkillsShSource
from tasks.crawl.registries.well_known import WellKnownSource, normal_url
from tasks.crawl.skillsmp.source import SkillsMPSource
from tasks.crawl.source.base import CrawlContext, Item, Source
from tasks.crawl.source.identity import SAMPLE, hide_credentials, parse_github_url, shown_spec


def _as_given(rest: str) -> str:
    return rest


def _named(name: str) -> str:
    split_name(name)
    return name


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())


@dataclass(frozen=True, slots=True)
class SourceKind:
    """One kind of source: how its specs are written, checked and opened."""

    form: str  # as help and errors show it
    open: Callable[[str, CrawlContext], Source]  # by what follows the kind in a spec
    # What follows as it is remembered and printed; raises WrongInput. None: nothing may follow.
    normal: Callable[[str], str] | None = _as_given
    alone: bool = False  # whether the kind may stand alone


# To add a source: a folder with its reader, which `source/base.py` describes, and a row here.
SOURCES = {
    "skillsmp": SourceKind("skillsmp[:QUERY]", SkillsMPSource, alone=True),
    "github": SourceKind("github:OWNER/REPO[@REF]", GitHubSource, _named),
    "git+": SourceKind(
        "git+URL[@REF]",
        lambda rest, given: GitSource(rest, limits=given.limits, timeout=given.settings.git_timeout),
        normal_address,
    ),
    "dir": SourceKind("dir:PATH", lambda rest, given: DirectorySource(rest, limits=given.limits), _absolute),
    "parquet": SourceKind(
        "parquet:PATH", lambda rest, given: ParquetSource(rest, limits=given.limits), _absolute
    ),
    "awesome": SourceKind("awesome:PATH-or-URL", AwesomeListSource, normal_location),
    "well-known": SourceKind("well-known:URL", WellKnownSource, normal_url),
    "marketplace": SourceKind("marketplace:URL|OWNER/REPO", MarketplaceSource, normal_marketplace),
    "clawhub": SourceKind("clawhub[:QUERY]", ClawHubSource, alone=True),
    "skillssh": SourceKind("skillssh:QUERY", SkillsShSource),
    "mcp": SourceKind("mcp:URL|stdio:COMMAND", McpServerSource, normal_server),
    "mcp-registry": SourceKind("mcp-registry", lambda _, given: McpRegistrySource(given), None, alone=True),
    SAMPLE: SourceKind(
        SAMPLE,
        lambda _, given: SampleSource(given.root, limits=given.limits, timeout=given.settings.git_timeout),
        None,
        alone=True,
    ),
}
ACCEPTED = ", ".join(kind.form for kind in SOURCES.values())
_ALONE = [name for name, kind in SOURCES.items() if kind.alone]
_ADDRESS = re.compile(r"\A(?:\w+://|(?:www\.)?github\.com/)")


def open_source(spec: str, context: CrawlContext) -> Source:
    """Return the source that a spec names, without touching it; an unknown form raises WrongInput."""
    name, rest = _parts(spec)
    return SOURCES[name].open(rest, context)


def remembered_source(spec: str, context: CrawlContext) -> Source:
    """Return what `open_source` does; what would not be taken today fails when it is read, and alone."""
    try:
        normal_spec(spec)
    except WrongInput as error:
        return _Refused(spec, str(error))
    return open_source(spec, context)


class _Refused(Source):
    def __init__(self, spec: str, why: str) -> None:
        self.spec, self._why = spec, why

    def read(self) -> Iterator[Item]:
        raise SourceError(shown_spec(self.spec), "refused", f"{self._why}; remove this source, and add it so")


def normal_spec(spec: str) -> str:
    """Return an operator's spec as it is run, remembered and printed: local paths are absolute.

    A path, `OWNER/REPO` and an address of GitHub become the spec that they mean.

    What has none of the forms in `ACCEPTED`, may mean several, or contains a password, which would be logged,
    is WrongInput.
    """
    spec = _meant(spec)
    name, rest = _parts(spec)
    normal = SOURCES[name].normal
    return f"{name}{'' if name.endswith('+') else ':'}{normal(rest)}" if normal and rest else spec


def _parts(spec: str) -> tuple[str, str]:
    """Return the kind of a spec, as `SOURCES` names it, and what follows it; raise WrongInput if unknown."""
    git = spec.startswith("git+")
    name, colon, rest = ("git+", ":", spec[4:]) if git else spec.partition(":")
    kind = SOURCES.get(name)
    if kind and (kind.normal and rest.strip() if colon else kind.alone):
        return name, rest
    raise WrongInput(f"unknown source {hide_credentials(spec)!r}; give one of: {ACCEPTED}")


def _meant(text: str) -> str:
    """Return the spec that a path, `OWNER/REPO[@REF]` or an address means, and any other text as it is."""
    is_path = text.startswith((".", "/", "~"))
    if _ADDRESS.match(text):
        return _address_meant(text)
    if text.startswith("git@"):
        return f"git+{text}"
    if text in _ALONE or (":" in text and not is_path):
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
