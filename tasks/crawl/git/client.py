"""The git client: a temporary bare repository with one remote, and the errors of git by type."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import git
from git.exc import GitCommandError, GitCommandNotFound

from storage.errors import SourceError, SourceUnavailable
from tasks.crawl.source.bundle import TreeEntry
from tasks.crawl.source.identity import hide_credentials

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


os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")  # without git, other sources must still work

_PIECE = 1 << 16
_KINDS = {b"120000": "link", b"160000": "submodule", b"040000": "folder"}


def _environment(git_dir: Path, config: Mapping[str, str]) -> dict[str, str]:
    """Return variables under which git knows only `git_dir` and `config`, asks nobody and runs no hook."""
    fixed = {
        "core.hooksPath": os.devnull,
        "core.autocrlf": "false",
        "credential.helper": "",
        "fetch.negotiationAlgorithm": "noop",  # there is nothing here that a server could build on
        "gc.auto": "0",
        "maintenance.auto": "false",
        "protocol.ext.allow": "never",
    }
    settings = list({**fixed, **config}.items())
    numbered = {f"GIT_CONFIG_KEY_{i}": key for i, (key, _) in enumerate(settings)}
    numbered |= {f"GIT_CONFIG_VALUE_{i}": value for i, (_, value) in enumerate(settings)}
    return numbered | {
        "GIT_CONFIG_COUNT": str(len(settings)),
        "GIT_CONFIG_PARAMETERS": "",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        # Inherited ones, as inside a hook, would send git to another repository.
        "GIT_DIR": str(git_dir),
        "GIT_WORK_TREE": str(git_dir),
        "GIT_OBJECT_DIRECTORY": str(git_dir / "objects"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": "",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS": "",
        "GIT_SSH_COMMAND": f"{os.environ.get('GIT_SSH_COMMAND', 'ssh')} -oBatchMode=yes",
        # Only commands that name a protocol reach the network: no object is ever fetched one by one.
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_LAZY_FETCH": "1",
    }


def open_git(git_dir: Path, config: Mapping[str, str] | None = None) -> git.Git:
    """Return git for a bare repository, made where there is none, with no settings but `config` and ours."""
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
    repository: git.Git,
    *arguments: str,
    source: str,
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
    istream: BinaryIO | None = None,
    url: str = "",
) -> bytes:
    """Run one git command and return what it wrote.

    Args:
        repository: What `open_git` returned.
        arguments: The command and its arguments.
        source: What errors name.
        timeout: Seconds it may take; None for any number.
        env: Further variables.
        istream: A file that it reads.
        url: A URL whose credentials are kept out of errors.

    Raises:
        SourceError: It failed for good; without git the reason is `no-git`.
        SourceUnavailable: It failed, or took too long, and may succeed later.
    """
    output = BytesIO()
    try:
        # Without an output stream GitPython leaves its timer running at Ctrl-C, and the process waits for it.
        repository.execute(
            ["git", *arguments],
            env=env,
            istream=istream,
            output_stream=output,
            kill_after_timeout=timeout,
        )
    except GitCommandNotFound:
        raise SourceError(source, "no-git", "git is not installed; install it") from None
    except GitCommandError as error:
        # `from None`, since git's own words may hold the password.
        words = hide_credentials(str(error.stderr), url)
        raise explain(source, arguments[0], words, timeout) from None
    return output.getvalue()


class GitClient:
    """One remote repository, of which only what is asked for is fetched; use it in a `with` statement.

    Args:
        url: The remote's URL, credentials included; they stay out of arguments, files and messages.
        source: The spec that errors carry.
        timeout: Seconds that one command may take.
    """

    def __init__(self, url: str, source: str, *, timeout: float) -> None:
        self._url = url
        self._source = source
        self._timeout = timeout
        self._missing: set[str] = set()
        self._folder = tempfile.TemporaryDirectory(prefix="skillery-git-", ignore_cleanup_errors=True)
        self._git = open_git(Path(self._folder.name), {"remote.origin.url": url})

    def __enter__(self) -> GitClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._git.clear_cache()
        self._folder.cleanup()

    def commit_of(self, ref: str) -> str:
        """Return the commit that a branch, a tag or HEAD has on the remote now, tags looked through."""
        names = [ref, f"refs/{ref}", f"refs/tags/{ref}", f"refs/heads/{ref}"]
        listed = self._run("ls-remote", "origin", ref, f"{ref}^{{}}", network=True).decode()
        found = {name: commit for commit, name in (line.split("\t") for line in listed.splitlines())}
        for name in names:
            if name in found:
                return found.get(f"{name}^{{}}", found[name])
        raise explain(self._source, "ls-remote", "couldn't find remote ref", self._timeout)

    def fetch(self, ref: str) -> str:
        """Fetch the commit of a branch, a tag, a full commit id or HEAD with its trees, and return its id."""
        options = ["--quiet", "--depth=1", "--no-tags", "--filter=blob:none"]
        self._run("fetch", *options, "origin", ref, network=True)
        commit = self._run("rev-parse", "--verify", "FETCH_HEAD^{commit}").decode().strip()
        # A server without filters sends everything, so what is missing must be asked, not assumed.
        objects = self._run("rev-list", "--objects", "--no-object-names", "--missing=print", commit)
        self._missing = {line[1:] for line in objects.decode().split() if line.startswith("?")}
        return commit

    def fetch_blobs(self, blobs: Iterable[str], ref: str) -> None:
        """Fetch those of the blobs that are not here yet, all in one go; `ref` is where they were seen."""
        lacking = sorted(self._missing.intersection(blobs))
        if not lacking:
            return
        try:
            self._fetch_objects(lacking)
            self._missing.difference_update(lacking)
        except SourceError as error:
            if error.reason != "missing-ref":
                raise
            # Servers of the old protocol filter, but hand out no object by its id.
            options = ["--quiet", "--refetch", "--depth=1", "--no-tags", "--no-filter"]
            self._run("fetch", *options, "origin", ref, network=True)
            self._missing.clear()

    def _fetch_objects(self, blobs: list[str]) -> None:
        options = ["--quiet", "--no-tags", "--no-write-fetch-head", "--filter=blob:none", "--stdin"]
        with tempfile.TemporaryFile() as names:
            names.write("".join(f"{blob}\n" for blob in blobs).encode())
            names.seek(0)
            self._run("fetch", *options, "origin", network=True, istream=names)

    def entries(self, commit: str) -> tuple[list[TreeEntry], dict[str, str]]:
        """Return every path of a commit but folders, and the tree id of every folder (the root is empty)."""
        trees = {"": self._run("rev-parse", f"{commit}^{{tree}}").decode().strip()}
        entries = []
        for line in self._run("ls-tree", "-r", "-t", "-z", "--full-tree", commit).split(b"\0")[:-1]:
            meta, _, name = line.partition(b"\t")
            mode, _, key = meta.split()
            path, kind = name.decode("utf-8", errors="replace"), _KINDS.get(mode, "file")
            if kind == "folder":
                trees[path] = key.decode()
            else:
                entries.append(TreeEntry(path, kind, key.decode()))  # type: ignore[arg-type]
        return entries, trees

    def read(self, blob: str) -> Iterator[bytes]:
        """Yield an object's bytes in pieces; read them to the end before the next object.

        Raises:
            OSError: The object is not here.
        """
        try:
            stream = self._git.stream_object_data(blob)[3]
        except ValueError as error:
            self._git.clear_cache()  # git has ended, as it may not fetch what is missing
            raise OSError(f"the server did not send object {blob}") from error
        try:
            while piece := stream.read(_PIECE):
                yield piece
        finally:
            while stream.read(_PIECE):  # what nobody wanted stands before the next object
                pass

    def _run(self, *arguments: str, network: bool = False, istream: BinaryIO | None = None) -> bytes:
        return run_git(
            self._git,
            *arguments,
            source=self._source,
            timeout=self._timeout,
            env={"GIT_ALLOW_PROTOCOL": ":".join(PROTOCOLS)} if network else {},
            istream=istream,
            url=self._url,
        )
