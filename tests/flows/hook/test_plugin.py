from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.command import Ask
from tests.support.hooks import EVENTS, HOOK, context, event, run_hook
from tests.support.roots.skill_root import SkillRoot

# As hosts document their files: by path, which keys must be there, and which may be.
FORMS: dict[str, tuple[set[str], set[str]]] = {
    ".claude-plugin/plugin.json": ({"name"}, {"version", "description", "author", "license"}),
    ".codex-plugin/plugin.json": ({"name"}, {"version", "description", "author", "license", "mcpServers"}),
    "gemini-extension.json": ({"name", "version"}, {"description", "mcpServers"}),
    ".claude-plugin/marketplace.json": ({"name", "owner", "plugins"}, {"description"}),
    ".agents/plugins/marketplace.json": ({"name", "plugins"}, set()),
    ".mcp.json": ({"mcpServers"}, set()),
    "hooks/hooks.json": ({"hooks"}, set()),
}
MANIFEST = {
    "claude": ".claude-plugin/plugin.json",
    "codex": ".codex-plugin/plugin.json",
    "gemini": "gemini-extension.json",
}
MARKET = {"claude": ".claude-plugin/marketplace.json", "codex": ".agents/plugins/marketplace.json"}


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini"])
def test_a_plugin_has_the_forms_of_its_host(
    ask: Ask, served_bakery: SkillRoot, tmp_path: Path, agent: str
) -> None:
    out = tmp_path / "it's out"
    found = ask.told("plugin", "--agent", agent, "--out", str(out), "--root", served_bakery.root.uri)
    place = out / "plugins/skillery" if agent in MARKET else out
    assert {MANIFEST[agent], "hooks/hooks.json", "README.md"} <= {
        Path(f).relative_to(place.relative_to(out)).as_posix()
        for f in found["files"]
        if f not in MARKET.values()
    }
    for file in found["files"]:
        must, may = next((form for path, form in FORMS.items() if file.endswith(path)), (None, set[str]()))
        if must is not None:
            held = json.loads((out / file).read_text("utf-8"))
            assert must <= held.keys() <= must | may, file
    if agent in MARKET:
        (entry,) = json.loads((out / MARKET[agent]).read_text("utf-8"))["plugins"]
        source = entry["source"] if agent == "claude" else entry["source"]["path"]
        assert (out / source / MANIFEST[agent]).exists()
    servers = json.loads((place / (".mcp.json" if agent in MARKET else MANIFEST[agent])).read_text("utf-8"))
    assert servers["mcpServers"]["skillery"]["args"] == ["serve", "--stdio", "--root", served_bakery.root.uri]
    readme = (place / "README.md").read_text("utf-8")
    assert found["install"] in readme
    assert found["remove"] in readme
    assert shlex.split(found["install"])
    hook_of(place, agent)


def hook_of(place: Path, agent: str) -> list[str]:
    """Return the command by which a host runs the hook, in the host's limit of time."""
    hooks = json.loads((place / "hooks/hooks.json").read_text("utf-8"))["hooks"]
    ((group,),) = hooks.values()
    (handler,) = group["hooks"]
    assert (list(hooks), handler["type"]) == ([EVENTS[agent]], "command")
    assert handler["timeout"] == (5000 if agent == "gemini" else 5)
    line = [handler["command"], *handler["args"]] if agent == "claude" else shlex.split(handler["command"])
    assert line[1:2] == ["hook"]
    assert HOOK[0] in line[0] or Path(line[0]).name == "skillery"
    return line


@pytest.mark.slow
@pytest.mark.parametrize("agent", MANIFEST)
def test_the_hook_of_a_plugin_runs_as_its_host_runs_it(
    ask: Ask, served_bakery: SkillRoot, tmp_path: Path, agent: str
) -> None:
    ask.told("plugin", "--agent", agent, "--out", str(tmp_path / "out"), "--root", served_bakery.root.uri)
    line = hook_of(tmp_path / "out" / ("plugins/skillery" if agent in MARKET else ""), agent)
    given = event(agent, "how are mites of bees treated with oxalic acid?")
    done = run_hook(given, *line[2:], "--timeout", "60", state=tmp_path)
    assert "local/market/bees" in context(done, agent)


@pytest.mark.parametrize(("agent", "key"), [("claude", "url"), ("codex", "url"), ("gemini", "httpUrl")])
def test_a_plugin_may_ask_a_server_elsewhere(ask: Ask, tmp_path: Path, agent: str, key: str) -> None:
    url = "https://skills.example.org"
    found = ask.told("plugin", "--agent", agent, "--out", str(tmp_path / "out"), "--url", url)
    texts = {f: (tmp_path / "out" / f).read_text("utf-8") for f in found["files"]}
    (servers,) = (
        json.loads(t)["mcpServers"] for f, t in texts.items() if f.endswith((".mcp.json", "extension.json"))
    )
    assert servers["skillery"][key] == f"{url}/mcp"
    (hooks,) = (text for file, text in texts.items() if file.endswith("hooks.json"))
    assert url in hooks
    assert str(tmp_path) not in hooks


def test_a_folder_that_holds_something_is_refused(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    assert "no empty folder" in ask.refused("plugin", "--agent", "claude", "--out", str(tmp_path))
    assert os.listdir(tmp_path) == ["mine"]


def test_the_help_says_what_the_hook_does() -> None:
    done = subprocess.run([*HOOK, "--help"], capture_output=True, text=True, check=False)
    assert (done.returncode, "--min-fit" in done.stdout) == (0, True)
