"""The git client: a temporary bare repository with one remote, and git's errors as those of a source."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Literal

import git
from git.exc import GitCommandError, GitCommandNotFound

from storage.errors import SourceError, SourceUnavailable
from tasks.crawl.source.bundle import Content, SourceEntry, consume
from tasks.crawl.source.identity import hide_credentials

os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")  # without git, other sources must still work
PROTOCOLS = ("file", "git", "http", "https", "ssh")
_NETWORK = {"GIT_ALLOW_PROTOCOL": ":".join(PROTOCOLS)}  # the environment of commands that use the remote
_CONFIG = {
    "core.hooksPath": os.devnull, "core.autocrlf": "false", "credential.helper": "", "gc.auto": "0",
    "maintenance.auto": "false", "protocol.ext.allow": "never",
    "fetch.negotiationAlgorithm": "noop",  # the repository is empty: there is nothing to negotiate
}  # fmt: skip
_PIECE, _LARGE = 1 << 16, 1 << 20  # bytes
_KINDS: dict[bytes, Literal["link", "submodule"]] = {b"120000": "link", b"160000": "submodule"}
_FOLDER = b"040000"
# A pattern of git's words, the reason, the advice. Other errors may pass: time-outs, cut connections.
_TERMINAL = (
    (r"couldn't find remote ref|not our ref|unadvertised object|FETCH_HEAD", "missing-ref",
     "there is no such branch, tag or full commit id, or it has no commits; check the part after @"),
    (r"not appear to be a git repository", "not-a-repository", "this is no git repository; check the URL"),
    (r"[Rr]epository .*not found|not exported|could not read (Username|Password)", "missing",
     "there is no such repository, or it needs credentials; check the URL"),
    (r"Authentication failed|Permission denied|error: 40[13]", "denied", "the server refuses access"),
    (r"error: 30\d", "redirect", "the server leads to another address; give that one"),
    (r"Host key verification failed", "host-key", "the server's SSH key is not known; add it to known_hosts"),
    (r"dubious ownership", "ownership", "this folder belongs to another user; run as its owner"),
    (r"transport '.*' not allowed", "protocol", f"the transport must be one of {', '.join(PROTOCOLS)}"),
    (r"does not support shallow", "transport", "the server speaks no smart HTTP; crawl a mirror of it"),
    (r"mismatched algorithms", "object-format", "only repositories with SHA-1 object ids can be read"),
)  # fmt: skip


def _environment(git_dir: Path, config: Mapping[str, str]) -> dict[str, str]:
    """Return variables that restrict git to `git_dir` and `config`, without prompts or hooks."""
    settings = list({**_CONFIG, **config}.items())
    numbered = {f"GIT_CONFIG_KEY_{i}": key for i, (key, _) in enumerate(settings)}
    numbered |= {f"GIT_CONFIG_VALUE_{i}": value for i, (_, value) in enumerate(settings)}
    ssh = f"{os.environ.get('GIT_SSH_COMMAND', 'ssh')} -oBatchMode=yes"
    return numbered | {
        "GIT_CONFIG_COUNT": str(len(settings)), "GIT_CONFIG_PARAMETERS": "",
        "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1",
        # Inherited ones, as inside a hook, would send git to another repository.
        "GIT_DIR": str(git_dir), "GIT_WORK_TREE": str(git_dir),
        "GIT_OBJECT_DIRECTORY": str(git_dir / "objects"), "GIT_ALTERNATE_OBJECT_DIRECTORIES": "",
        "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "", "SSH_ASKPASS": "", "GIT_SSH_COMMAND": ssh,
        # Only commands that name a protocol reach the network: no object is ever fetched one by one.
        "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1",
    }  # fmt: skip


def open_git(git_dir: Path, config: Mapping[str, str] | None = None) -> git.Git:
    """Return git for a bare repository, made if there is none; the user's git settings are ignored."""
    # `git init` refuses where it inherits a GIT_WORK_TREE, as inside a hook.
    for part in ("objects", "refs"):
        (git_dir / part).mkdir(parents=True, exist_ok=True)
    (git_dir / "HEAD").write_text("ref: refs/heads/main\n")
    if not (git_dir / "config").exists():
        (git_dir / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n")
    found = git.Git(str(git_dir))
    found.update_environment(**_environment(git_dir.resolve(), config or {}))
    return found


def run_git(
    repository: git.Git, *arguments: str, source: str, timeout: float | None = None,
    env: Mapping[str, str] | None = None, istream: BinaryIO | None = None, url: str = "",
) -> bytes:  # fmt: skip
    """Run one git command, for at most `timeout` seconds, and return its output.

    Raises:
        SourceError: It failed for good; the message hides the credentials of `url`.
        SourceUnavailable: It failed, or took too long, and may succeed later.
    """
    output = BytesIO()
    try:
        # Without an output stream GitPython leaves its timer running at Ctrl-C, and the process waits for it.
        command = ["git", *arguments]
        repository.execute(
            command, env=env, istream=istream, output_stream=output, kill_after_timeout=timeout
        )
    except GitCommandNotFound:
        raise SourceError(source, "no-git", "git is not installed; install it") from None
    except GitCommandError as error:
        # `from None`, since git's own words may hold the password.
        words = hide_credentials(str(error.stderr), url)
        raise _error(source, arguments[0], words, timeout) from None
    return output.getvalue()


def _error(source: str, command: str, words: str, timeout: float | None) -> SourceError | SourceUnavailable:
    """Return the error of a git command that wrote `words`, credentials hidden, to standard error."""
    if "Timeout: the command" in words:
        detail = f"git {command} took over {timeout:g} s; try again, or raise the limit"
        return SourceUnavailable(source, "timeout", detail)
    for pattern, reason, advice in _TERMINAL:
        if re.search(pattern, words):
            return SourceError(source, reason, advice)
    line = " ".join(words.split()).removeprefix("stderr: ").strip("'")
    return SourceUnavailable(source, "git", f"git {command} failed: {line[:300]}")


class GitClient:
    """A remote repository of which only the requested objects are fetched; to be used in a `with`.

    The URL's credentials stay out of arguments, files and messages. A command may take `timeout` seconds.
    """

    def __init__(self, url: str, source: str, *, timeout: float, redirects: bool = True) -> None:
        self._source, self._timeout = source, timeout
        self._missing: set[str] = set()
        self._read: dict[tuple[str, int], Content] = {}  # of large objects, the first bytes that were kept
        self._folder = tempfile.TemporaryDirectory(prefix="skillery-git-", ignore_cleanup_errors=True)
        config = {"remote.origin.url": url} | ({} if redirects else {"http.followRedirects": "false"})
        self._git = open_git(Path(self._folder.name), config)
        self._run = partial(run_git, self._git, source=source, timeout=timeout, url=url)

    def __enter__(self) -> GitClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._git.clear_cache()
        self._folder.cleanup()

    def commit_of(self, ref: str) -> str:
        """Return the commit that a branch, a tag or HEAD names on the remote now; tags are dereferenced."""
        names = [ref, f"refs/{ref}", f"refs/tags/{ref}", f"refs/heads/{ref}"]
        listed = self._run("ls-remote", "origin", ref, f"{ref}^{{}}", env=_NETWORK).decode()
        found = {name: commit for commit, name in (line.split("\t") for line in listed.splitlines())}
        name = next((name for name in names if name in found), None)
        if name is None:
            raise _error(self._source, "ls-remote", "couldn't find remote ref", self._timeout)
        return found.get(f"{name}^{{}}", found[name])

    def fetch(self, ref: str) -> str:
        """Fetch the commit of a branch, a tag, a full commit id or HEAD with its trees, and return its id."""
        options = ["--quiet", "--depth=1", "--no-tags", "--filter=blob:none"]
        self._run("fetch", *options, "origin", ref, env=_NETWORK)
        commit = self._run("rev-parse", "--verify", "FETCH_HEAD^{commit}").decode().strip()
        # A server without filters sends everything, so the missing objects must be asked for.
        objects = self._run("rev-list", "--objects", "--no-object-names", "--missing=print", commit)
        self._missing = {line[1:] for line in objects.decode().split() if line.startswith("?")}
        return commit

    def fetch_blobs(self, blobs: Iterable[str], ref: str) -> None:
        """Fetch the blobs that are not here yet with one command; `ref` is where they were seen."""
        lacking = sorted(self._missing.intersection(blobs))
        if not lacking:
            return
        try:
            self._fetch_objects(lacking)
            self._missing.difference_update(lacking)
        except SourceError as error:
            if error.reason != "missing-ref":
                raise
            # Servers of the old protocol can filter, but send no object by its id.
            options = ["--quiet", "--refetch", "--depth=1", "--no-tags", "--no-filter"]
            self._run("fetch", *options, "origin", ref, env=_NETWORK)
            self._missing.clear()

    def _fetch_objects(self, blobs: list[str]) -> None:
        options = ["--quiet", "--no-tags", "--no-write-fetch-head", "--filter=blob:none", "--stdin"]
        self._run_on(blobs, "fetch", *options, "origin", env=_NETWORK)

    def _run_on(self, blobs: list[str], *command: str, **options: Any) -> bytes:  # noqa: ANN401 (of run_git)
        """Run a command that is told the ids of objects."""
        with tempfile.TemporaryFile() as names:
            names.write("".join(f"{blob}\n" for blob in blobs).encode())
            names.seek(0)
            return self._run(*command, istream=names, **options)

    def entries(self, commit: str, most: int) -> tuple[list[SourceEntry], dict[str, str]]:
        """Return every path of a commit except folders, and the tree id of every folder (the root: empty).

        More than `most`, folders included, are a SourceError `too-many-paths`.
        """
        trees = {"": self._run("rev-parse", f"{commit}^{{tree}}").decode().strip()}
        entries = []
        for line in self._paths(commit, most):
            meta, _, name = line.partition(b"\t")
            mode, _, key = meta.split()
            path = name.decode("utf-8", errors="replace")
            if mode == _FOLDER:
                trees[path] = key.decode()
            else:
                entries.append(SourceEntry(path, _KINDS.get(mode, "file"), key.decode()))
        return entries, trees

    def _paths(self, commit: str, most: int) -> list[bytes]:
        """Return the lines of `git ls-tree`; a dozen trees that hold each other can stand for 10^9 paths."""
        command = ["git", "ls-tree", "-r", "-t", "-z", "--full-tree", commit]
        listing = self._git.execute(command, as_process=True)  # ends the process when it is collected
        process: Any = listing.proc
        pieces, left = [], most
        with process:
            while piece := process.stdout.read(_PIECE):
                pieces.append(piece)
                left -= piece.count(b"\0")
                if left < 0:
                    process.kill()
                    detail = f"the commit has more than {most:,} paths; see SKILLERY_MAX_REPOSITORY_PATHS"
                    raise SourceError(self._source, "too-many-paths", detail)
        if process.returncode:
            raise SourceUnavailable(self._source, "git", f"git ls-tree failed ({process.returncode})")
        return b"".join(pieces).split(b"\0")[:-1]

    def sizes(self, blobs: Iterable[str]) -> dict[str, int]:
        """Return the bytes of each object, 0 where it is not here; none is read."""
        asked = list(dict.fromkeys(blobs))
        lines = self._run_on(asked, "cat-file", "--batch-check=%(objectsize)").decode().splitlines()
        return {blob: int(line) if line.isdigit() else 0 for blob, line in zip(asked, lines, strict=True)}

    def read(self, blob: str, keep: int) -> Content:
        """Read an object, or raise OSError if it is not here."""
        if (known := self._read.get((blob, keep))) is not None:
            return known
        try:
            stream = self._git.stream_object_data(blob)[3]
        except ValueError as error:
            self._git.clear_cache()  # git exits at a missing object, since it may not fetch it
            raise OSError(f"the server did not send object {blob}") from error
        content = consume(iter(partial(stream.read, _PIECE), b""), keep)
        # Many folders may hold one object. One whose bytes are all kept costs as much to keep as to read.
        if content.size > max(_LARGE, keep):
            self._read[blob, keep] = content
        return content
