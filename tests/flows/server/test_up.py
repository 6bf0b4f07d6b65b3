"""Several roots under one server: a set of deployments each, and nights that do not wait for each other."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.server import up
from storage.errors import WrongInput
from storage.locks import writer_lock
from storage.root import Root
from storage.state import read_runs
from tests.support.paths import PROJECT
from tests.support.roots.hand_written import BREAD

_GIVEN: list[dict[str, Any]] = yaml.safe_load((PROJECT / "prefect.yaml").read_text("utf-8"))["deployments"]


def test_one_root_has_the_deployments_as_they_stand_in_the_file() -> None:
    wanted = [{**one, "parameters": {**one["parameters"], "root": "/srv/skills"}} for one in _GIVEN]
    assert up.deployments_of({"skills": "/srv/skills"}, _GIVEN) == wanted


def test_each_of_several_roots_has_names_tags_a_queue_and_a_trigger_of_its_own() -> None:
    roots = {"own": "/srv/own", "team": "s3://bucket/team"}
    made = {one["name"]: one for one in up.deployments_of(roots, _GIVEN)}
    assert list(made) == [f"{one['name']}-{name}" for name in roots for one in _GIVEN]
    for one in _GIVEN:
        for name, uri in roots.items():
            of_root = made[f"{one['name']}-{name}"]
            assert (of_root["parameters"]["root"], of_root["tags"]) == (uri, [*one["tags"], f"root:{name}"])
            in_order = one["concurrency_limit"]["collision_strategy"] == "ENQUEUE"
            assert of_root["work_pool"].get("work_queue_name") == (f"root-{name}" if in_order else None)
            kept = ("entrypoint", "description", "schedules", "concurrency_limit")
            assert [of_root[key] for key in kept] == [one[key] for key in kept]
    (trigger,) = made["nightly-evaluation-team"]["triggers"]
    assert trigger["match"] == {"prefect.resource.id": "skillery.index", "skillery.root": "s3://bucket/team"}
    assert trigger["name"] != made["nightly-evaluation-own"]["triggers"][0]["name"]


def test_a_deployment_of_one_s_own_need_not_say_what_prefect_takes_as_said() -> None:
    heeding = {"type": "event", "expect": ["skillery.published"]}
    within = {"type": "compound", "triggers": [heeding, {"match": {"prefect.resource.id": "other"}}]}
    given = {"name": "own", "entrypoint": "own.py:own", "concurrency_limit": 2, "triggers": [heeding, within]}
    for roots in ({"a": "/srv/a"}, {"a": "/srv/a", "b": "/srv/b"}):
        made = up.deployments_of(roots, [{"name": "bare", "parameters": None}, given])
        assert [one["parameters"] for one in made[::2]] == [{"root": uri} for uri in roots.values()]
        assert {str(one["work_pool"]) for one in made} == {"{'name': 'skillery'}"}
    first, second = made[1]["triggers"]
    assert (made[1]["tags"], first) == (["root:a"], {**heeding, "match": {"skillery.root": "/srv/a"}})
    assert second["triggers"] == [first, within["triggers"][1]]


def test_a_publication_says_of_which_root_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from flows import index

    told: list[dict[str, Any]] = []
    monkeypatch.setattr(index, "on_page", lambda: True)
    monkeypatch.setattr(index, "emit_event", lambda **event: told.append(event))
    index.announce("/srv/own", "v-1")
    assert told[0]["resource"]["skillery.root"] == told[0]["payload"]["root"] == "/srv/own"


def test_roots_are_named_by_their_last_part_and_told_apart_where_that_is_the_same() -> None:
    roots = [Root("/srv/a/skills"), Root("/srv/b/skills"), Root("/srv/our skills")]
    names = up.root_names(roots)
    assert list(names.values()) == [root.uri for root in roots]
    first, second, third = names
    assert first.startswith("skills-")
    assert second.startswith("skills-")
    assert (len(names), third) == (3, "our-skills")
    assert list(up.root_names(roots[:1])) == ["skills"]
    with pytest.raises(WrongInput, match=r"/srv/a/\.\./a/skills is given twice"):
        up.root_names([roots[0], Root("/srv/a/../a/skills")])


@pytest.fixture
def two_roots(tmp_path: Path, root: str) -> list[Root]:
    """Return two roots that have their encoder; beside them lies a folder with one skill."""
    skill = tmp_path / "market/bread/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(BREAD)
    found = [Root(tmp_path / name) for name in ("own", "team")]
    for one in found:
        one.folder.mkdir()
        (one.folder / "models").symlink_to(Path(root) / "models")
    return found


def _ask(server: str, path: str, **given: object) -> Any:  # noqa: ANN401
    import httpx

    answer = httpx.post(f"{server}/{path}", json=given) if given else httpx.get(f"{server}/{path}")
    answer.raise_for_status()
    return answer.json() if answer.content else None


@pytest.mark.slow
@pytest.mark.prefect
@pytest.mark.timeout(900)
def test_a_night_of_one_root_ends_while_that_of_the_other_is_held_up_and_runs_of_one_go_in_order(
    two_roots: list[Root], prefect_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", prefect_server)
    monkeypatch.setattr(up, "_POOL", "two-roots")
    project = tmp_path / "project"
    project.mkdir()
    for name in ("flows", "tasks", "storage"):
        (project / name).symlink_to(PROJECT / name)
    nightly = {**_GIVEN[0], "work_pool": {"name": "two-roots"}, "schedules": []}
    nightly["parameters"] = {**nightly["parameters"], "sources": [f"dir:{tmp_path}/market"]}
    (project / "prefect.yaml").write_text(json.dumps({"name": "skillery", "deployments": [nightly]}))
    own, team = up._deploy(up.root_names(two_roots), project, tmp_path)

    def start(name: str) -> str:
        made = _ask(prefect_server, f"deployments/name/nightly/{name}")
        run = _ask(prefect_server, f"deployments/{made['id']}/create_flow_run", state={"type": "SCHEDULED"})
        return str(run["id"])

    def state(run: str, *wanted: str) -> str:
        until = time.monotonic() + 300
        while (found := str(_ask(prefect_server, f"flow_runs/{run}")["state_type"])) not in wanted:
            assert time.monotonic() < until, (found, wanted)
            time.sleep(0.5)
        return found

    worker = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "two-roots", "--type", "process"]
    with writer_lock(two_roots[0]):
        held, waiting, other = start(own["name"]), start(own["name"]), start(team["name"])
        process = subprocess.Popen(worker, cwd=project)
        state(held, "RUNNING")
        assert state(other, "COMPLETED", "FAILED", "CRASHED") == "COMPLETED"
        assert state(held, "RUNNING") == "RUNNING"
        assert state(waiting, "SCHEDULED") == "SCHEDULED"
    assert state(waiting, "COMPLETED", "FAILED", "CRASHED") == "COMPLETED"
    process.terminate()
    process.wait(60)
    runs = [_ask(prefect_server, f"flow_runs/{run}") for run in (held, waiting)]
    assert runs[0]["state_type"] == "COMPLETED"
    assert runs[0]["end_time"] <= runs[1]["start_time"]
    assert [[run["state"] for run in read_runs(one)] for one in two_roots] == [["complete"] * 2, ["complete"]]
    assert len(up._deploy({"own": two_roots[0].uri}, project, tmp_path)) == 1
    left = _ask(prefect_server, "deployments/filter", deployments={"tags": {"all_": ["nightly"]}})
    assert [one["name"] for one in left] == ["nightly-reindex"]
