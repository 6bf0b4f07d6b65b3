"""What a source is, and which source an operator's spec names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from storage.errors import WrongInput
from storage.schemas import Dropped, RawDocument
from tasks.crawl.content import Limits
from tasks.crawl.directory import DirectorySource
from tasks.crawl.git import GitSource, split_ref
from tasks.crawl.identity import hide_credentials, parse_remote
from tasks.crawl.parquet_file import ParquetSource

ACCEPTED = "git+URL[@REF], dir:PATH, parquet:PATH, sample"
SAMPLE = "sample"  # the marketplace that comes with the package


class Source(Protocol):
    """Somewhere skills come from; nothing is touched before one of its methods is called."""

    @property
    def spec(self) -> str:
        """The spec, without credentials, as every row of this source carries it."""

    def version(self) -> str | None:
        """Return a cheap digest of the source's present state, None when it cannot be told cheaply.

        Raises:
            SourceError: It cannot be read.
            SourceUnavailable: It could not be looked at this time.
        """

    def read(self) -> Iterator[RawDocument | Dropped]:
        """Yield documents and what is not taken, lazily, in the source's own stable order.

        Raises as `version` does.
        """


def parse_spec(spec: str, *, max_document_bytes: int = 2_000_000, git_timeout: float = 300.0) -> Source:
    """Return the source that a spec names, without touching it.

    Only an operator's spec may come here: local paths, `file://` and SSH are allowed.

    Args:
        spec: One of the forms in `ACCEPTED`.
        max_document_bytes: A longer SKILL.md is recorded without its content.
        git_timeout: Seconds that one git command may take.

    Raises:
        WrongInput: The spec has another form; the message is one line that lists the accepted ones.
    """
    limits = Limits(document_bytes=max_document_bytes)
    makers: dict[str, Callable[[str], Source]] = {
        "git+": lambda rest: GitSource(rest, limits=limits, timeout=git_timeout),
        "dir:": lambda rest: DirectorySource(rest, limits=limits),
        "parquet:": lambda rest: ParquetSource(rest, limits=limits),
    }
    for prefix, make in makers.items():
        if spec.startswith(prefix) and len(spec) > len(prefix):
            return make(spec.removeprefix(prefix))
    raise WrongInput(f"unknown source {hide_credentials(spec)!r}; give one of: {ACCEPTED}")


def normal_spec(spec: str) -> str:
    """Return an operator's spec as it is run, remembered and printed: local paths are absolute.

    Raises:
        WrongInput: The spec has none of the forms in `ACCEPTED`, or holds a password or token, which would
            show in parameters and logs.
    """
    if spec == SAMPLE:
        return spec
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
