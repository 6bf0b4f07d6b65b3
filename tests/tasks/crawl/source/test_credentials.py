"""Credentials in what a source says: redacted in every field, by whatever source."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.schemas import BundledFile, Dropped, FileContent, Finding, LicenceFile, Listing, RawDocument
from tasks.crawl.source.base import Gone, Missed, Unchanged
from tasks.crawl.source.credentials import without_credentials
from tests.support.crawl.crawling import Crawler, settings_of
from tests.support.roots.nights import raw

# Spelled in two parts, so that nothing takes this file for one that leaks.
KEY = "ghp_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"
OTHER = "ghp_" + "zB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (f"https://ann:{KEY}@github.com/x/tools?token={KEY}", "https://github.com/x/tools?token=[redacted]"),
        ("https://hunter22@host.org/a?page=2", "https://host.org/a?page=2"),
        ("https://a@b:c@d@host.org/a@v1", "https://host.org/a@v1"),
        ("https://host.org/a?page=2&X-Amz-Signature=0123456789ab#top", "https://host.org/a?page=2&X-Amz-Signature=[redacted]#top"),
        ("https://host.org:8080/a@v1?keyword=saffron-milk", "https://host.org:8080/a@v1?keyword=saffron-milk"),
        ("ssh://git@host.org/x/tools", "ssh://git@host.org/x/tools"),
        (f"see {KEY}", "see [redacted:github-token]"),
    ],
)  # fmt: skip
def test_a_text_of_a_source_holds_no_credential(text: str, clean: str) -> None:
    listing = Listing(source="s", source_id="1", url=text, description=text)
    assert without_credentials(listing) == replace(listing, url=clean, description=clean)


@given(
    st.sampled_from(
        [
            replace(
                raw(f"x/{KEY}", b"text"), repo=f"x/{KEY}", ref=KEY, path=f"{KEY}/SKILL.md", url=f"https://{KEY}@h/",
                author=KEY, category=KEY, tags=("a", KEY), files=(BundledFile(f"a/{KEY}", 1, "0"),),
                contents=(FileContent(f"a/{KEY}", b"1"),), licence_files=(LicenceFile(KEY, "0", KEY),),
                findings=(Finding("bundle.symlink", "warning", f"{KEY} is a link"),),
            ),
            Listing(source="s", source_id=KEY, name=KEY, description=KEY, author=KEY, url=KEY, tags=(KEY,)),
            Dropped(KEY, "s", "unreadable", f"{KEY}: denied", lost_to=KEY),
            Unchanged((KEY, "a")), Missed((KEY,), "timeout", KEY), Gone((KEY,), "retired", KEY),
        ]
    )
)  # fmt: skip
def test_no_field_of_a_record_holds_it_and_a_second_pass_changes_nothing(record: object) -> None:
    clean = without_credentials(record)
    assert KEY not in repr(clean)
    assert without_credentials(clean) is clean
    if isinstance(clean, RawDocument):
        assert clean.files is not None
        assert clean.files[0].path == clean.contents[0].path


def test_names_that_differ_in_their_keys_alone_stay_apart() -> None:
    first, second = without_credentials(Unchanged((f"x/{KEY}/a", f"x/{OTHER}/a"))).doc_ids
    assert first != second
    assert first.startswith("x/[redacted:github-token]~")
    assert first.endswith("/a")


@pytest.mark.parametrize("record", [Unchanged(("x/tools", "x/keys/token")), raw("x/tools/a", b"text")])
def test_a_record_without_one_is_the_same_record(record: object) -> None:
    assert without_credentials(record) is record


def test_a_table_with_a_login_leaves_it_nowhere_under_the_root(tmp_path: Path) -> None:
    row = {
        "id": f"x/tools/{KEY}", "content": "# A tool\n\nUse it well.\n", "path": f"skills/{KEY}/SKILL.md",
        "source_url": f"https://user:{KEY}@github.com/x/tools?token={KEY}", "owner": KEY, "repo": "tools",
    }  # fmt: skip
    pl.DataFrame({name: [value] for name, value in row.items()}).write_parquet(tmp_path / "table.parquet")
    crawler = Crawler(tmp_path / "root", settings_of({}))
    assert crawler.crawl(f"parquet:{tmp_path}/table.parquet").new == 1
    for file in (file for file in crawler.folder.rglob("*") if file.is_file()):
        frame = pl.read_parquet(file) if file.suffix == ".parquet" else None
        held = json.dumps(frame.to_dicts(), default=repr) if frame is not None else file.read_text()
        assert KEY not in held, file
