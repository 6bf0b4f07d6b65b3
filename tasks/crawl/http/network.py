"""The network settings of an operator: the URLs of services, and how politely they are asked."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from yarl import URL

from storage.root import Root
from tasks.crawl.http.client import Http
from tasks.crawl.http.errors import HttpTerminal
from tasks.crawl.http.politeness import Politeness, QuotaBook, service_of
from tasks.crawl.http.quota import Quota
from tasks.crawl.http.redirects import host_of, web_url
from tasks.models.retry import RetryPolicy

# The marketplace's quota of a key. It states the quota of anonymous clients with each answer.
_SKILLSMP_QUOTA = Quota(per_minute=30, per_day=500)


@dataclass(frozen=True, slots=True)
class Network:
    """Base URLs (scheme, host and any prefix, also of a mirror) and limits of requests."""

    skillsmp_url: str = "https://skillsmp.com"
    github_api_url: str = "https://api.github.com"
    github_archive_url: str = "https://codeload.github.com"
    github_raw_url: str = "https://raw.githubusercontent.com"
    mcp_registry_url: str = "https://registry.modelcontextprotocol.io"
    request_delay: float = 1.0  # seconds, least time between two requests to one host
    retry_wait_max: float = 10.0  # seconds, longest wait before a retry
    request_timeout: float = 120.0  # seconds, longest time of one request with its body
    concurrency: int = 4  # most requests under way to one host
    archive_bytes: int = 50_000_000  # a larger archive is not read
    recheck_days: float = 7.0  # a repository is looked at again after so long
    sweep_keywords: int = 3  # searches a night, if the marketplace does not list all its skills

    def open(self, root: Root) -> Http:
        """Return a client, to be used in an `async with`; its quota book is kept below `root`."""
        forge = (self.github_api_url, self.github_archive_url, self.github_raw_url)
        services = _usable(*forge, self.skillsmp_url, self.mcp_registry_url)
        politeness = Politeness(
            delay=self.request_delay,
            concurrency=self.concurrency,
            retry=RetryPolicy(wait_min=min(1.0, self.retry_wait_max), wait_max=self.retry_wait_max),
            redirect_hosts=frozenset(map(host_of, _usable(*forge))),
            token_quotas={service_of(url): _SKILLSMP_QUOTA for url in _usable(self.skillsmp_url)},
            services=frozenset(map(service_of, services)),
            timeout=self.request_timeout,
        )
        return Http(politeness, QuotaBook(root))


def _usable(*urls: str) -> list[URL]:
    """Return the URLs that requests can be sent to; a source with another one fails by itself."""
    found = []
    for url in urls:
        with contextlib.suppress(HttpTerminal):
            found.append(web_url(url))
    return found
