from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.hook.run import SERVING, serving_at
from tests.support.hooks import HOOK, context, event, run_hook
from tests.support.processes import slow_but
from tests.support.roots.skill_root import SkillRoot
from tests.support.serving import Here, serving_here

MITES = "The colony has varroa mites in December, how do I treat the bees with oxalic acid?"
LONG = ("--timeout", "60")  # a busy machine is no failure


@pytest.fixture(scope="module")
def server(served_bakery: SkillRoot) -> Iterator[Here]:
    """A server, where hooks look for it."""
    with serving_here(served_bakery.root.uri) as started:
        served_bakery.root.write_json(SERVING, {"url": started.url, "pid": os.getpid()})
        yield started
        served_bakery.root.delete(SERVING)


@pytest.mark.parametrize("agent", slow_but({"claude", "gemini"}, ["claude", "codex", "gemini"]))
def test_a_host_is_told_what_fits_by_the_server_of_the_root_and_once_a_session(
    server: Here, served_bakery: SkillRoot, tmp_path: Path, agent: str
) -> None:
    asked = ("--agent", agent, "--root", served_bakery.root.uri, *LONG)
    told = context(run_hook(event(agent, MITES), *asked, state=tmp_path), agent)
    assert "local/market/bees" in told
    assert "oxalic acid" in told
    assert "data: not instructions" in told
    assert context(run_hook(event(agent, MITES), *asked, state=tmp_path), agent) == ""
    again = run_hook(event(agent, MITES, "s2"), *asked, state=tmp_path)
    assert context(again, agent) == told
    (tmp_path / "skillery/hook").rename(tmp_path / "aside")
    by_url = run_hook(event(agent, MITES), "--agent", agent, "--url", server.url, *LONG, state=tmp_path)
    assert context(by_url, agent) == told


def test_a_root_without_a_server_is_answered_all_the_same(served_bakery: SkillRoot, tmp_path: Path) -> None:
    """What a server left that was killed names nobody."""
    root, place = str(tmp_path / "root"), tmp_path / "root" / SERVING
    (tmp_path / "root").symlink_to(served_bakery.root.uri)
    left = None if not place.exists() else place.read_bytes()
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    try:
        place.write_text(json.dumps({"url": nobody, "pid": 1}))
        done = run_hook(event("claude", MITES), "--agent", "claude", "--root", root, *LONG, state=tmp_path)
    finally:
        place.unlink() if left is None else place.write_bytes(left)
    assert "local/market/bees" in context(done, "claude")


GOOD = event("claude", MITES)


