from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.schemas import Document, Dropped, Finding, RawDocument
from tasks.refine.document import content_hash, refine_document
from tasks.refine.filters import Limits

FETCHED = datetime(2026, 3, 1, tzinfo=UTC)
FIRST_SEEN = datetime(2026, 1, 1, tzinfo=UTC)
KILN = "---\nname: kiln\ndescription: Fires clay.\n---\n\n# Kiln\n\nFire it.\n"


def refine(content: bytes | str | None, **fields: object) -> Document | Dropped:
    content = content.encode() if isinstance(content, str) else content
    size = len(content) if content is not None else 20_971_520
    raw = RawDocument("ann/pots/kiln", "git+pots", content, size, "raw", **fields)  # type: ignore[arg-type]
    return refine_document(raw, fetched_at=FETCHED, first_seen_at=FIRST_SEEN)


def kept(content: bytes | str, **fields: object) -> Document:
    document = refine(content, **fields)
    assert isinstance(document, Document)
    return document


def codes(content: bytes | str) -> list[str]:
    return [found.code for found in kept(content).findings]


def test_a_sound_skill_becomes_a_document_without_findings() -> None:
    assert kept(KILN, stars=4, path="kiln/SKILL.md") == Document(
        doc_id="ann/pots/kiln",
        source="git+pots",
        name="kiln",
        description="Fires clay.",
        body="# Kiln\n\nFire it.",
        body_hash=hashlib.sha256(b"# Kiln\n\nFire it.").hexdigest(),
        content_hash=content_hash("kiln", "Fires clay.", "# Kiln\n\nFire it."),
        raw_hash="raw",
        fetched_at=FETCHED,
        first_seen_at=FIRST_SEEN,
        stars=4,
        path="kiln/SKILL.md",
    )


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (KILN.replace("\n", "\r\n"), "document.crlf"),
        ("\ufeff" + KILN, "document.bom"),
        (KILN.replace("clay", "cl\x00ay"), "document.control-characters"),
        (KILN.encode("utf-16"), "document.not-utf8"),
        (KILN + "\n> Source: x distributed by TomeVault\n", "boilerplate.removed"),
    ],
)
def test_copies_that_differ_in_form_only_share_their_hashes(content: bytes | str, code: str) -> None:
    copy, original = kept(content), kept(KILN)
    assert (copy.body_hash, copy.content_hash) == (original.body_hash, original.content_hash)
    assert code in [found.code for found in copy.findings]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("Fire it.", "frontmatter.missing"),
        (KILN.replace("name: kiln", "name: Kiln"), "name.pattern"),
        (KILN.replace("name: kiln", "name: oven"), "name.folder"),
        (KILN.replace("Fires clay.", "Fires: clay."), "frontmatter.requoted"),
        (KILN.replace("Fires clay.", ""), "description.missing"),
        (KILN.replace("Fires clay.", "x" * 1_025), "description.too-long"),
        (KILN.replace("name:", "origin: x\nname:"), "keys.unknown"),
        (KILN.replace("name:", "license: MIT\nname:"), "licence.declared"),
        (KILN + "line\n" * 498, "body.long"),
        (KILN + "```\nnever closed", "body.unbalanced-fence"),
    ],
)
def test_each_problem_is_a_finding_and_the_skill_is_kept(content: str, code: str) -> None:
    assert code in codes(content)


@pytest.mark.parametrize("content", [KILN.replace("Fires clay.", "x" * 1_024), KILN + "line\n" * 497])
def test_what_is_just_within_a_limit_is_no_finding(content: str) -> None:
    assert codes(content) == []


def test_unknown_keys_are_listed_and_a_stated_licence_is_quoted() -> None:
    found = kept(KILN.replace("name:", "zone: x\norigin: y\nlicense: Ann's own\nname:")).findings
    assert [f.message for f in found] == ["origin, zone", "Ann's own"]


def test_the_crawlers_findings_come_first() -> None:
    link = Finding("bundle.symlink", "warning", "a link")
    assert kept("Fire it.", findings=(link,)).findings[0] == link


def test_what_is_missing_is_inferred_and_marked() -> None:
    document = kept("# Firing\n\nFire the pots slowly over two days.")
    assert (document.name, document.description) == ("kiln", "Fire the pots slowly over two days.")
    assert document.inferred == ("name", "description")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "too_large"),
        (b"", "empty"),
        (bytes(range(256)) * 20, "not_text"),
        ("\ufeff", "no_body"),
        ("---\nname: kiln\ndescription: Fires clay.\n---\n", "no_body"),
        (KILN.replace("Fire it.", ""), "no_body"),
        ("---\nname: kiln\n---\n> Source: x distributed by TomeVault\n", "no_body"),
    ],
)
def test_what_cannot_be_used_is_dropped_with_its_reason(content: bytes | str | None, reason: str) -> None:
    dropped = refine(content)
    assert isinstance(dropped, Dropped)
    assert (dropped.doc_id, dropped.source, dropped.reason) == ("ann/pots/kiln", "git+pots", reason)
    assert dropped.detail
    assert dropped.rule == f"refine.{reason}"


def test_limits_are_parameters() -> None:
    raw = RawDocument("a/b", "dir:b", b"ab\x00c", 4, "raw")
    strict = refine_document(
        raw, fetched_at=FETCHED, first_seen_at=FIRST_SEEN, limits=Limits(max_control_share=0)
    )
    lax = refine_document(
        raw, fetched_at=FETCHED, first_seen_at=FIRST_SEEN, limits=Limits(max_control_share=1)
    )
    assert isinstance(strict, Dropped)
    assert isinstance(lax, Document)


def test_content_hash_keeps_its_parts_apart() -> None:
    assert content_hash("ab", "c", "d") != content_hash("a", "bc", "d")
    assert content_hash("a", "", "b") != content_hash("a", "b", "")


@given(
    st.one_of(st.binary(), st.text().map(str.encode), st.text().map(lambda t: f"---\n{t}\n---\n{t}".encode()))
)
def test_any_bytes_end_in_a_document_with_a_body_or_in_a_drop(content: bytes) -> None:
    outcome = refine(content)
    if isinstance(outcome, Document):
        assert outcome.body.strip()
        assert outcome.name
    else:
        assert outcome.reason


@given(st.text(min_size=1))
def test_a_refined_body_refines_to_itself(text: str) -> None:
    once = refine(f"---\nname: kiln\ndescription: d\n---\n{text}")
    if isinstance(once, Document):
        again = kept(f"---\nname: kiln\ndescription: d\n---\n{once.body}")
        assert again.body_hash == once.body_hash
