"""The formats of well-known registries: names, archives, and indexes that no client refuses as a whole."""

from __future__ import annotations

import io
import json
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.crawl.registries import discovery


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("CSV cleaning", "csv-cleaning"),
        ("ckm:brand", "ckm-brand"),
        ("Crème--brûlée!", "creme-brulee"),
        ("料理", ""),
        ("a" * 63 + " b", "a" * 63),
    ],
)
def test_a_name_is_made_plain(text: str, name: str) -> None:
    """A registry's name has lower-case ASCII letters, digits and single hyphens."""
    assert discovery.registry_name(text) == name


@given(st.text())
def test_every_name_that_is_made_may_be_listed(text: str) -> None:
    """What is not empty keeps the rule of names, and stays when it is made again."""
    name = discovery.registry_name(text)
    assert not name or (discovery.is_registry_name(name) and discovery.registry_name(name) == name)


@pytest.mark.parametrize("name", ["", "-a", "a-", "a--b", "A", "a_b", "a" * 65, "é", None, 3, "a\n"])
def test_other_names_may_not_be_listed(name: object) -> None:
    """Of these, clients skip the entry, or refuse the whole index of the older form."""
    assert not discovery.is_registry_name(name)


@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,8}(/[a-zé]{1,8}){0,2}", fullmatch=True), st.binary(max_size=64))
)
def test_an_archive_holds_its_files_and_depends_on_nothing_else(files: dict[str, bytes]) -> None:
    """The order in which files are given does not count, and each is read back as it was."""
    packed = discovery.pack(files)
    assert packed == discovery.pack(dict(reversed(files.items())))
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == files
        assert all(member.external_attr >> 16 == 0o100644 for member in archive.infolist())


def test_the_bytes_of_an_archive_are_known() -> None:
    """Another machine, or a later Python, must come to this digest."""
    files = {"SKILL.md": b"---\nname: tide-table\ndescription: Read tides.\n---\n", "ref/a.md": b"A\n"}
    digest = "sha256:42750df858a9"
    assert discovery.digest_of(discovery.pack(files)).startswith(digest)


def test_the_older_index_leaves_out_what_would_void_it() -> None:
    """Clients refuse an index of the older form for one path with two dots."""
    skills = [("tides", None, ["SKILL.md", "b.md"]), ("odd", "Odd.", ["SKILL.md", "a..b.md"])]
    listed = json.loads(discovery.older_index_json(skills))["skills"]
    assert listed == [{"name": "tides", "description": "tides", "files": ["SKILL.md", "b.md"]}]


@pytest.mark.parametrize(("given", "units"), [("x" * 2000, 1024), ("𝄞" * 600, 1024), ("a" + "𝄞" * 600, 1023)])
def test_a_description_is_cut_as_clients_count(given: str, units: int) -> None:
    """Clients skip an entry whose description has more than 1,024 UTF-16 units."""
    assert len(discovery.told_description("a", given).encode("utf-16-le")) == 2 * units
