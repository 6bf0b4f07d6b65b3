"""How each service behaves; every field may be set while it serves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

TimeForm: TypeAlias = Literal["text", "int", "float", "ms", "iso", "rotating"]
HasNext: TypeAlias = Literal["honest", "always", "never"]
Envelope: TypeAlias = Literal["nested", "flat", "bare"]


@dataclass(slots=True)
class SkillsMPSettings:
    """The marketplace's quirks; where None or 0 stands, there is none."""

    listing_times: TimeForm = "text"
    search_times: TimeForm = "int"
    # Every n-th row has null for description, author and stars; every n-th has its stars as `1.2k`; no URL.
    nulls_every: int = 0
    written_stars_every: int = 0
    no_url_every: int = 0
    routes: bool = False
    most_rows: int = 100
    listing_depth: int | None = None
    search_depth: int | None = 5_000
    has_next: HasNext = "honest"
    unstable_ties: bool = False
    search_envelope: Envelope = "nested"
    # The page of a challenge instead of JSON, on the endpoints named here, with this status.
    html_wall: frozenset[Literal["listing", "search"]] = frozenset()
    html_status: int = 403
    missing: frozenset[Literal["listing", "search"]] = frozenset()
    key_required: bool = False
    # None: every key is as good as another.
    keys: frozenset[str] | None = None
    # A day and a minute, of the search endpoint; the recorded figures are 50 and 10, with a key 500 and 30.
    anonymous_quota: tuple[int, int] | None = None
    key_quota: tuple[int, int] | None = None
    minute_code: str | None = "RATE_LIMIT_EXCEEDED"
    retry_after: int | None = None
    # Called with the number of a page before it is made up: what it changes, the page already shows.
    before_page: Callable[[int], None] | None = None


@dataclass(slots=True)
class GitHubSettings:
    """Limits of the API an hour, and where it stops telling everything."""

    anonymous_limit: int = 60
    token_limit: int = 5_000
    window_seconds: int = 3_600
    limit_status: int = 403
    # None: every token is as good as another.
    tokens: frozenset[str] | None = None
    tree_entries: int = 100_000
    commits_route: bool = True
    # Whether archives and raw files under an old name lead to the new one, or are missing.
    files_follow_renames: bool = True
    # Whether archives are sent with their length, or in chunks.
    archive_lengths: bool = True


@dataclass(slots=True)
class RegistrySettings:
    """How the registry writes its cursor, and its page sizes."""

    cursor_key: Literal["nextCursor", "next_cursor"] = "nextCursor"
    last_cursor: Literal["null", "empty", "absent"] = "null"
    default_limit: int = 30
    most_rows: int = 100
