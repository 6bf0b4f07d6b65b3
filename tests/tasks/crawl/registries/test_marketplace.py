"""Sources whose list names repositories: plugin marketplaces, and names from skills.sh."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from storage.errors import WrongInput
from tasks.crawl.collect import SourceReport
from tasks.crawl.registries.discovery import NoIndex
from tasks.crawl.registries.manifest import read_manifest
from tasks.crawl.sources import normal_spec
from tests.support.crawl.crawling import Crawler, grows
from tests.support.crawl.registries import Page, Site
from tests.support.crawl.zip_files import zipped
from tests.support.marketplace.repository import Repository
from tests.support.marketplace.world import World
from tests.tasks.crawl.conftest import WorkTree

CLAUDE, CODEX = ".claude-plugin/marketplace.json", ".agents/plugins/marketplace.json"


def manifest(**sources: object) -> dict[str, Any]:
    plugins = [{"name": name, "source": source} for name, source in sources.items()]
    return {"name": "sea", "owner": {"name": "Ann"}, "plugins": plugins}


def packed(value: object) -> bytes:
    return json.dumps(value).encode()


@pytest.fixture
def sea(world: World) -> Repository:
    """A marketplace with skills of its own, and one repository of another's."""
    pack = world.repository("bob/pack")
    pack.commit({f"skills/{n}/SKILL.md": grows(n) for n in ("kelp", "moss")} | {"x/SKILL.md": grows("x")})
    made = world.repository("ann/sea")
    made.commit({
        "plugins/tides/skills/tide/SKILL.md": grows("tide"),
        "plugins/waves/skills/wave/SKILL.md": grows("wave"),
        "drafts/foam/SKILL.md": grows("foam"),
        CLAUDE: packed(manifest(
            tides="./plugins/tides",
            kelp={"source": "git-subdir", "url": "bob/pack", "path": "skills/kelp"},
            moss={"source": "url", "url": "https://github.com/Bob/Pack.git", "path": "skills/moss"},
            snail={"source": "npm", "package": "shell"},
            crab={"source": "command", "command": "rm -rf /"},
            out="../out",
        )),
        CODEX: packed({"name": "sea", "plugins": [
            {"name": "waves", "source": {"source": "local", "path": "./plugins/waves"}},
            {"name": "gone", "source": "./plugins/gone", "policy": {"installation": "NOT_AVAILABLE"}},
        ]}),
    })  # fmt: skip
    return made


def test_a_repository_with_both_manifests_is_read_where_its_plugins_lie(
    sea: Repository, crawler: Crawler
) -> None:
    report = crawler.crawl("marketplace:ann/sea")
    assert (report.state, report.new) == ("complete", 4)
    assert report.failed == {"not-read": 3, "malformed": 1}
    tide, wave = "ann/sea/plugins/tides/skills/tide", "ann/sea/plugins/waves/skills/wave"
    assert sorted(crawler.held()) == [tide, wave, "bob/pack/skills/kelp", "bob/pack/skills/moss"]

    again = crawler.crawl("marketplace:ann/sea")
    assert (again.unchanged, again.new, again.retired) == (4, 0, 0)
    assert again.requests == 3  # its own commit, and that of each repository

    sea.commit(
        {CLAUDE: packed(manifest(foam="./drafts/foam")), CODEX: packed(manifest(tides="./plugins/tides"))}
    )
    changed = crawler.crawl("marketplace:ann/sea")
    assert (changed.new, changed.unchanged, changed.retired) == (1, 1, 3)
    assert sorted(crawler.held()) == ["ann/sea/drafts/foam", tide]


def test_a_repository_that_is_gone_is_kept_stale(sea: Repository, world: World, crawler: Crawler) -> None:
    crawler.crawl("marketplace:ann/sea")
    pack, _ = world.find("bob/pack")
    assert pack is not None
    pack.delete()
    world.repository("bob/bare").commit({"x/SKILL.md": grows("x")})
    assert crawler.crawl("marketplace:ann/sea").unchanged == 2
    assert crawler.stale() == {"bob/pack/skills/kelp", "bob/pack/skills/moss"}
    assert crawler.crawl("marketplace:ann/sea@nowhere").failed == {"missing-ref": 1}
    assert crawler.crawl("marketplace:bob/bare").failed == {"missing": 1}


