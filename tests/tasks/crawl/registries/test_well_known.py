"""Sites with a discovery index: every reachable skill is held, every mismatch named; the format itself."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import WrongInput
from tasks.crawl.registries import discovery
from tasks.crawl.registries.discovery import (
    Entry,
    NoIndex,
    digest_of,
    index_entry,
    index_json,
    older_index_json,
    read_index,
)
from tasks.crawl.source.base import CrawlContext
from tasks.crawl.source.bundle import DocumentLimits
from tasks.crawl.sources import normal_spec
from tests.support.crawl.crawling import Crawler, grows, settings_of
from tests.support.crawl.registries import Garden, Page
from tests.support.crawl.zip_files import zipped

INDEX, OLDER_INDEX = f"/{discovery.INDEX}", f"/{discovery.OLDER_INDEX}"


def tarred(
    contents: dict[str, bytes], links: dict[str, str] | None = None, *headers: dict[str, str]
) -> bytes:
    """Return a tar file, which begins with these extended headers."""
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for header in headers:
            packed = tarfile.TarInfo.create_pax_global_header(header)
            buffered = packed[:156] + b"x" + packed[157:]
            checked = buffered[:148] + b" " * 8 + buffered[156:512]
            total = b"%06o\0 " % sum(checked)
            tar.fileobj.write(buffered[:148] + total + buffered[156:])  # type: ignore[union-attr]
            tar.offset += len(packed)
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, BytesIO(content))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    return buffer.getvalue()


@pytest.fixture
def site() -> Iterator[Garden]:
    with Garden() as site:
        yield site


@pytest.fixture
def crawler(tmp_path: Path) -> Crawler:
    return Crawler(tmp_path, settings_of({}))


def test_a_site_is_held_followed_and_asked_once_a_night(site: Garden, crawler: Crawler) -> None:
    spec = f"well-known:{site.url}"
    packed = tarred({"SKILL.md": grows("leek"), "ref/soil.md": b"Deep.\n"}, {"out": "/etc/passwd"})
    site.plant({"mint": grows("mint"), "leek": packed, "kale": zipped({"SKILL.md": grows("kale")})})
    assert crawler.crawl(spec).new == 3
    held = {f"127.0.0.1/{name}": grows(name) for name in ("mint", "leek", "kale")}
    assert crawler.held() == held
    assert len(site.since()) == 4
    leek = next(row for row in crawler.raw() if row["doc_id"].endswith("leek"))
    assert [(f["path"], f["content"]) for f in leek["contents"]] == [("ref/soil.md", b"Deep.\n")]
    assert [f["code"] for f in leek["findings"]] == ["bundle.symlink"]

    page, tagged = site.pages[INDEX], {"ETag": '"1"'}
    site.pages[INDEX] = (200, tagged, json.dumps(page).encode())
    again = crawler.crawl(spec)
    assert (again.unchanged, site.since()) == (3, [INDEX])
    site.pages[INDEX] = (200, tagged, b"not sent to whom the tag is known")
    assert crawler.crawl(spec).unchanged == 3
    site.since()

    site.plant({"mint": grows("mint", "Water it at dusk."), "leek": packed})
    changed = crawler.crawl(spec)
    assert (changed.changed, changed.unchanged, changed.retired) == (1, 1, 1)
    assert site.since() == [INDEX, "/a/mint"]
    assert crawler.held() == {
        "127.0.0.1/mint": grows("mint", "Water it at dusk."), "127.0.0.1/leek": grows("leek"),
    }  # fmt: skip


BAD: list[tuple[bytes, dict[str, object], str]] = [
    (grows("mint"), {"digest": digest_of(b"other")}, "digest-mismatch"),
    (grows("mint"), {"url": "/nowhere"}, "missing"),
    (grows("mint"), {"url": "http://127.0.0.1:9/a"}, "private"),
    (grows("mint"), {"url": "/away"}, "private"),
    (grows("mint"), {"url": "http://[::ffff:10.0.0.1]/a"}, "private"),
    (grows("mint"), {"url": "http://2130706433:9/a"}, "private"),
    (grows("mint"), {"url": "javascript:alert(1)"}, "malformed"),
    (grows("mint"), {"url": 7}, "malformed"),
    (grows("mint"), {"name": "../mint"}, "malformed"),
    (grows("mint"), {"type": "wasm"}, "malformed"),
    (grows("mint"), {"digest": "md5:1"}, "malformed"),
    (grows("mint"), {"url": "/\ud800", "_meta": "\udfff"}, "missing"),
    (grows("mint"), {"description": None}, "malformed"),
    (tarred({"../SKILL.md": b"x"}), {}, "archive-path"),
    (tarred({"/SKILL.md": b"x"}), {}, "archive-path"),
    (tarred({"mint/SKILL.md": grows("mint")}), {}, "no-skill"),
    (zipped({"..\\SKILL.md": b"x"}), {}, "archive-path"),
    (tarred({f"{n}": b"" for n in range(2_001)}), {}, "archive-files"),
    (tarred({"SKILL.md": b"\0" * 60_000_000}), {}, "archive-size"),
    (b"no archive", {}, "archive-damaged"),
    (b"PK no archive", {}, "archive-damaged"),
    (tarred({"SKILL.md": b"x"}, {}, *[{"comment": "a"}] * 3_000), {}, "archive-damaged"),
    (tarred({"SKILL.md": b"x"}, {}, {"size": "9" * 30}), {}, "archive-damaged"),
]


@pytest.mark.parametrize(
    ("artifact", "fields", "reason"), BAD, ids=[f"{n}-{case[2]}" for n, case in enumerate(BAD)]
)
def test_what_cannot_be_verified_is_named_and_nothing_of_it_held(
    site: Garden, crawler: Crawler, artifact: bytes, fields: dict[str, object], reason: str
) -> None:
    site.plant({"mint": artifact, "kale": grows("kale")})
    site.pages["/away"] = (302, {"Location": "http://localhost:9/latest/meta-data"}, b"")
    site.alter(0, **fields)
    report = crawler.crawl(f"well-known:{site.url}")
    assert (report.state, report.failed) == ("complete", {reason: 1})
    assert list(crawler.held()) == ["127.0.0.1/kale"]
    assert ".." not in next(iter(crawler.held()))


def test_a_mismatch_leaves_the_last_good_version_stale(site: Garden, crawler: Crawler) -> None:
    spec = f"well-known:{site.url}"
    site.plant({"mint": grows("mint")})
    crawler.crawl(spec)
    site.pages["/a/mint"] = grows("mint", "Poison.")
    site.alter(0, digest=digest_of(b"other"))
    site.pages[INDEX] = (200, {"ETag": '"1"'}, json.dumps(site.pages[INDEX]).encode())
    for _ in range(2):  # the tag of an index is not remembered until all that it lists was had
        assert crawler.crawl(spec).failed == {"digest-mismatch": 1}
    assert (crawler.held(), crawler.stale()) == ({"127.0.0.1/mint": grows("mint")}, {"127.0.0.1/mint"})
    site.plant({"mint": grows("mint", "Water it at dusk.")})
    assert crawler.crawl(spec).changed == 1
    assert crawler.stale() == set()


def test_of_two_sites_that_claim_an_id_the_second_is_kept_apart(site: Garden, crawler: Crawler) -> None:
    site.plant({"mint": grows("mint")})
    crawler.crawl(f"well-known:{site.url}")
    with Garden() as other:
        other.plant({"mint": grows("mint", "Poison.")})
        crawler.crawl(spec := f"well-known:{other.url}")
        ours, apart = sorted(crawler.held())
        assert (ours, apart.partition("~")[0]) == ("127.0.0.1/mint", ours)
        assert crawler.held()[ours] == grows("mint")
        assert crawler.crawl(spec).unchanged == 1
        other.plant({})
        assert crawler.crawl(spec).retired == 1
    assert list(crawler.held()) == [ours]


def test_the_older_index_is_read_below_a_path(site: Garden, crawler: Crawler) -> None:
    spec, below = f"well-known:{site.url}/docs/", "/docs/.well-known/skills"
    files = ("SKILL.md", "ref/a b.md")
    site.pages |= {
        f"/docs{OLDER_INDEX}": older_index_json([("mint", "Grows mint.", files)]),
        f"{below}/mint/SKILL.md": grows("mint"),
        f"{below}/mint/ref/a%20b.md": b"Deep.\n",
    }
    assert crawler.crawl(spec).new == 1
    assert crawler.held() == {"127.0.0.1/docs/mint": grows("mint")}
    site.pages[f"{below}/mint/ref/a%20b.md"] = b"Shallow.\n"
    assert crawler.crawl(spec).changed == 1
    assert crawler.crawl(spec).unchanged == 1
    del site.pages[f"{below}/mint/ref/a%20b.md"]
    assert crawler.crawl(spec).failed == {"missing": 1}
    assert crawler.stale() == {"127.0.0.1/docs/mint"}


def test_files_of_an_older_index_are_bounded_together(
    site: Garden, crawler: Crawler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CrawlContext, "limits", DocumentLimits(bundle_bytes=300))
    texts = {"SKILL.md": grows("mint"), "a": b"0" * 200, "b": b"0" * 200}
    site.pages |= {f"/.well-known/skills/mint/{name}": text for name, text in texts.items()}
    site.pages[OLDER_INDEX] = older_index_json([("mint", "Grows mint.", texts)])
    assert crawler.crawl(f"well-known:{site.url}").failed == {"too-large": 1}


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        ((404, {}, b""), "missing"), ((200, {"Content-Type": "text/html"}, b"<html>Welcome"), "missing"),
        (b"[" * 100_000, "not-json"), ([1], "shape"), ({"skills": {}}, "shape"),
        ({"$schema": "https://example.com/0.9.0", "skills": []}, "shape"),
        ({"skills": [{}] * 100_001}, "shape"),
        ((302, {"Location": "ftp://example.com/index.json"}, b""), "redirect"),
        ((302, {"Location": "http://10.0.0.1/index.json"}, b""), "private"),
    ],
)  # fmt: skip
def test_what_is_no_index_retires_nothing(site: Garden, crawler: Crawler, index: Page, reason: str) -> None:
    spec = f"well-known:{site.url}"
    site.plant({"mint": grows("mint")})
    crawler.crawl(spec)
    site.pages[INDEX] = index
    report = crawler.crawl(spec)
    assert (report.state, report.failed) == ("failed", {reason: 1})
    assert crawler.stale() == {"127.0.0.1/mint"}


def test_an_index_that_was_written_is_read_the_same() -> None:
    row = index_entry("mint", "Grows mint.", "a/mint.zip", digest_of(b"x"), {})
    url = "https://e.org/.well-known/agent-skills/a/mint.zip"
    entry = Entry("mint", "Grows mint.", url, "archive", digest_of(b"x"))
    assert read_index(json.loads(index_json([row])), f"https://e.org{INDEX}") == ([entry], [])
    old = Entry("mint", "Grows mint.", "https://e.org/.well-known/skills/mint/", files=("SKILL.md", "a/b"))
    older = json.loads(older_index_json([("mint", "Grows mint.", old.files)]))
    assert read_index(older, f"https://e.org{OLDER_INDEX}") == ([old], [])
    with pytest.raises(NoIndex, match="no JSON object"):
        read_index(None, "https://e.org")
    for base, elsewhere in (("https", "http://e.org/x"), ("http", "ftp://e.org/x"), ("http", "javascript:x")):
        index = json.loads(index_json([{**row, "url": elsewhere}]))
        entries, refused = read_index(index, f"{base}://e.org")
        assert (entries, [name for name, _ in refused]) == ([], ["mint"])
    twice = json.loads(index_json([row, row]))
    assert read_index(twice, "https://e.org")[1] == [("mint", "the index names it twice, the first counts")]


def test_a_host_alone_is_asked_by_https_and_a_password_refused() -> None:
    assert normal_spec("well-known:e.org/docs/") == "well-known:https://e.org/docs"
    for spec in ("well-known:https://ann:pw@e.org", "well-known:ftp://e.org"):
        with pytest.raises(WrongInput):
            normal_spec(spec)


@given(st.text())
def test_a_name_is_made_plain_and_every_one_that_is_made_may_be_listed(text: str) -> None:
    plain = {"CSV cleaning": "csv-cleaning", "ckm:brand": "ckm-brand", "料理": "", "a" * 63 + " b": "a" * 63}
    plain |= {"Crème--brûlée!": "creme-brulee"}
    assert {given: discovery.registry_name(given) for given in plain} == plain
    name = discovery.registry_name(text)
    assert not name or (discovery.is_registry_name(name) and discovery.registry_name(name) == name)
    for other in ("", "-a", "a-", "a--b", "A", "a_b", "a" * 65, "é", None, 3, "a\n"):
        assert not discovery.is_registry_name(other), other


@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,8}(/[a-zé]{1,8}){0,2}", fullmatch=True), st.binary(max_size=64))
)
def test_an_archive_holds_its_files_and_depends_on_nothing_else(files: dict[str, bytes]) -> None:
    packed = discovery.pack(files)
    assert packed == discovery.pack(dict(reversed(files.items())))
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == files
        assert all(member.external_attr >> 16 == 0o100644 for member in archive.infolist())
    # Another machine, or a later Python, must come to this digest.
    known = {"SKILL.md": b"---\nname: tide-table\ndescription: Read tides.\n---\n", "ref/a.md": b"A\n"}
    assert discovery.digest_of(discovery.pack(known)).startswith("sha256:42750df858a9")


def test_the_older_index_leaves_out_what_would_void_it() -> None:
    skills = [("tides", None, ["SKILL.md", "b.md"]), ("odd", "Odd.", ["SKILL.md", "a..b.md"])]
    listed = json.loads(discovery.older_index_json(skills))["skills"]
    assert listed == [{"name": "tides", "description": "tides", "files": ["SKILL.md", "b.md"]}]


@pytest.mark.parametrize(("given", "units"), [("x" * 2000, 1024), ("𝄞" * 600, 1024), ("a" + "𝄞" * 600, 1023)])
def test_a_description_is_cut_as_clients_count(given: str, units: int) -> None:
    assert len(discovery.told_description("a", given).encode("utf-16-le")) == 2 * units
