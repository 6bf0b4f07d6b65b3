from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from storage.errors import NotPublished, StorageError
from storage.lance.served import (
    SERVED,
    Served,
    drop_published,
    keep_published,
    published_names,
    published_versions,
    read_served,
    require_served,
    write_served,
)
from storage.root import Root

MODEL = {"name": "m", "dimension": 4}
POINTER = Served("v-1", "1", 7, 9, MODEL, datetime(2026, 1, 1, 2, 3, 4, 5, tzinfo=UTC))


@pytest.mark.parametrize(
    "pointer", [POINTER, replace(POINTER, nodes=None), replace(POINTER, nodes=None, nodes_base=9)]
)
def test_the_pointer_round_trips_in_the_fields_that_scripts_read(tmp_path: Path, pointer: Served) -> None:
    write_served(Root(tmp_path), pointer)
    assert read_served(Root(tmp_path)) == require_served(Root(tmp_path)) == pointer
    assert list(Root(tmp_path).read_json(SERVED) or {}) == [
        *("version", "run_id", "skills", "nodes", "model", "published_at", "order", "nodes_base", "induced")
    ]
    assert sorted(f.name for f in (tmp_path / "state").iterdir()) == ["published", "served.json"]


def test_a_pointer_of_before_a_field_was_written_is_read(tmp_path: Path) -> None:
    write_served(Root(tmp_path), POINTER)
    record = json.loads((tmp_path / SERVED).read_text())
    del record["order"], record["nodes_base"]
    (tmp_path / SERVED).write_text(json.dumps(record))
    assert read_served(Root(tmp_path)) == POINTER


def test_nothing_published_is_told_with_what_to_do(tmp_path: Path) -> None:
    assert read_served(Root(tmp_path)) is None
    with pytest.raises(NotPublished, match="skillery run --root"):
        require_served(Root(tmp_path))


@pytest.mark.parametrize(
    "change",
    [
        {"version": None}, {"skills": "7"}, {"skills": True}, {"nodes": 1.5}, {"nodes_base": "9"},
        {"model": "m"}, {"published_at": "yesterday"}, {"published_at": 5}, {"run_id": ...},
    ],
)  # fmt: skip
def test_a_damaged_pointer_is_named(tmp_path: Path, change: dict[str, object]) -> None:
    root = Root(tmp_path)
    write_served(root, POINTER)
    record = (root.read_json(SERVED) or {}) | change
    root.write_json(SERVED, {k: v for k, v in record.items() if v is not ...})
    with pytest.raises(StorageError, match=r"served\.json is damaged"):
        read_served(root)


def versions(root: Root, *days: int) -> list[Served]:
    """Publish one version on each of these days of March."""
    at = POINTER.published_at
    made = [replace(POINTER, version=f"v-{day}", published_at=at.replace(day=day)) for day in days]
    for served in made:
        write_served(root, served)
    return made


def test_every_version_published_is_known_newest_first_until_it_is_dropped(tmp_path: Path) -> None:
    root = Root(tmp_path)
    second, first, third = versions(root, 2, 1, 3)
    assert published_versions(root) == [third, second, first]
    write_served(root, first)  # once more
    assert published_versions(root) == [third, second, first]
    drop_published(root, second.version)
    assert published_versions(root) == [third, first]
    keep_published(root, first.version)
    assert published_versions(root) == [first]


def test_names_are_those_of_damaged_records_and_of_what_is_served_too(tmp_path: Path) -> None:
    root = Root(tmp_path)
    assert published_names(root) == set()
    _, second = versions(root, 1, 2)
    (tmp_path / "state/published/v-1.json").write_text("{")
    drop_published(root, second.version)
    assert published_names(root) == {"v-1", "v-2"}


def test_a_damaged_record_is_named_and_hides_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, second = versions(Root(tmp_path), 1, 2)
    (tmp_path / "state/published/v-1.json").write_text('{"version": 1}')
    assert published_versions(Root(tmp_path)) == [second]
    assert "published/v-1.json is damaged" in caplog.text


def test_versions_are_in_the_order_of_publication_whatever_the_clock_said(tmp_path: Path) -> None:
    root, first = Root(tmp_path), replace(POINTER, version="v-1", order=1)
    second = replace(POINTER, version="v-2", order=2, published_at=POINTER.published_at - timedelta(days=9))
    for served in (first, second):
        write_served(root, served)
    assert published_versions(root) == [second, first]


def test_what_was_served_before_records_is_known_from_the_next_publication_on(tmp_path: Path) -> None:
    root = Root(tmp_path)
    first, second = versions(root, 1, 2)
    drop_published(root, first.version)
    root.write_json(SERVED, {**asdict(first), "published_at": first.published_at.isoformat()})
    write_served(root, second)
    assert published_versions(root) == [second, first]
