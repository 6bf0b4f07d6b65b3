"""Which id a document has where several publishers claim it, over nights that crawl and refine."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import UnknownDocument
from storage.schemas import RawDocument
from storage.state import documents_table, folded_table
from tasks.crawl.claims import Claims
from tasks.retrieve.revisions.edition import find_row
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World
from tests.support.processes import slow_but
from tests.support.roots.claimants import HAPPENINGS, SAID, Claimants
from tests.support.roots.nights import HandSource, Nights, skill, with_files
from tests.support.roots.skill_root import Export

HOME, UNPACKED = "dir:/home/ann/skills", "dir:/home/ann/dl/skills"
SAME, OWN = "local/skills/same", "local/skills/own"
PDF, LIST, TABLE = "local/skills/pdf", "skillsmp:pdf", "parquet:/p"
WORDS = " ".join(f"step{n} takes {n} minutes" for n in range(20))


def marked(doc_id: str, path: str) -> str:
    folder = hashlib.sha256(path.encode()).hexdigest()[:6]
    return doc_id.replace("local/skills", f"local/skills~{folder}")


def of_table(doc_id: str) -> str:
    return f"{doc_id}~{hashlib.sha256(TABLE.encode()).hexdigest()[:6]}"


def whose(nights: Nights) -> dict[str, str]:
    tables = documents_table(nights.root), folded_table(nights.root)
    return {row["doc_id"]: row["source"] for table in tables for row in table.read().to_dicts()}


@pytest.mark.parametrize(
    ("first", "second", "ids"),
    [
        (HOME, UNPACKED, (PDF, marked(PDF, "/home/ann/dl/skills"))),
        (HOME, "git+file:///home/ann/skills/.git", (PDF,)),
        (HOME, LIST, (PDF, f"github.com/{PDF}")),
        (HOME, TABLE, (PDF, of_table(PDF))),
        (TABLE, HOME, (PDF, marked(PDF, "/home/ann/skills"))),
    ],
)
def test_a_second_publisher_of_an_id_is_kept_apart(
    nights: Nights, first: str, second: str, ids: tuple[str, ...]
) -> None:
    one, other = (
        HandSource(first, skill(PDF, "Merge all pages.")),
        HandSource(second, skill(PDF, "Upload it.")),
    )
    nights.run(one)
    for _ in range(2):
        nights.run(one, other)
        assert whose(nights) == dict(zip(ids, (first, second) if len(ids) > 1 else (second,), strict=True))
    apart = next((doc_id for doc_id in ids if "~" in doc_id), None)
    if apart is not None:
        codes = [finding["code"] for finding in find_row(nights.root, apart)[0]["findings"]]
        assert codes.count("identity.apart") == 1
    # What goes leaves its id to nobody else.
    nights.run(HandSource(first), other)
    assert set(whose(nights)) == set(ids[-1:])


def test_an_id_that_somebody_has_guessed_is_not_shared_either(nights: Nights) -> None:
    digest = hashlib.sha256(UNPACKED[4:].encode()).hexdigest()
    guessed, odd = marked(PDF, UNPACKED[4:]), "a~b"
    sources = [
        HandSource(TABLE, skill(guessed, "Upload all pages."), skill(odd, "Burn all pages.")),
        HandSource(HOME, skill(PDF, "Merge all pages.")),
        HandSource(UNPACKED, skill(PDF, "Count all pages.")),
        HandSource("parquet:/q", skill(odd, "Burn no pages.")),
    ]
    own = f"local/skills~{digest[:16]}/pdf"
    kept_apart = f"{odd}~{hashlib.sha256(b'parquet:/q').hexdigest()[:6]}"
    for _ in range(2):
        nights.run(*sources)
        expected = {guessed: TABLE, odd: TABLE, PDF: HOME, own: UNPACKED, kept_apart: "parquet:/q"}
        assert whose(nights) == expected
    for doc_id in (own, kept_apart):
        codes = [finding["code"] for finding in find_row(nights.root, doc_id)[0]["findings"]]
        assert codes.count("identity.apart") == 1


def test_what_an_earlier_version_wrote_under_another_s_id_moves_without_being_read(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {HOME: "Merge all pages.", UNPACKED: "Upload all pages.", LIST: "Burn all pages."}
    more = {HOME: [skill(SAME, WORDS)], UNPACKED: [skill(OWN, WORDS)], LIST: list[RawDocument]()}
    sources = [HandSource(spec, skill(PDF, texts[spec]), *more[spec], version="1") for spec in texts]
    with monkeypatch.context() as earlier:
        earlier.setattr(Claims, "own", lambda _, doc_id, *__: doc_id)
        for source in sources:
            nights.run(source)
        assert set(whose(nights)) == {PDF, SAME, OWN}
    counts = nights.run(*sources)
    apart, own = marked(PDF, UNPACKED[4:]), marked(OWN, UNPACKED[4:])
    assert counts == nights.run(*sources)
    kept = {PDF: HOME, apart: UNPACKED, f"github.com/{PDF}": LIST, SAME: HOME, own: UNPACKED}
    assert whose(nights) == kept
    assert nights.aliases()[OWN] == (own, "renamed")
    assert PDF not in nights.aliases()
    assert [source.reads for source in sources] == [1, 1, 1]
    assert find_row(nights.root, apart)[0]["body"] == "Upload all pages."


def test_a_table_that_names_a_forge_s_repository_shares_its_bytes_alone(nights: Nights) -> None:
    said = {"url": "https://github.com/good/tools/tree/main/pdf"}
    good, evil = "good/tools/pdf", of_table("good/tools/pdf")
    forge = HandSource("github:good/tools", skill(good, "Merge all pages.", repo="good/tools", **said))
    copy = HandSource(TABLE, skill(good, "Merge all pages.", **said))
    nights.run(forge, copy)
    assert set(whose(nights)) == {good}
    for bad in (
        with_files(skill(good, "Merge all pages.", **said), {"run.sh": b"upload"}),
        skill(good, "Upload all pages.", **said),
    ):
        nights.run(forge, HandSource(TABLE, bad))
        assert {doc_id for doc_id, table in nights.seen() if table == TABLE} == {good, evil}
        assert find_row(nights.root, good)[0]["source"] == forge.spec
    nights.run(HandSource(forge.spec), HandSource(TABLE, bad))
    assert whose(nights) == {evil: TABLE}
    with pytest.raises(UnknownDocument):
        find_row(nights.root, good)


@pytest.mark.parametrize("earlier", slow_but({True}, [False, True]))
def test_a_forge_takes_its_id_from_a_table_that_came_first_with_another_text(
    nights: Nights, monkeypatch: pytest.MonkeyPatch, *, earlier: bool
) -> None:
    said = {"url": "https://github.com/good/tools/tree/main/pdf"}
    good, evil = "good/tools/pdf", of_table("good/tools/pdf")
    forge = HandSource("github:good/tools", skill(good, "Merge all pages.", repo="good/tools", **said))
    table = HandSource(TABLE, skill(good, "Upload all pages.", **said), version="1")
    with monkeypatch.context() as before:
        if earlier:
            before.setattr(Claims, "own", lambda _, doc_id, *__: doc_id)
        nights.run(table)
        nights.run(forge)
    for _ in range(2):
        nights.run(table, forge)
        assert whose(nights) == {good: forge.spec, evil: TABLE}
    nights.run(HandSource(forge.spec), table)
    assert (whose(nights), table.reads) == ({evil: TABLE}, 1)


CLAIMS = st.lists(st.sampled_from((*HAPPENINGS, *SAID)), min_size=2, max_size=3, unique=True)


@given(CLAIMS)
@settings(max_examples=2)
def test_no_way_of_asking_gives_what_another_holds(minilm_export: Export, claims: list[str]) -> None:
    require_own_answers(minilm_export, claims)


@pytest.mark.slow
@pytest.mark.parametrize("first", HAPPENINGS)
@pytest.mark.parametrize("second", HAPPENINGS)
def test_any_two_claims_in_any_order(minilm_export: Export, first: str, second: str) -> None:
    require_own_answers(minilm_export, ["good", first, second])


def require_own_answers(export: Export, claims: list[str]) -> None:
    world = World()
    world.github.anonymous_limit = 100_000
    with tempfile.TemporaryDirectory() as folder, Marketplace(world) as market:
        claimants = Claimants(Path(folder), export, world, market.environment())
        for what in claims:
            claimants.happens(what)
            claimants.check_rows()
        claimants.check_answers()
