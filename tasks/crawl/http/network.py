"""What an operator sets of the network: where services are, and how politely they are asked."""

from __future__ import annotations

from dataclasses import dataclass

from yarl import URL

from storage.root import Root
from tasks.crawl.http.client import Http
from tasks.crawl.http.politeness import Politeness, QuotaBook
from tasks.crawl.http.quota import Quota
from tasks.crawl.http.redirects import host_of
from tasks.models.retry import RetryPolicy

# What the marketplace allows a key; anonymous requests go by what it says with each answer.
_SKILLSMP_QUOTA = Quota(per_minute=30, per_day=500)


@dataclass(frozen=True, slots=True)
class Network:
    """Base URLs (scheme, host and any prefix; a mirror can stand in) and politeness.

    Args:
        skillsmp_url: The marketplace.
        github_api_url: GitHub's REST API.
        github_archive_url: Where archives of repositories come from.
        github_raw_url: Where single files come from.
        mcp_registry_url: The MCP registry.
        request_delay: Least time between two requests to one host, seconds.
        retry_wait_max: Longest wait of a retry, seconds.
        request_timeout: Longest time of one request, body included, seconds.
        concurrency: Requests under way to one host at most.
        archive_bytes: A larger archive is not read.
        recheck_days: A repository that was not looked at for so long is looked at again.
        sweep_keywords: Keywords asked for a night where the marketplace does not list all it has.
    """

    skillsmp_url: str = "https://skillsmp.com"
    github_api_url: str = "https://api.github.com"
    github_archive_url: str = "https://codeload.github.com"
    github_raw_url: str = "https://raw.githubusercontent.com"
    mcp_registry_url: str = "https://registry.modelcontextprotocol.io"
    request_delay: float = 1.0
    retry_wait_max: float = 10.0
    request_timeout: float = 120.0
    concurrency: int = 4
    archive_bytes: int = 50_000_000
    recheck_days: float = 7.0
    sweep_keywords: int = 3

    def open(self, root: Root) -> Http:
        """Return a client, to be used in an `async with`; what hosts said of quotas is kept below `root`."""
        forge = (self.github_api_url, self.github_archive_url, self.github_raw_url)
        politeness = Politeness(
            delay=self.request_delay,
            concurrency=self.concurrency,
            retry=RetryPolicy(wait_min=min(1.0, self.retry_wait_max), wait_max=self.retry_wait_max),
            redirect_hosts=frozenset(host_of(URL(url)) for url in forge),
            token_quotas={host_of(URL(self.skillsmp_url)): _SKILLSMP_QUOTA},
            timeout=self.request_timeout,
        )
        return Http(politeness, QuotaBook(root))
