"""The recipe to deploy: what the query path needs, the images, the compose file and the units."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import serving as of_serving
from tests.support.paths import PROJECT
from tests.support.roots.skill_root import SkillRoot
from tests.support.serving import ask_http, serving

DEPLOY = PROJECT / ".deploy"
QUERY = (DEPLOY / "query.txt").read_text("utf-8")
LISTED = re.findall(r"^([\w.-]+)$", QUERY, re.MULTILINE)
COMPOSE = (DEPLOY / "compose.yaml").read_text("utf-8")
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE)["services"]
CONTAINERFILE = (DEPLOY / "Containerfile").read_text("utf-8")

# Refuses what distributions bring that are not listed.
_BLOCKED = """
import re, sys
from importlib import metadata
name_of = lambda name: re.sub(r"[-_.]+", "-", name).lower()
listed = set(map(name_of, {listed!r})) | {{"skillery"}}
owners = metadata.packages_distributions()
class Blocked:
    def find_spec(self, name, path=None, target=None):
        whose = {{name_of(owner) for owner in owners.get(name.partition(".")[0], ())}}
        if whose and not whose & listed:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocked())
from flows.cli.main import main
main()
"""
_COMMAND = [sys.executable, "-c", _BLOCKED.format(listed=LISTED)]


def test_what_is_listed_is_pinned_and_holds_nothing_that_the_query_image_is_made_without() -> None:
    def named(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    pinned = re.findall(r"^([\w.-]+)==", (PROJECT / ".ci/constraints.txt").read_text("utf-8"), re.MULTILINE)
    assert set(map(named, LISTED)) <= set(map(named, pinned))
    assert not {"torch", "transformers", "sentence-transformers", "prefect"} & set(LISTED)
    assert len(LISTED) == len(set(LISTED))


def test_a_server_of_what_is_listed_alone_answers(
    served_bakery: SkillRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_serving, "MAIN", _COMMAND)
    with serving(served_bakery.root.uri) as server:
        bees = "doc_id=local/market/bees"
        pages = (
            "/",
            f"/skill?{bees}",
            "/docs",
            "/metrics",
            "/api/search?q=hive",
            f"/api/page?{bees}&q=mites",
            "/api/skills/local/market/bees",
            "/api/status",
        )
        for page in pages:
            assert ask_http(server, page).status == 200, (page, server.said)
        plan = ask_http(server, "/api/tools/compose_plan", {"task": "look after a hive, then bake bread"})
        assert plan.status == 200, plan.body


def test_what_images_copy_is_there_and_services_are_made_of_their_targets() -> None:
    copied = [word for line in re.findall(r"^COPY (.+)$", CONTAINERFILE, re.M) for word in line.split()[:-1]]
    assert [name for name in copied if not (PROJECT / name).exists()] == []
    targets = set(re.findall(r"^FROM .+ AS (\w+)$", CONTAINERFILE, re.MULTILINE))
    built = [service["build"] for service in SERVICES.values() if "build" in service]
    assert {build["target"] for build in built} == targets - {"base"}
    assert all((DEPLOY / build["context"] / build["dockerfile"]).is_file() for build in built)
    foreign = re.findall(r"^FROM (\S+:\S+)|image: (\S+/\S+)", CONTAINERFILE + COMPOSE, re.M)
    assert len(foreign) == 3
    one_release = re.compile(r":(3\.\d+\.\d+|\d{2}\.\d+|RELEASE\.[\dTZ-]{20,})(-\w+)*$")
    assert [name for name in map("".join, foreign) if not one_release.search(name)] == []
    secrets = set(re.findall(r"\$\{(\w+):\?\}", COMPOSE))
    page = (DEPLOY / "README.md").read_text("utf-8")
    assert all(f"{secret}=" in page for secret in secrets)
    assert "(umask 077; printf" in page
    for file in (".gitignore", ".dockerignore"):
        assert ".deploy/.env" in (PROJECT / file).read_text("utf-8").replace("/.deploy", ".deploy").split()
    assert all("constraints.txt" in line for line in re.findall(r"pip install.*", CONTAINERFILE))


def test_the_worker_registers_every_deployment_for_the_root_of_the_compose_file() -> None:
    (command,) = re.findall(r"sed .*", SERVICES["worker"]["command"][-1])
    uri = SERVICES["worker"]["environment"]["SKILLERY_ROOT"]
    script = command.replace("$$", "$").partition(" > ")[0]
    given = {"SKILLERY_ROOT": uri, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["sh", "-ec", script], cwd=PROJECT, env=given, check=True, capture_output=True)
    made = yaml.safe_load(done.stdout)["deployments"]
    assert {one["parameters"]["root"] for one in made} == {uri}
    assert uri in SERVICES["serve"]["command"]


@pytest.mark.parametrize("name", ["up", "serve"])
def test_units_are_taken_by_systemd_and_sandboxed(name: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not there: apt-get install systemd")
    unit = tmp_path / f"skillery-{name}.service"
    text = (DEPLOY / unit.name).read_text("utf-8")
    # Where it is to be installed, nothing lies here.
    unit.write_text(re.sub(r"/opt/skillery\S*/skillery\b", "/bin/true", text).replace("/opt/skillery", "/"))
    command = re.search(r"^ExecStart=\S+/skillery (.*)$", text, re.MULTILINE)
    assert command is not None
    assert command[1].split()[0] == name
    for check in (["verify", str(unit)], ["security", "--offline=yes", "--threshold=25", str(unit)]):
        done = subprocess.run(["systemd-analyze", *check], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout[-400:]
