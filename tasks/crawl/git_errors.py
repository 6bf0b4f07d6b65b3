"""What git says when it fails, in our words, told apart by whether trying again can help."""

from __future__ import annotations

import re

from storage.errors import SourceError, SourceUnavailable

PROTOCOLS = ("file", "git", "http", "https", "ssh")

# git's words, our reason, what to do. What is not listed may pass: time-outs, cut connections, busy servers.
_TERMINAL = (
    (r"couldn't find remote ref|not our ref|unadvertised object|FETCH_HEAD", "missing-ref",
     "there is no such branch, tag or full commit id, or it has no commits; check the part after @"),
    (r"not appear to be a git repository", "not-a-repository", "this is no git repository; check the URL"),
    (r"[Rr]epository .*not found|not exported|could not read (Username|Password)", "missing",
     "there is no such repository, or it needs credentials; check the URL"),
    (r"Authentication failed|Permission denied|error: 40[13]", "denied", "the server refuses access"),
    (r"Host key verification failed", "host-key", "the server's SSH key is not known; add it to known_hosts"),
    (r"dubious ownership", "ownership", "this folder belongs to another user; run as its owner"),
    (r"transport '.*' not allowed", "protocol", f"the transport must be one of {', '.join(PROTOCOLS)}"),
    (r"does not support shallow", "transport", "the server speaks no smart HTTP; crawl a mirror of it"),
    (r"mismatched algorithms", "object-format", "only repositories with SHA-1 object ids can be read"),
)  # fmt: skip


def explain(source: str, command: str, words: str, timeout: float | None) -> SourceError | SourceUnavailable:
    """Return the error to raise for a failed git command.

    Args:
        source: The spec that the error carries.
        command: The git command, such as `fetch`.
        words: What it wrote to standard error, credentials hidden.
        timeout: Seconds that it had.
    """
    if "Timeout: the command" in words:
        detail = f"git {command} took over {timeout:g} s; try again, or raise the limit"
        return SourceUnavailable(source, "timeout", detail)
    for pattern, reason, advice in _TERMINAL:
        if re.search(pattern, words):
            return SourceError(source, reason, advice)
    said = " ".join(words.split()).removeprefix("stderr: ").strip("'")
    return SourceUnavailable(source, "git", f"git {command} failed: {said[:300]}")