def test_a_git_repository_is_a_marketplace_and_its_host_alone_may_be_private(
    make_worktree: Callable[[str], WorkTree], git_http: str, crawler: Crawler
) -> None:
    sea, pack = make_worktree("sea"), make_worktree("pack")
    sources = {
        "tides": ".",
        "kelp": {"source": "url", "url": f"http://{git_http}/pack"},
        "near": {"source": "url", "url": "http://127.0.0.1:9/pack"},
        "file": {"source": "url", "url": pack.path.as_uri()},
    }
    sea.write("skills/tide/SKILL.md", grows("tide"))
    sea.write(CLAUDE, packed(manifest(**sources)))
    sea.commit()
    pack.write("kelp/SKILL.md", grows("kelp"))
    pack.commit()
    spec = f"marketplace:http://{git_http}/sea"
    report = crawler.crawl(spec)
    assert (report.new, report.failed) == (2, {"private": 1, "malformed": 1})
    assert sorted(crawler.held()) == ["127.0.0.1/pack/kelp", "127.0.0.1/sea/skills/tide"]
    assert crawler.crawl(spec).unchanged == 2
    pack.write("moss/SKILL.md", grows("moss"))
    pack.commit()
    assert crawler.crawl(spec).new == 1


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


def test_archives_are_verified_and_a_renamed_plugin_keeps_its_skills(site: Site, crawler: Crawler) -> None:
    good = zipped({"skills/tide/SKILL.md": grows("tide")})

    def archive(content: bytes, **fields: object) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        return {"source": "archive", "url": f"{site.url}/a.zip", "sha256": digest, **fields}

    site.pages = {
        "/m.json": manifest(tides=archive(good), own="./x", bad=archive(b"other")), "/a.zip": good,
    }  # fmt: skip
    spec = f"marketplace:{site.url}/m.json"
    report = crawler.crawl(spec)
    assert (report.new, report.failed) == (1, {"not-read": 1, "digest-mismatch": 1})
    (held,) = crawler.held()
    assert held.startswith("127.0.0.1/tides~")

    site.pages["/m.json"] = {**manifest(flows=archive(good)), "renames": {"tides": "flows", "bad": None}}
    site.since()
    report = crawler.crawl(spec)
    assert (report.new, report.retired) == (1, 1)
    assert crawler.aliases() == {held: held.replace("tides~", "flows~")}
    site.since()
    assert crawler.crawl(spec).unchanged == 1
    assert site.since() == ["/m.json"]
    site.pages["/m.json"]["plugins"][0]["license"] = "MIT"  # type: ignore[index,call-overload]
    assert crawler.crawl(spec).changed == 1
    assert (crawler.raw()[-1]["repo_licence"], crawler.crawl(spec).unchanged) == ("MIT", 1)
    site.pages["/m.json"]["plugins"][0]["license"] = "MIT " * 1_000  # type: ignore[index,call-overload]
    assert crawler.crawl(spec).changed == 1
    assert crawler.raw()[-1]["repo_licence"] is None


def test_ids_of_before_they_named_their_marketplace_lead_on(site: Site, crawler: Crawler) -> None:
    """An unchanged archive is read once more for that."""
    packed_tide = zipped({"skills/tide/SKILL.md": grows("tide")})
    digest = hashlib.sha256(packed_tide).hexdigest()
    source = {"source": "archive", "url": f"{site.url}/a.zip", "sha256": digest}
    site.pages = {"/m.json": manifest(tides=source), "/a.zip": packed_tide}
    spec = f"marketplace:{site.url}/m.json"
    crawler.crawl(spec)
    (now,) = crawler.held()
    state = next((crawler.folder / "state/crawl").glob("marketplace-*.json"))
    old = "127.0.0.1/tides/skills/tide"
    state.write_text(state.read_text("utf-8").replace(now, old), "utf-8")
    crawler.crawl(spec)
    assert (list(crawler.held()), crawler.aliases()) == ([now], {old: now})
    assert crawler.crawl(spec).unchanged == 1


