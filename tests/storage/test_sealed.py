from __future__ import annotations

import io

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.parquet import check_seal, read_sealed, sealed_parquet

TABLE = pl.DataFrame({"doc_id": ["bees", "mint"], "size": [3, 4]}).to_arrow()
SEALED = sealed_parquet(TABLE)


def test_a_sealed_file_is_a_parquet_file_of_the_same_rows_and_notes() -> None:
    noted = TABLE.replace_schema_metadata({"schema_version": "3"})

    read = pq.read_table(io.BytesIO(sealed_parquet(noted)))

    assert read.equals(TABLE)
    assert read.schema.metadata[b"schema_version"] == b"3"


def test_a_file_sealed_again_is_sound_with_other_rows() -> None:
    again = sealed_parquet(pq.read_table(io.BytesIO(SEALED)).slice(1))

    check_seal(again)

    assert pq.read_table(io.BytesIO(again))["doc_id"].to_pylist() == ["mint"]


# The entry itself is left out: without its name, a file counts as one of a version that wrote none.
PLACES = [n for n in range(len(SEALED)) if not 0 <= n - SEALED.rindex(b"skillery.crc32") < 16]


@given(place=st.sampled_from(PLACES), bit=st.integers(0, 7))
def test_any_bit_that_flips_is_found(place: int, bit: int) -> None:
    data = bytearray(SEALED)
    data[place] ^= 1 << bit
    with pytest.raises(ValueError, match="checksum of the file"):
        check_seal(bytes(data))
    with pytest.raises(ValueError, match="checksum of the file"):
        read_sealed(bytes(data), ["size"])


@given(st.lists(st.text(), max_size=5))
def test_any_table_is_sealed_even_one_that_holds_a_seal(texts: list[str]) -> None:
    data = sealed_parquet(pa.table({"text": [*texts, "skillery.crc32\x18\x0800000000"]}))
    check_seal(data)
    with pytest.raises(ValueError, match="checksum of the file"):
        check_seal(data[:-1])


def test_a_file_without_a_seal_passes_and_is_not_read_as_one_that_is_whole() -> None:
    buffer = io.BytesIO()
    pq.write_table(TABLE, buffer)
    check_seal(buffer.getvalue())
    assert read_sealed(buffer.getvalue(), ["size"]) is None


def test_columns_of_a_sealed_file_are_read() -> None:
    found = read_sealed(SEALED, ["size"])
    assert found is not None
    assert found.to_dict(as_series=False) == {"size": [3, 4]}
