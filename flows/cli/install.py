"""The commands that install for an agent: skills in its folder, verified and kept up to date, and a hook."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from flows.cli.options import JsonOption, MinFitOption, RevisionOption, RootOption, print_json, root_of
from flows.cli.printing import skill as printing
from flows.hook.run import Options, answer_prompt
from flows.settings import load, load_settings
from storage.errors import WrongInput
from storage.root import Root
from tasks.retrieve.install.agents import FOLDERS, Destination

_ToOption = Annotated[
    Path | None, Option("--to", metavar="PATH", help="The folder of skills; comes before --agent.")
]
_AgentOption = Annotated[
    str | None,
    Option(
        "--agent",
        metavar="NAME",
        help="The folder of claude, codex or another: a wrong name lists all  [the one there is]",
    ),
]
_UserOption = Annotated[bool, Option("--user", help="The agent's folder in your home, not in the project.")]
_AcceptOption = Annotated[
    list[str] | None,
    Option("--accept-risk", metavar="RULE", help="Accept what this rule finds now; repeatable."),
]
_PublisherOption = Annotated[
    bool, Option("--accept-publisher", help="Also from another publisher than the lock names.")
]


def install(
    doc_ids: Annotated[list[str] | None, Argument(metavar="DOC_ID", hidden=True)] = None,
    to: _ToOption = None,
    agent: _AgentOption = None,
    user: _UserOption = False,
    revision: RevisionOption = None,
    accept_risk: _AcceptOption = None,
    accept_publisher: _PublisherOption = False,
    called: Annotated[
        str | None, Option("--as", metavar="NAME", help="The folder of the one skill  [its name]")
    ] = None,
    registry: Annotated[
        str | None, Option("--from", metavar="URL", help="From this registry, where DOC_ID is a name in it.")
    ] = None,
    frozen: Annotated[
        bool, Option("--frozen", help="Exactly what the locks say, without DOC_ID; else it ends with 1.")
    ] = False,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Install skills, with their files, into the folder of an agent.

    DOC_ID is an id, the end of one, or a name. Each skill is a folder under its name; skillery.lock beside
    them says what was installed, from where, and skills-lock.json in the project says it to other clients.
    Nothing is executed, and no file is executable. A skill with risks of a class in SKILLERY_INSTALL_REFUSE
    is refused unless each rule is accepted. What was edited by hand, or is not from Skillery, is never
    overwritten.
    """
    from flows.commands.installing import InstallSettings, install_skills  # noqa: PLC0415
    from flows.commands.usage import note_once  # noqa: PLC0415

    settings, where = load_settings(), Destination(to, agent, user)
    place, ids = root_of(settings, root), doc_ids or []
    if frozen:
        _frozen(place, where, ids, as_json=as_json)
        return
    if not ids or (called is not None and len(ids) != 1):
        said = "DOC_ID is missing" if not ids else f"--as {called} names the folder of one skill"
        raise WrongInput(f"{said}: give {'one' if ids else 'ids or names'}")
    if registry is not None and revision is not None:
        raise WrongInput("--revision is one of a root's: a registry of --from has each skill as it is now")
    folder, brought = where.folder(), None
    if registry is not None:
        from flows.commands.registries import editions_from  # noqa: PLC0415

        brought = editions_from(place, settings, registry, ids)
    found = install_skills(
        place, folder, ids, revision, accept_risk or [], load(InstallSettings),
        any_publisher=accept_publisher, called=called, project=where.project(), brought=brought,
    )  # fmt: skip
    note_once(place, settings, "command", "install", [skill["doc_id"] for skill in found["skills"]])
    print_json(found) if as_json else printing.print_installed(found)


def _frozen(root: Root, where: Destination, ids: Sequence[str], *, as_json: bool) -> None:
    """Install what the locks say, and end with 1 where one skill cannot be had so."""
    from flows.commands.installing import InstallSettings  # noqa: PLC0415
    from flows.commands.registries import install_frozen  # noqa: PLC0415

    if ids:
        raise WrongInput(f"--frozen installs what the locks say: leave out {ids[0]!r}")
    folder = where.folder(installed=True)
    found = install_frozen(root, folder, where.project(), load_settings(), load(InstallSettings))
    print_json(found) if as_json else printing.print_frozen(found)
    raise typer.Exit(int(any(skill["state"] == "failed" for skill in found["skills"])))


