"""A user's mistakes and failures end with one line that names the input and the remedy."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from flows.cli.exits import run_to_exit
from flows.cli.helps import ASK, FILL, MEASURE, REPAIR, WATCH
from flows.cli.main import app
from tasks.crawl.sources import ACCEPTED
from tests.support.command import Ask, skillery
from tests.support.loopback import loopback_hub
from tests.support.paths import PROJECT
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import SkillRoot


def words(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if line and "| INFO" not in line]


def test_a_wrong_address_of_prefect_is_one_line(tmp_path: Path) -> None:
    done = skillery("run", "--root", str(tmp_path / "root"), PREFECT_API_URL="http://127.0.0.1:9/api")
    [said] = words(done)
    assert done.returncode == 1
    assert "PREFECT_API_URL is http://127.0.0.1:9/api, and no server answers there" in said


def test_a_wrong_encoder_is_one_line_before_anything_starts(tmp_path: Path) -> None:
    with loopback_hub([]) as hub:
        done = skillery(
            "run", "--root", str(tmp_path / "root"), SKILLERY_ENCODER="no/such-model", HF_ENDPOINT=hub
        )
    assert (done.returncode, done.stdout) == (2, "")
    [said] = done.stderr.splitlines()
    assert said.startswith("skillery: SKILLERY_ENCODER=no/such-model: model 'no/such-model' is no folder")
    assert not (tmp_path / "root").exists()


def test_a_quiet_run_prints_its_record_and_the_warnings_alone(tmp_path: Path) -> None:
    skill = tmp_path / "skills" / "bees" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: bees\ndescription: Keep bees.\n---\n" + SKILLS["bees"], "utf-8")
    sources = ["--source", f"dir:{tmp_path / 'skills'}", "--source", "dir:/no/such/folder"]
    done = skillery("run", *sources, "--quiet", "--root", str(tmp_path / "root"))
    assert done.returncode == 0
    assert done.stdout.startswith("run ")
    assert done.stderr.splitlines() == words(done)  # no line of progress
    assert any("/no/such/folder" in line for line in words(done))


@pytest.mark.parametrize("command", [["run"], ["doctor"], ["rollback"], ["forget", "bees", "--yes"]])
def test_a_root_that_cannot_be_written_is_one_line(tmp_path: Path, command: list[str], ask: Ask) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    done = ask(*command, "--root", str(file / "below"))
    assert done.code in (1, 2)
    [said] = done.stderr.splitlines()
    assert str(file) in said


def test_a_damaged_table_is_one_line_with_the_remedy(
    ask: Ask, skill_root: Callable[[dict[str, str]], SkillRoot]
) -> None:
    root = skill_root(SKILLS)
    root.publish()
    for file in Path(root.root.at("lance")).glob("*.lance/data/*"):
        file.write_bytes(b"")
    found = ask("search", "keep bees", "--root", root.root.uri)
    done = ask("page", "bees", "keep bees", "--root", root.root.uri)
    assert found.code == 0  # it reads no table
    assert done.code == 1
    [said] = done.stderr.splitlines()
    assert f"`skillery doctor --root {root.root.uri}` repairs it" in said


FULL = OSError(errno.ENOSPC, "No space left on device", "/data/root/documents/part-00.parquet")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ZeroDivisionError("division by zero\nand more"), "ZeroDivisionError: division by zero (--debug"),
        (FULL, "/data/root/documents/part-00.parquet: No space left on device: make room on that disk"),
        (OSError(errno.ENOSPC, FULL.strerror), "No space left on device: make room on that disk"),
    ],
)
def test_an_error_that_nobody_foresaw_is_one_line_and_its_stack_is_shown_on_request(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = typer.Typer()

    @app.command()
    def fail() -> None:
        raise error

    before = signal.getsignal(signal.SIGINT)
    try:
        monkeypatch.setattr(sys, "argv", ["skillery"])
        with pytest.raises(SystemExit) as ended:
            run_to_exit(app)
        assert ended.value.code == 1
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"skillery: {said}")
        monkeypatch.setenv("SKILLERY_DEBUG", "1")
        with pytest.raises(type(error)):
            run_to_exit(app)
    finally:
        signal.signal(signal.SIGINT, before)


_INTERRUPTED = """
import os, signal, threading, time, typer
from flows.cli.exits import run_to_exit
from tasks.refine.workers import batch_processes

app = typer.Typer()

@app.command()
def wraps() -> None:
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt as error:
        raise ValueError("cannot be written") from error

@app.command()
def run() -> None:
    try:
        wraps()
    except ValueError:
        raise typer.Exit(1)

@app.command()
def swallows() -> None:
    with batch_processes(9, 2) as executor:
        print(executor.submit(os.getpid).result(), flush=True)
        executor.submit(time.sleep, 600)
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            pass
        signal.raise_signal(signal.SIGINT)

@app.command()
def waits() -> None:
    def tell_another_thread() -> None:
        time.sleep(0.1)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    threading.Thread(target=tell_another_thread).start()
    threading.Event().wait()

@app.command()
def handles_another() -> None:
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.raise_signal(signal.SIGTERM)
    time.sleep(0.6)

