"""What Lance says of a manifest by itself."""

from __future__ import annotations

from pathlib import Path

from storage.lance import NODES, TableWriter, connect, manifest_reads, schema_of
from storage.root import Root

MODEL = {"name": "m", "revision": "1", "dimension": 4, "template": "{name}"}


def test_a_manifest_reads_wherever_it_lies_unless_its_own_bytes_are_wrong(
    tmp_path: Path,
) -> None:
    TableWriter(connect(Root(tmp_path)), NODES, schema_of(NODES, MODEL), None)
    for manifest in (tmp_path / "lance/nodes.lance/_versions").glob("*.manifest"):
        data = manifest.read_bytes()
        assert manifest_reads(manifest.name, data)
        assert not manifest_reads(manifest.name, data[:-20])
        assert not manifest_reads(manifest.name, b"")