def verify(
    to: _ToOption = None,
    agent: _AgentOption = None,
    user: _UserOption = False,
    registry: Annotated[
        Path | None, typer.Option("--registry", metavar="FOLDER", help="Instead: a registry that was signed.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="PUBLIC.pem", help="Whose signature --registry must bear.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare every file of installed skills with the locks, offline; end with 1 on any difference.

    What lies in the folder and is in no lock is a difference too, and so is a file that may be executed.
    With --registry and --key: every file of a published registry with its signature.
    """
    from flows.commands.registries import verify_registry, verify_skills  # noqa: PLC0415

    if registry is not None and key is not None:
        signed = verify_registry(registry, key)
        print_json(signed) if as_json else printing.print_signed(signed)
        raise typer.Exit(0 if signed["verified"] else 1)
    if (registry, key) != (None, None):
        raise WrongInput("--registry and --key go together: the folder, and its publisher's public key")
    where = Destination(to, agent, user)
    project = where.project()
    others = [] if project is None else [project / place for place, _ in FOLDERS.values()]
    found = verify_skills(where.folder(installed=True), project, others)
    print_json(found) if as_json else printing.print_verified(found)
    raise typer.Exit(0 if found["verified"] else 1)


def outdated(
    to: _ToOption = None,
    agent: _AgentOption = None,
    user: _UserOption = False,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which installed skills the corpus holds otherwise by now, and which were edited.

    It completes, or undoes, what a killed command left, and says so.
    """
    from flows.commands.updating import outdated_skills  # noqa: PLC0415

    folder = Destination(to, agent, user).folder(installed=True)
    found = outdated_skills(root_of(load_settings(), root), folder)
    print_json(found) if as_json else printing.print_outdated(found)


def update(
    names: Annotated[list[str] | None, Argument(metavar="NAME", hidden=True)] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Show the differences, and write nothing.")] = False,
    theirs: Annotated[
        bool, Option("--theirs", help="Take the corpus's where you changed the same lines.")
    ] = False,
    ours: Annotated[bool, Option("--ours", help="Keep yours where you changed the same lines.")] = False,
    to: _ToOption = None,
    agent: _AgentOption = None,
    user: _UserOption = False,
    accept_risk: _AcceptOption = None,
    accept_publisher: _PublisherOption = False,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put what the corpus holds now in place of installed skills, and show the differences.

    NAME is a folder's name or an id; without one, all are updated, those installed with --revision too. Into
    what was edited by hand it is merged by lines; where both changed the same lines it stays, and NAME.rej
    beside it lists them. What is refused, or gone from the corpus, stays too; then it ends with 1, and says
    why.
    """
    from flows.commands.installing import InstallSettings  # noqa: PLC0415
    from flows.commands.updating import DONE, update_skills  # noqa: PLC0415

    place, where = root_of(load_settings(), root), Destination(to, agent, user)
    if theirs and ours:
        raise WrongInput("--theirs and --ours exclude each other: give one of them")
    prefer = "theirs" if theirs else "ours" if ours else None
    how: dict[str, Any] = {"dry_run": dry_run, "any_publisher": accept_publisher, "prefer": prefer}
    how["project"] = where.project()
    folder = where.folder(installed=True)
    found = update_skills(place, folder, names or [], accept_risk or [], load(InstallSettings), **how)
    print_json(found) if as_json else printing.print_updated(found)
    raise typer.Exit(0 if all(skill["state"] in DONE for skill in found["skills"]) else 1)


def remove(
    names: Annotated[list[str], Argument(metavar="NAME", hidden=True)],
    yes: Annotated[bool, Option("--yes", help="Also what was edited by hand: the edits are lost.")] = False,
    to: _ToOption = None,
    agent: _AgentOption = None,
    user: _UserOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove installed skills; one that was edited by hand stays unless --yes is given.

    NAME is a folder's name or an id.
    """
    from flows.commands.installing import remove_skills  # noqa: PLC0415

    where = Destination(to, agent, user)
    found = remove_skills(where.folder(installed=True), names, edited=yes, project=where.project())
    print_json(found) if as_json else printing.print_removed(found)


_HostOption = Annotated[
    Literal["claude", "codex", "gemini"], Option("--agent", help="Whose events are read and answered.")
]
_UrlOption = Annotated[
    str | None, Option("--url", metavar="URL", help="A running serve  [the one that runs for the root]")
]


def hook(
    agent: _HostOption,
    url: _UrlOption = None,
    min_fit: MinFitOption = None,
    budget: Annotated[int, Option(metavar="N", min=1, help="Tokens that are told, at most.")] = 400,
    timeout: Annotated[float, Option(metavar="SECONDS", help="After which nothing is told.")] = 2.0,
    root: RootOption = None,
) -> None:
    """Answer a prompt's event of an agent's host with facts on skills that fit it.

    The event is JSON on standard input. Told are the part of the best skill that the prompt needs, or the
    names of up to three, and whose they are; nothing where none fits, or a session was told before. Without
    --url it asks the server that runs for the root, else it answers by itself. It ends with 0 whatever goes
    wrong, and says why on stderr.
    """
    answer_prompt(Options(agent, url, root or "", min_fit, budget, timeout))


def plugin(
    agent: _HostOption,
    out: Annotated[Path, Option(help="A folder, empty or not there yet.")],
    url: _UrlOption = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the plugin of an agent's host: the hook, the MCP server, a README.

    It prints the command that installs it, and the one that removes it.
    """
    from flows.hook.plugin import write_plugin  # noqa: PLC0415

    found = write_plugin(agent, out, root=root_of(load_settings(), root).uri, url=url)
    if as_json:
        print_json(found)
        return
    typer.echo(f"{found['out']} holds the plugin for {found['agent']}, version {found['version']}")
    typer.echo(f"install it:  {found['install']}\nremove it:   {found['remove']}")


INSTALLING: tuple[Callable[..., None], ...] = (
    install, verify, outdated, update, remove, hook, plugin,
)  # fmt: skip
