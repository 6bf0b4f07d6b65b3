"""Helps are read in a terminal of 80 columns: whole sentences, in groups, that name what can be given."""

from __future__ import annotations

import re

import pytest
import typer

from flows.cli.helps import ASK, FILL, MEASURE, REPAIR, WATCH
from flows.cli.main import app
from tasks.crawl.sources import ACCEPTED
from tests.support.command import Ask

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
    assert {"skillsmp", "github", "git+", "dir", "parquet", "awesome", "mcp-registry", "sample"} == kinds
    assert [kind for kind in kinds if not re.search(rf"^    {re.escape(kind)}", said, re.MULTILINE)] == []
