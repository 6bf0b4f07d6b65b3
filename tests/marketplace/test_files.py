"""The hosts of archives and raw files on loopback: honest archives, large ones, and the malicious ones."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator

import pytest

from tests.support.marketplace import malice
from tests.support.marketplace.asking import Got, ask
from tests.support.marketplace.objects import Submodule, executable, link
from tests.support.marketplace.repository import Repository
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World

BREAD = b"---\nname: bread\ndescription: Bakes a loaf\n---\n# Bread\n"


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(World()) as served:
        bakery = served.world.repository("Ann/bakery")
        bakery.commit(
            {"bread/SKILL.md": BREAD, "bread/run.sh": executable(b"ls\n"), "now": link("bread/run.sh")}
        )
        yield served


@pytest.fixture
def bakery(market: Marketplace) -> Repository:
    return market.world.repositories[0]


def archive(market: Marketplace, ref: str, form: str = "zip") -> zipfile.ZipFile:
    got = ask(market, "archive", f"/ann/bakery/{form}/{ref}")
    assert got.status == 200
    return zipfile.ZipFile(io.BytesIO(got.body))


def test_an_archive_holds_the_commits_files_with_their_modes(market: Marketplace, bakery: Repository) -> None:
    head = bakery.commit({"lib": Submodule("ab" * 20)})

    held = archive(market, head.sha)

    root = f"bakery-{head.sha}"
    assert held.namelist() == [
        f"{root}/{path}" for path in ("", "bread/", "bread/SKILL.md", "bread/run.sh", "lib/", "now")
    ]
    assert held.comment.decode() == head.sha
    assert held.testzip() is None
    assert held.read(f"{root}/bread/SKILL.md") == BREAD
    modes = {info.filename: oct(info.external_attr >> 16) for info in held.infolist() if not info.is_dir()}
    assert list(modes.values()) == ["0o0", "0o100755", "0o120777"]
    assert held.read(f"{root}/now") == b"bread/run.sh"


@pytest.mark.parametrize(
    ("ref", "root"),
    [
        ("main", "bakery-main"),
        ("refs/heads/main", "bakery-main"),
        ("refs/heads/feature/x", "bakery-feature-x"),
        ("refs/tags/v1.2", "bakery-1.2"),
        ("refs/tags/vanilla", "bakery-vanilla"),
    ],
)
def test_the_root_folder_is_named_after_the_ref(
    market: Marketplace, bakery: Repository, ref: str, root: str
) -> None:
    bakery.branch("feature/x")
    bakery.tag("v1.2")
    bakery.tag("vanilla")

    assert archive(market, ref).namelist()[0] == f"{root}/"


def test_a_zipballs_root_has_owner_and_short_id(market: Marketplace, bakery: Repository) -> None:
    assert archive(market, "main", "legacy.zip").namelist()[0] == f"Ann-bakery-{bakery.head.sha[:7]}/"


def test_an_old_commit_stays_what_it_was(market: Marketplace, bakery: Repository) -> None:
    old = bakery.head.sha
    bakery.commit({"bread/SKILL.md": BREAD + b"New\n"})

    assert archive(market, old).read(f"bakery-{old}/bread/SKILL.md") == BREAD
    assert archive(market, "main").read("bakery-main/bread/SKILL.md") == BREAD + b"New\n"


@pytest.mark.parametrize("path", ["/ann/bakery/zip/none", "/ann/none/zip/main", "/ann/bakery/tar/main", "/"])
def test_no_such_archive(market: Marketplace, path: str) -> None:
    assert ask(market, "archive", path).status == 404


def test_raw_files_are_found_under_branches_with_slashes_and_ids(
    market: Marketplace, bakery: Repository
) -> None:
    bakery.commit({"bread/SKILL.md": b"other"}, branch="feature/x")

    def read(path: str) -> Got:
        return ask(market, "raw", f"/ann/bakery/{path}")

    assert read("main/bread/SKILL.md").body == BREAD
    assert read("feature/x/bread/SKILL.md").body == b"other"
    assert read(f"{bakery.head.sha}/bread/SKILL.md").body == BREAD
    assert {read(path).status for path in ("main/bread", "main/none", "none/bread/SKILL.md", "main")} == {404}


def test_raw_files_have_etags(market: Marketplace) -> None:
    path = "/ann/bakery/main/bread/SKILL.md"
    tag = ask(market, "raw", path).headers["etag"]

    assert ask(market, "raw", path, If_None_Match=tag).status == 304


def test_files_under_an_old_name_lead_to_the_new_one_or_are_missing(
    market: Marketplace, bakery: Repository
) -> None:
    bakery.rename("ann/oven")

    assert ask(market, "archive", "/ann/bakery/zip/main").headers["location"] == "/ann/oven/zip/main"
    assert ask(market, "raw", "/ann/bakery/main/now").headers["location"] == "/ann/oven/main/now"
    assert ask(market, "archive", "/ann/oven/zip/main").status == 200
    market.world.github.files_follow_renames = False
    assert ask(market, "archive", "/ann/bakery/zip/main").status == 404
    assert ask(market, "raw", "/ann/bakery/main/now").status == 404


def test_an_archive_is_padded_with_what_no_packing_makes_smaller(
    market: Marketplace, bakery: Repository
) -> None:
    bakery.pad_to(3_000_000)

    got = ask(market, "archive", "/ann/bakery/zip/main")

    assert int(got.headers["content-length"]) == len(got.body) > 3_000_000
    assert zipfile.ZipFile(io.BytesIO(got.body)).testzip() is None
    assert bakery.size_kb == 3_000_000 // 1024


def test_archives_may_come_without_their_length(market: Marketplace) -> None:
    market.world.github.archive_lengths = False

    got = ask(market, "archive", "/ann/bakery/zip/main")

    assert "content-length" not in got.headers
    assert zipfile.ZipFile(io.BytesIO(got.body)).testzip() is None


def test_another_body_may_stand_in_for_an_archive(market: Marketplace, bakery: Repository) -> None:
    bakery.archive_override = malice.climbing()
    assert ask(market, "archive", "/ann/bakery/zip/main").body == malice.climbing()

    bakery.archive_override = malice.endless(1_000_000)
    endless = ask(market, "archive", "/ann/bakery/zip/main")
    assert (len(endless.body), endless.headers.get("content-length")) == (1_000_000, None)
    assert endless.body.startswith(b"PK\3\4")


def names(packed: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(packed)).namelist()


def test_malicious_archives_are_what_they_say() -> None:
    assert "trap-main/../../../climbed.txt" in names(malice.climbing())
    assert "/absolute.txt" in names(malice.absolute())
    assert "C:/windows.txt" in names(malice.drive())
    assert b"trap-main\\..\\..\\climbed.txt" in malice.backslashes()
    assert {name.partition("/")[0] for name in names(malice.two_roots())} == {"trap-main", "other-main"}
    assert names(malice.twice()).count("trap-main/notes.md") == 2
    assert len(names(malice.many_files(500))) == 501
    (leak,) = zipfile.ZipFile(io.BytesIO(malice.links_out())).infolist()[1:]
    assert leak.external_attr >> 16 == 0o120777


def test_damaged_archives_are_what_they_say() -> None:
    for packed in (malice.damaged(), malice.no_archive()):
        with pytest.raises(zipfile.BadZipFile):
            names(packed)
    with pytest.raises(RuntimeError, match="encrypted"):
        zipfile.ZipFile(io.BytesIO(malice.encrypted())).testzip()
    assert zipfile.ZipFile(io.BytesIO(malice.wrong_checksum())).testzip() == "trap-main/skills/bait/SKILL.md"


def test_a_bomb_is_small_and_may_understate_itself() -> None:
    size = 20_000_000
    for packed, said in ((malice.bomb(size), size), (malice.understated(size, 400), 400)):
        assert len(packed) < size / 500
        info = zipfile.ZipFile(io.BytesIO(packed)).infolist()[1]
        assert info.file_size == said
        start = packed.find(b"SKILL.md", info.header_offset) + len(b"SKILL.md")
        assert len(zlib.decompress(packed[start : start + info.compress_size], wbits=-15)) == size