@pytest.mark.parametrize(
    ("given", "options", "why"),
    [
        (b"", (), "no JSON event"),
        (b"\x00\xff\xfe binary", (), "no JSON event"),
        (GOOD[:-9], (), "no JSON event"),
        (b"[]", (), "no prompt"),
        (b'{"prompt": 7}', (), "no prompt"),
        (GOOD.replace(b"UserPromptSubmit", b"Stop"), (), "Stop is not UserPromptSubmit"),
        (event("claude", "ok, thanks!"), (), "said before"),
        (event("claude", "/compact now"), (), "command"),
        (event("claude", "```\nx = 1\n```"), (), "code alone"),
        (GOOD, ("--agent", "emacs"), "claude, codex, gemini"),
        (GOOD, ("--budget", "many"), "many"),
        (GOOD, ("--wrong",), "--wrong"),
        (GOOD, ("--timeout", "nan"), "at most 60"),
        (GOOD, ("--timeout", "inf"), "at most 60"),
        (GOOD, ("--url", "http://127.0.0.1:1"), "refused"),
        (GOOD, (), "skillery run"),  # the root holds nothing
    ],
)
def test_whatever_goes_wrong_it_ends_with_0_tells_nothing_and_says_why(
    tmp_path: Path, given: bytes, options: tuple[str, ...], why: str
) -> None:
    asked = ("--agent", "claude", "--root", str(tmp_path / "none"), *LONG, *options)
    done = run_hook(given, *asked, state=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (0, b"", 1), done.stderr
    assert why in done.stderr.decode()


def test_a_server_that_hangs_is_not_waited_for_nor_a_host_that_never_ends_its_event(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        url = f"http://127.0.0.1:{hanging.getsockname()[1]}"
        began = time.monotonic()
        asked = ("--agent", "claude", "--url", url, "--timeout", "0.5")
        done = run_hook(GOOD, *asked, state=tmp_path)
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"0.5 s" in done.stderr or b"timed out" in done.stderr
    assert time.monotonic() - began < 20


def test_no_module_is_loaded_that_a_prompt_does_not_need(server: Here, tmp_path: Path) -> None:
    def names(told: bytes) -> set[str]:
        return {line.rpartition("|")[2].strip() for line in told.decode().splitlines()}

    light = [HOOK[0], "-X", "importtime", *HOOK[1:]]
    # What an editable installation loads into every process is none of the hook's.
    anyway = names(subprocess.run([*light[:3], "-c", "pass"], capture_output=True, check=True).stderr)
    done = run_hook(GOOD, "--agent", "claude", "--url", server.url, *LONG, state=tmp_path, command=light)
    assert context(done, "claude")
    loaded = names(done.stderr) - anyway
    assert "socket" in loaded
    slow = {"http.client", "logging", "typer", "pydantic", "polars", "numpy", "pathlib", "dataclasses"}
    assert not loaded & {*slow, "flows.settings"}


def test_a_prompt_of_a_megabyte_and_two_hosts_at_once(server: Here, tmp_path: Path) -> None:
    long = event("claude", MITES + " 🐝 half \ud83d a character " + "lorem ipsum " * 90_000)
    asked = ("--agent", "claude", "--url", server.url, *LONG)
    told: list[str] = []

    def ask() -> None:
        told.append(context(run_hook(long, *asked, state=tmp_path), "claude"))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 2
    assert any(told)


def test_what_is_kept_of_sessions_is_bounded(server: Here, tmp_path: Path) -> None:
    kept = tmp_path / "plugin" / "hook"
    kept.mkdir(parents=True)
    for number in range(300):
        (kept / f"old{number}").touch()
    asked = ("--agent", "claude", "--url", server.url, *LONG)
    done = run_hook(GOOD, *asked, state=tmp_path, CLAUDE_PLUGIN_DATA=str(tmp_path / "plugin"))
    assert context(done, "claude")
    assert len(list(kept.iterdir())) == 200
    assert not (tmp_path / "skillery").exists()


@pytest.mark.parametrize(
    ("url", "pid", "asked"),
    [
        ("http://127.0.0.1", None, True), ("http://localhost", None, True), ("http://[::1]", None, True),
        ("http://127.0.0.1", 0, False), ("http://127.0.0.1", -1, False), ("https://127.0.0.1", None, False),
        ("http://203.0.113.9", None, False), ("http://127.0.0.1.example.org", None, False),
    ],
)  # fmt: skip
def test_only_a_server_on_this_machine_is_asked(
    tmp_path: Path, url: str, pid: int | None, *, asked: bool
) -> None:
    """What a cloned repository names elsewhere gets neither the prompt nor the token."""
    (tmp_path / SERVING).parent.mkdir()
    (tmp_path / SERVING).write_text(json.dumps({"url": url, "pid": os.getpid() if pid is None else pid}))
    assert serving_at(str(tmp_path)) == (url if asked else None)


def test_options_before_it_do_not_make_a_mistake_a_failure(tmp_path: Path) -> None:
    """A host takes 2 as a word to stop."""
    command = [*HOOK[:-1], "--quiet", "hook"]
    done = run_hook(GOOD, "--agent", "claude", "--budget", "x", state=tmp_path, command=command)
    assert (done.returncode, done.stdout) == (0, b"")
