from __future__ import annotations

import pytest

from storage.errors import UnknownDocument, WrongInput
from tasks.retrieve.revisions.history import choose, read_revision, revisions_of
from tests.support.roots.skill_root import SkillRoot
from tests.support.roots.storied import BREAD_ID


def test_a_document_has_a_revision_for_each_night_on_which_it_changed(storied: SkillRoot) -> None:
    revisions = revisions_of(storied.root, BREAD_ID.upper())
    assert [r.fetched_at.day for r in revisions] == [2, 4, 5]
    assert len({r.revision for r in revisions}) == 3
    assert [[f.path for f in read_revision(storied.root, r).contents] for r in revisions] == [
        ["keys.env", "logo.png", "scripts/knead.sh"],
        ["keys.env", "notes.md", "scripts/knead.sh"],
        ["keys.env", "notes.md", "scripts/knead.sh"],
    ]


def test_a_day_a_run_or_the_beginning_of_a_hash_means_a_revision(storied: SkillRoot) -> None:
    first, second, third = revisions = revisions_of(storied.root, BREAD_ID)
    assert choose(storied.root, revisions, "2025-03-03") is first
    assert choose(storied.root, revisions, "2025-03-04") is second
    assert choose(storied.root, revisions, "2030-01-01") is third
    assert choose(storied.root, revisions, second.run_id) is second
    for one in (first, second, third):
        assert choose(storied.root, revisions, one.revision[:12].upper()) is one
    # Only a file changed on the last night: of two with the same SKILL.md the newer is meant.
    assert second.raw_hash == third.raw_hash
    assert choose(storied.root, revisions, third.raw_hash[:8]) is third
    hashes = {first.revision: "c0ffee00", second.revision: "decade00", third.revision: "decade00"}
    assert choose(storied.root, revisions, "decade", lambda r: hashes[r.revision]) is third


@pytest.mark.parametrize("text", ["2025-03-01", "zzzz", "abc", "ffffffffffffffff", "../../etc/passwd", ""])
def test_what_means_no_revision_is_wrong_input_that_names_them(storied: SkillRoot, text: str) -> None:
    revisions = revisions_of(storied.root, BREAD_ID)
    with pytest.raises(WrongInput, match=rf"there are {revisions[-1].revision[:12]} of 2025-03-05, "):
        choose(storied.root, revisions, text)


def test_what_was_never_fetched_has_no_revision(storied: SkillRoot) -> None:
    with pytest.raises(UnknownDocument, match="no raw snapshot"):
        revisions_of(storied.root, "local/market/cake")
