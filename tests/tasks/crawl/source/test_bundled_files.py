from __future__ import annotations

import hashlib
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from storage.schemas import Finding
from tasks.crawl.source.bundle import Bundle, DocumentLimits, take_bundle

CONTENTS = st.dictionaries(st.sampled_from([f"f{n}" for n in range(9)]), st.binary(max_size=12))


def take(files: dict[str, bytes], limits: DocumentLimits | None = None) -> tuple[Bundle, list[Finding]]:
    found: list[Finding] = []
    given = ((path, iter([content])) for path, content in files.items())
    return take_bundle(given, len(files), limits or DocumentLimits(), found), found


def codes(found: list[Finding]) -> list[str]:
    return [finding.code for finding in found]


@given(CONTENTS, st.integers(0, 10), st.integers(0, 60))
def test_what_is_kept_is_within_the_limits_and_the_rest_is_named(
    files: dict[str, bytes], most: int, size: int
) -> None:
    bundle, found = take(files, DocumentLimits(kept_files=most, kept_bytes=size))
    kept = {file.path: file.content for file in bundle.contents}
    assert bundle.files is not None
    assert {f.path: (f.size, f.sha256) for f in bundle.files} == {
        path: (len(content), hashlib.sha256(content).hexdigest()) for path, content in files.items()
    }
    assert kept.items() <= files.items()
    assert len(kept) <= most
    assert sum(map(len, kept.values())) <= size
    left = [path for path in files if path not in kept]
    assert codes(found) == ["bundle.not-kept"] * bool(left)
    if left:
        assert found[0].message.startswith(f"{len(left)} files are over the limit")
        assert left[0] in found[0].message
    # Nothing is left out that would still have fitted when its turn came.
    assert len(kept) == most or all(len(files[p]) > size - sum(map(len, kept.values())) for p in left)


def test_one_large_file_does_not_keep_the_next_one_out() -> None:
    bundle, _ = take({"a.bin": b"x" * 50, "run.sh": b"ls"}, DocumentLimits(kept_bytes=10))
    assert [file.path for file in bundle.contents] == ["run.sh"]


def test_five_thousand_files_are_named_and_none_is_read() -> None:
    def refuse() -> Iterator[tuple[str, Iterator[bytes]]]:
        msg = "nothing may be read"
        raise AssertionError(msg)
        yield

    found: list[Finding] = []
    assert take_bundle(refuse(), 5000, DocumentLimits(), found) == Bundle(None)
    assert found == [Finding("bundle.too-large", "warning", "5,000 files, more than the limit of 2,000")]


def test_a_file_that_never_ends_is_read_to_the_limit() -> None:
    read = 0

    def endless() -> Iterator[bytes]:
        nonlocal read
        while True:
            read += 1
            yield b"0" * 1000

    found: list[Finding] = []
    limits = DocumentLimits(bundle_bytes=10_000)
    assert take_bundle([("bomb", endless())], 1, limits, found) == Bundle(None)
    assert (codes(found), read) == (["bundle.too-large"], 11)


def test_an_unreadable_file_is_named_and_the_others_are_taken() -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise OSError("it is damaged")

    found: list[Finding] = []
    bundle = take_bundle([("a", broken()), ("b", iter([b"1"]))], 2, DocumentLimits(), found)
    assert [file.path for file in bundle.contents] == ["b"]
    assert found == [Finding("bundle.unreadable", "warning", "a: it is damaged")]


def test_names_that_a_file_system_cannot_hold_are_named() -> None:
    long = "n" * 300
    _, found = take({f"docs/{long}": b"", "Run.sh": b"1", "run.SH": b"2", "é": b"", "e\u0301": b"", "a": b""})
    assert {finding.code: finding.message for finding in found} == {
        "bundle.long-name": f"1 names have more than 255 bytes: docs/{'n' * 55}...{'n' * 17}",
        "bundle.same-name": "4 paths are alike but for letter case or accents: Run.sh, run.SH, é, e\u0301",
    }