if __name__ == "__main__":
    run_to_exit(app)
"""


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("wraps", 130, "skillery: interrupted\n"),
        ("run", 130, "skillery: interrupted; a later run picks up where this one was\n"),
        ("swallows", 130, "skillery: interrupted\n"),
        ("waits", 130, "skillery: interrupted\n"),
        ("handles-another", 0, ""),
    ],
)
def test_ctrl_c_and_no_other_signal_ends_a_command_and_its_processes_whatever_a_library_makes_of_it(
    command: str, code: int, said: str, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(_INTERRUPTED, "utf-8")
    done = subprocess.run(
        [sys.executable, script, command], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT)}, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (code, said)
    assert not [pid for pid in done.stdout.split() if Path(f"/proc/{pid}/status").exists()]


_LOADING = """
import signal, sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == "polars":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from flows.cli.start import main
main()
"""


def test_ctrl_c_while_the_command_loads_is_one_line_too() -> None:
    done = subprocess.run([sys.executable, "-c", _LOADING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "skillery: interrupted\n")


def test_the_version_and_the_short_help_are_told(ask: Ask) -> None:
    assert ask("--version").stdout.startswith("skillery ")
    assert "Usage" in ask("page", "-h").stdout


def test_what_a_person_must_know_of_a_page_is_said_on_stderr(ask: Ask, served_bakery: SkillRoot) -> None:
    at = ["--root", served_bakery.root.uri]
    done = ask("page", "local/market/bees", "zzzz qqqq", "--budget", "2", "--markdown", *at)
    assert "no part fits 2 tokens: this is the best one, of" in done.stderr
    assert "no word of the request stands in this skill" in done.stderr
    assert "no part" not in done.stdout


def test_a_misspelt_setting_is_named_with_the_one_meant(
    ask: Ask, served_bakery: SkillRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLERY_QUERY_THREAD", "2")
    monkeypatch.setenv("SKILLERY_TRAINING_EPOCHS", "1")  # of another class of settings
    done = ask("search", "bees", "--root", served_bakery.root.uri)
    assert done.code == 0
    [said] = done.stderr.splitlines()
    assert said.startswith("SKILLERY_QUERY_THREAD is no setting: SKILLERY_QUERY_THREADS is")


MAIN = typer.main.get_command(app)
GROUPS = {name: group.commands for name, group in MAIN.commands.items() if hasattr(group, "commands")}
EVERY = [[], *([name] for name in MAIN.commands), *([g, n] for g, inner in GROUPS.items() for n in inner)]


@pytest.mark.parametrize("command", EVERY, ids=" ".join)
def test_every_help_fits_80_columns_and_names_no_type_of_python(
    command: list[str], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = ask(*command, "--help").stdout
    assert [line for line in said.splitlines() if len(line) > 80] == []
    assert re.findall(r"<list\[\w+\]>|<int range>|--\S+ <str>|\w\.\.\.$", said, re.MULTILINE) == []


def test_commands_stand_in_groups_with_their_whole_sentences(ask: Ask) -> None:
    said = ask("--help").stdout
    places = [said.index(f"\n{group}:\n") for group in (ASK, FILL, REPAIR, WATCH, MEASURE)]
    assert places == sorted(places)
    words = " ".join(said.split())
    for name, command in MAIN.commands.items():
        sentence = " ".join(command.help.partition("\n\n")[0].split())
        assert sentence.endswith(".")
        assert f"{name} {sentence}" in words


def test_the_help_of_run_names_every_form_of_a_source(ask: Ask) -> None:
    said = ask("run", "--help").stdout
    kinds = {re.split(r"[\[:U]", form)[0] for form in ACCEPTED.split(", ")}
    assert kinds == {
        "skillsmp", "github", "git+", "dir", "parquet", "awesome", "mcp-registry", "sample",
        "well-known", "marketplace", "clawhub", "skillssh", "mcp",
    }  # fmt: skip
    assert [kind for kind in kinds if not re.search(rf"^    {re.escape(kind)}", said, re.MULTILINE)] == []


@pytest.mark.parametrize(
    ("command", "setting", "said"),
    [
        ("train pairs --corpus a --out b", None, "`train pairs` was deleted: `skillery train routing`"),
        ("evaluate look-alikes", None, "`evaluate look-alikes` was deleted: near copies are folded"),
        ("bench compose --llm --out b", None, "--llm of `bench compose` was deleted"),
        ("status", "SKILLERY_ENCODER_PRECISION", "SKILLERY_ENCODER_PRECISION was deleted: leave it out"),
        ("status", "SKILLERY_INDUCE_CHROMIUM", "SKILLERY_INDUCE_CHROMIUM was deleted: name the browser"),
        ("status", "SKILLERY_TRAINING_DISTILLED", "SKILLERY_TRAINING_DISTILLED was deleted: leave it out"),
    ],
)
def test_what_was_deleted_ends_with_2_and_says_what_to_use(
    command: str, setting: str | None, said: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    if setting is not None:
        monkeypatch.setenv(setting, "1")
    assert said in ask.refused(*command.split())