def test_an_archive_that_cannot_be_had_keeps_its_skills_stale_and_its_ids(
    site: Site, crawler: Crawler
) -> None:
    specs = [f"marketplace:{site.url}/{name}.json" for name in "ab"]
    for name in "ab":
        source = {"source": "archive", "url": f"{site.url}/{name}.zip"}
        site.pages[f"/{name}.json"] = manifest(victim=source)
        site.pages[f"/{name}.zip"] = zipped({"repo/SKILL.md": grows("repo", name)})
    assert [crawler.crawl(spec).new for spec in specs] == [1, 1]
    held = crawler.held()
    assert sorted(held.values()) == [grows("repo", "a"), grows("repo", "b")]
    assert all(doc_id.startswith("127.0.0.1/victim~") for doc_id in held)

    site.pages["/a.zip"] = (500, {}, b"")
    for keep_files in (512, 9):
        assert crawler.crawl(specs[0], keep_files=keep_files).retired == 0
        assert crawler.held() == held
        assert len(crawler.stale()) == 1


def test_a_plugin_s_repository_that_leads_elsewhere_or_lacks_its_commit_retires_nothing(
    make_worktree: Callable[[str], WorkTree], git_http: str, site: Site, crawler: Crawler
) -> None:
    pack = make_worktree("grp/pack")
    pack.write("a/tide/SKILL.md", grows("tide"))
    pack.write("b/wave/SKILL.md", grows("wave"))
    good = pack.commit()
    plugin = {"source": "git-subdir", "url": f"http://{git_http}/grp/pack", "path": "a"}
    sea = make_worktree("sea")

    def night(**fields: str) -> SourceReport:
        sea.write(CLAUDE, packed(manifest(a={**plugin, **fields})))
        sea.commit()
        return crawler.crawl(f"marketplace:http://{git_http}/sea")

    assert night(sha=good).new == 1
    assert night(sha="b" * 40).failed == {"missing-ref": 1}
    (pack.path / "a/tide/SKILL.md").unlink()
    (pack.path / "a/tide/SKILL.md").symlink_to("../../../out/SKILL.md")
    assert night(sha=pack.commit()).failed == {"symlink": 1}
    assert list(crawler.held()) == ["127.0.0.1/grp/pack/a/tide"]
    assert crawler.stale() == set(crawler.held())

    site.pages = {
        "/m.json": manifest(a={"source": "url", "url": f"{site.url}/pack"}),
        "/pack/info/refs": (302, {"Location": f"http://{git_http}/grp/pack/info/refs"}, b""),
    }
    assert crawler.crawl(f"marketplace:{site.url}/m.json").failed == {"redirect": 1}


@pytest.mark.parametrize(
    ("source", "folders"),
    [
        ("./a/../b", ("b",)), (".", ("",)), ({"source": "local", "path": "./p"}, ("p",)), ("/etc", None),
        ("./a/../../b", None), (7, None),
        ({"source": "github", "repo": "ann/sea", "ref": "--upload-pack=x"}, None),
        ({"source": "github", "repo": "ann/sea", "sha": "HEAD"}, None),
        ({"source": "url", "url": "ext::sh -c x"}, None),
        ({"source": "url", "url": "https://ann:pw@e.org/x"}, None),
        ({"source": "archive", "url": "javascript:x"}, None), ({"source": "magic"}, None),
    ],
)  # fmt: skip
def test_a_source_is_a_plain_place_or_is_named(source: object, folders: tuple[str, ...] | None) -> None:
    found = read_manifest(manifest(one=source, two="./two"))
    assert [p.folders for p in found.plugins if p.name == "one"] == ([folders] if folders else [])
    assert [name for name, _, _ in found.refused] == ([] if folders else ["one"])
    assert found.plugins[-1].name == "two"


