"""The commands that read one skill: show and diff."""

from __future__ import annotations

import sys
from typing import Annotated

from typer import Argument, Option

from flows.cli.options import JsonOption, RootOption, print_json, root_of
from flows.cli.printing.skill import print_differences, print_skill
from flows.commands.console import say_text
from flows.settings import load_settings
from storage.errors import WrongInput

DocIdArgument = Annotated[str, Argument(metavar="DOC_ID", help="A skill's id, the end of it, or its name.")]


def show(
    doc_id: DocIdArgument,
    file: Annotated[str | None, Option(metavar="PATH", help="Print this file of its folder instead.")] = None,
    raw: Annotated[
        bool, Option("--raw", help="Print SKILL.md, or the file, as it is: bytes, keys redacted.")
    ] = False,
    revision: Annotated[
        str | None, Option(metavar="HASH", help="As it was: a hash, a commit, a day or a run.")
    ] = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a skill: its front matter, origin, licence, risks, findings and files."""
    from tasks.retrieve.revisions import show as revisions  # noqa: PLC0415
    from tasks.retrieve.revisions.edition import SKILL_FILE  # noqa: PLC0415

    if raw and as_json:
        raise WrongInput("--raw and --json are two forms of one answer: give one of them")
    place = root_of(load_settings(), root)
    edition, alias = revisions.open_edition(place, doc_id, revision)
    if raw:
        sys.stdout.buffer.write(edition.read(SKILL_FILE if file is None else file))
        sys.stdout.buffer.flush()
    elif file is not None:
        content = revisions.file_of(edition, file)
        print_json(content) if as_json else say_text(revisions.require_text(content))
    else:
        found = revisions.shown(edition, alias)
        print_json(found) if as_json else print_skill(found)


def diff(
    doc_id: DocIdArgument,
    a: Annotated[
        str | None,
        Argument(metavar="A", help="The earlier: a hash, a commit, a day or a run  [the one before B]"),
    ] = None,
    b: Annotated[str | None, Argument(metavar="B", help="The later  [the newest]")] = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what changed in a skill between two nights: its text, its files, its risks."""
    from tasks.retrieve.revisions.show import differences  # noqa: PLC0415

    found = differences(root_of(load_settings(), root), doc_id, a, b)
    print_json(found) if as_json else print_differences(found)
