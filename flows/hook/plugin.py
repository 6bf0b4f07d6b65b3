"""The plugin of an agent's host: its hook, the MCP server that it names, a README and how to install it."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from flows.hook.prompt import EVENTS
from storage.errors import WrongInput
from storage.folder import write_new

_NAME, _MARKET = "skillery", "skillery-local"  # of the plugin; of the marketplace that holds it alone
_DESCRIPTION = "Tells the agent which skills fit a prompt, and lets it search and read them."
_SECONDS = 5  # after which a host goes on without the hook, which by itself ends after 2
_PLUGIN = {  # by agent, where its plugin lies below the folder of its marketplace
    "claude": f"plugins/{_NAME}", "codex": f"plugins/{_NAME}", "gemini": "",
}  # fmt: skip
_INSTALL = {
    "claude": f"claude plugin marketplace add {{out}} && claude plugin install {_NAME}@{_MARKET}",
    "codex": "codex plugin marketplace add {out}",
    "gemini": "gemini extensions install {out}",
}
_REMOVE = {
    "claude": f"claude plugin marketplace remove {_MARKET}",
    "codex": f"codex plugin marketplace remove {_MARKET}",
    "gemini": f"gemini extensions uninstall {_NAME}",
}
_AFTER = {
    "codex": "In Codex, `/hooks` shows the hook; it runs once you trust it there, and so after each change."
}


def write_plugin(agent: str, out: Path, *, root: str, url: str | None) -> dict[str, Any]:
    """Write the plugin of an agent, one of `prompt.AGENTS`, to a folder that is empty or not there yet.

    The root answers by itself, or by the server that runs for it, unless the server at `url` is asked
    instead. Returns `{agent, out, version, files, install, remove}`; the latter are commands. Raises
    `WrongInput` if the folder holds something, or cannot be written.
    """
    out = out.expanduser().absolute()
    made = plugin_files(agent, out, root=root, url=url)
    try:
        if out.exists() and any(out.iterdir()):
            raise WrongInput(f"--out {out} is no empty folder: name one that is not there yet")
        for path, text in made.items():
            write_new(out / path, text.encode())
    except OSError as error:
        msg = f"--out {out} cannot be written ({error.strerror or error}): name another folder"
        raise WrongInput(msg) from error
    told = {"agent": agent, "out": str(out), "version": metadata.version("skillery"), "files": sorted(made)}
    return {**told, "install": _at(_INSTALL[agent], out), "remove": _REMOVE[agent]}


def plugin_files(agent: str, out: Path, *, root: str, url: str | None) -> dict[str, str]:
    """Return the text of each file of a plugin in its marketplace, by path."""
    program = Path(sys.executable).with_name("skillery")
    skillery = str(program) if program.exists() else shutil.which("skillery") or "skillery"
    asked = ["--url", url] if url else ["--root", root]
    hook = [skillery, "hook", "--agent", agent, *asked]
    about = {"name": _NAME, "version": metadata.version("skillery"), "description": _DESCRIPTION}
    server: dict[str, Any] = {"type": "http", "url": f"{url.rstrip('/')}/mcp"} if url else {
        "command": skillery, "args": ["serve", "--stdio", "--root", root]
    }  # fmt: skip
    if agent == "gemini" and url:
        server = {"httpUrl": server["url"]}
    servers = {"mcpServers": {_NAME: server}}
    place = _PLUGIN[agent]
    files: dict[str, Any] = {
        "hooks/hooks.json": {"hooks": {EVENTS[agent]: [{"hooks": [_handler(agent, hook)]}]}}
    }
    if agent == "gemini":
        files["gemini-extension.json"] = {**about, **servers}
    else:
        plugin = {**about, "author": {"name": "Skillery"}, "license": "MIT"}
        files |= {f".{agent}-plugin/plugin.json": plugin, ".mcp.json": servers}
    if agent == "codex":
        files[".codex-plugin/plugin.json"]["mcpServers"] = "./.mcp.json"
    made = {f"{place}/{path}".lstrip("/"): _json(told) for path, told in files.items()}
    if agent == "claude":
        entry: dict[str, Any] = {**about, "source": f"./{place}"}
        about_it = {"description": _DESCRIPTION, "owner": {"name": "Skillery"}}
        listed = {"name": _MARKET, **about_it, "plugins": [entry]}
        made[".claude-plugin/marketplace.json"] = _json(listed)
    elif agent == "codex":
        policy = {"installation": "AVAILABLE", "authentication": "ON_INSTALL"}
        entry = {
            "name": _NAME,
            "source": {"source": "local", "path": f"./{place}"},
            "policy": policy,
            "category": "Skills",
        }
        made[".agents/plugins/marketplace.json"] = _json({"name": _MARKET, "plugins": [entry]})
    return made | {f"{place}/README.md".lstrip("/"): _readme(agent, out, hook, url or root)}


def _handler(agent: str, hook: list[str]) -> dict[str, Any]:
    if agent == "claude":  # `args` start the program without a shell
        return {"type": "command", "command": hook[0], "args": hook[1:], "timeout": _SECONDS}
    timeout = 1000 * _SECONDS if agent == "gemini" else _SECONDS  # Gemini counts milliseconds
    return {"type": "command", "command": shlex.join(hook), "timeout": timeout}


def _readme(agent: str, out: Path, hook: list[str], asked: str) -> str:
    return f"""# Skillery for {agent}

Before each prompt, the host runs

    {shlex.join(hook)}

which adds at most 400 tokens to it: the part of the skill that fits best, or the names of up to three. These
are facts, with whose they are, never orders. Where none fits it adds nothing, and no failure of it holds a
prompt up.
The agent may also search and read skills itself, by the MCP server `{_NAME}`. Both ask {asked}.
A server that demands a token takes it from SKILLERY_SERVE_TOKEN in the host's environment for the hook.
{_AFTER.get(agent, "")}

Install it: `{_at(_INSTALL[agent], out)}`

Remove it: `{_REMOVE[agent]}`
"""


def _at(command: str, out: Path) -> str:
    return command.format(out=shlex.quote(str(out)))


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"