def test_a_manifest_and_its_entries_are_read_as_they_say() -> None:
    entry = {"name": "one", "source": "./p", "skills": ["./more/kelp", "./moss"]}
    (plugin,) = read_manifest({"plugins": [entry]}).plugins
    assert plugin.folders == ("p/skills", "p/more/kelp", "p/moss")
    bare = {"metadata": {"pluginRoot": "./plugins"}, "plugins": [{"name": "one", "source": "tides"}]}
    assert read_manifest(bare).plugins[0].folders == ("plugins/tides",)
    for skills in (5, {"a": 1}, [[]]):
        wrong = {"plugins": [{**entry, "skills": skills}, {"name": "two", "source": "./p"}]}
        assert [plugin.name for plugin in read_manifest(wrong).plugins] == ["two"]
    for value in (None, [], {"plugins": {}}, {"plugins": [{}] * 10_001}):
        with pytest.raises(NoIndex):
            read_manifest(value)
    for kind in ("archive", "url"):  # what came by https leads to no http
        addresses = {"one": "HTTP://e.org/x", "two": "https://e.org/x"}
        given = manifest(**{name: {"source": kind, "url": url} for name, url in addresses.items()})
        assert [plugin.name for plugin in read_manifest(given, secure=True).plugins] == ["two"]
        assert [plugin.name for plugin in read_manifest(given).plugins] == ["one", "two"]
    assert normal_spec("marketplace:https://github.com/ann/sea") == "marketplace:ann/sea"
    assert normal_spec("marketplace:ann/sea@v1") == "marketplace:ann/sea@v1"
    for spec in ("marketplace:sea", "marketplace:https://ann:pw@e.org/m.json", "marketplace:ftp://e.org/x"):
        with pytest.raises(WrongInput):
            normal_spec(spec)


SEARCH = "/api/v1/skills/search"


def row(source: str, slug: str, kind: str = "github") -> dict[str, str]:
    return {"source": source, "slug": slug, "sourceType": kind, "url": f"https://skills.sh/{slug}"}


def test_what_is_found_is_read_where_it_lies(
    garden: Repository, world: World, crawler: Crawler, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row("ann/garden", "dill"), row("ann/garden", "nettle"), row("e.org", "kelp", "well-known")]
    with Site({SEARCH: {"data": rows}}) as site:
        crawler.settings = crawler.settings.model_copy(update={"skillssh_url": site.url})
        assert crawler.crawl("skillssh:herbs").failed == {"unauthorised": 1}
        assert site.asked == []

        monkeypatch.setenv("SKILLERY_SKILLSSH_TOKEN", "t0ken")
        report = crawler.crawl("skillssh:herbs")
        assert (report.new, report.failed) == (1, {"missing": 1, "not-read": 1})
        assert list(crawler.held()) == ["ann/garden/beds/dill"]
        again = crawler.crawl("skillssh:herbs")
        assert (again.unchanged, again.requests) == (1, 2)

        garden.commit({"beds/dill/SKILL.md": grows("dill", "Sow it again.")})
        assert crawler.crawl("skillssh:herbs").changed == 1

        world.repository("bob/solo").commit({"SKILL.md": grows("solo"), "x/SKILL.md": grows("x")})
        site.pages[SEARCH] = {"data": [row("bob/solo", "solo")]}
        assert crawler.crawl("skillssh:solo").new == 1
        assert (crawler.crawl("skillssh:solo").unchanged, "bob/solo" in crawler.held()) == (1, True)

        pages: list[tuple[Page, str]] = [(b"{}", "shape"), (b"<html>", "html")]
        for page, reason in [*pages, ((401, {}, b""), "unauthorised"), ((503, {}, b""), "server")]:
            site.pages[SEARCH] = page
            assert crawler.crawl("skillssh:herbs").failed == {reason: 1}
