from __future__ import annotations

import polars as pl
import pytest

from storage.errors import WrongInput
from tasks.refine.licences.policy import (
    EXPORT_POLICY,
    SERVE_POLICY,
    LicencePolicy,
    count_classes,
    licence_class,
    licence_classes,
    licence_policy,
    require_classes,
)


@pytest.mark.parametrize(
    ("licence", "expected"),
    [
        ("MIT", "allow"),
        ("GPL-3.0-only", "metadata-only"),
        ("CC-BY-NC-4.0", "metadata-only"),
        ("LicenseRef-Proprietary", "deny"),
        ("LicenseRef-Source-Available", "deny"),
        ("MIT AND Apache-2.0", "allow"),
        ("MIT AND GPL-3.0-only", "metadata-only"),
        ("MIT OR GPL-3.0-only", "allow"),
        ("MIT AND LicenseRef-Proprietary", "deny"),
        ("(MIT OR LicenseRef-Proprietary) AND ISC", "allow"),
        ("GPL-2.0-only WITH Classpath-exception-2.0", "metadata-only"),
        ("Apache-2.0 WITH LLVM-exception", "allow"),
        (None, "metadata-only"),
        ("", "metadata-only"),
        ("MIT AND", "metadata-only"),
    ],
)
def test_the_class_of_a_licence_when_passing_it_on(licence: str | None, expected: str) -> None:
    assert licence_class(licence, EXPORT_POLICY) == expected


@pytest.mark.parametrize(
    ("licence", "denied"),
    [(None, "LicenseRef-Proprietary"), ("GPL-3.0-only", "GPL-3.0-only AND LicenseRef-Proprietary")],
)  # fmt: skip
def test_a_licence_in_neither_list_and_none_may_be_answered_from_but_not_passed_on(
    licence: str | None, denied: str
) -> None:
    assert licence_class(licence, SERVE_POLICY) == "allow"
    assert licence_class(licence, EXPORT_POLICY) == "metadata-only"
    assert licence_class(denied, SERVE_POLICY) == "deny"


@pytest.mark.parametrize(
    ("allow", "deny", "expected"),
    [
        ((), ("GPL-2.0-only",), "deny"),
        ((), ("GPL-2.0-only WITH Classpath-exception-2.0",), "deny"),
        (("GPL-2.0-only WITH Classpath-exception-2.0",), ("GPL-2.0-only",), "allow"),
        (("GPL-2.0-only",), ("GPL-2.0-only WITH Classpath-exception-2.0",), "deny"),
        ((), (), "metadata-only"),
    ],
)
def test_an_exception_goes_with_its_licence_unless_it_is_listed_itself(
    allow: tuple[str, ...], deny: tuple[str, ...], expected: str
) -> None:
    policy = LicencePolicy(allow, deny)
    assert licence_class("GPL-2.0-only WITH Classpath-exception-2.0", policy) == expected


def test_settings_that_name_no_list_mean_the_defaults() -> None:
    assert licence_policy(None, None, unknown="metadata-only", other="metadata-only") == EXPORT_POLICY
    assert licence_policy(None, None, unknown="allow", other="allow") == SERVE_POLICY


def test_a_licence_that_one_list_names_leaves_the_default_of_the_other() -> None:
    strict = licence_policy(None, ["mit"], unknown="allow", other="allow")
    assert (strict.deny, "MIT" in strict.allow, "ISC" in strict.allow) == (("MIT",), False, True)
    mild = licence_policy(["LicenseRef-Proprietary"], None, unknown="allow", other="allow")
    assert (mild.allow, mild.deny) == (("LicenseRef-Proprietary",), ("LicenseRef-Source-Available",))


@pytest.mark.parametrize("name", ["Apache 2", "FOO-1.0", "MIT OR ISC", "MIT AND", "()", "", " "])
def test_what_spdx_does_not_know_is_refused_by_name(name: str) -> None:
    with pytest.raises(WrongInput, match=r"licences_deny: .* is no SPDX identifier"):
        licence_policy(None, ["ISC", name], unknown="allow", other="allow")


def test_one_licence_in_both_lists_is_refused() -> None:
    with pytest.raises(WrongInput, match="both allowed and denied"):
        licence_policy(["MIT"], ["mit"], unknown="allow", other="allow")


def test_lists_are_settings() -> None:
    strict = LicencePolicy(allow=("ISC",), deny=("MIT",), unknown="deny")
    assert [licence_class(x, strict) for x in ("ISC", "MIT", "0BSD", None)] == [
        "allow", "deny", "metadata-only", "deny",
    ]  # fmt: skip


def test_every_class_is_counted() -> None:
    licences = pl.Series(["MIT", None, "MIT", "GPL-3.0-only"])
    policy = LicencePolicy(unknown="allow")
    assert licence_classes(licences, policy).to_list() == ["allow", "allow", "allow", "metadata-only"]
    assert count_classes(licences, EXPORT_POLICY) == {"allow": 2, "metadata-only": 2, "deny": 0}
    assert count_classes(pl.Series([], dtype=pl.String), EXPORT_POLICY) == {
        "allow": 0, "metadata-only": 0, "deny": 0,
    }  # fmt: skip


def test_contradictions_and_unknown_classes_are_refused() -> None:
    with pytest.raises(WrongInput, match="both allowed and denied"):
        LicencePolicy(allow=("MIT",), deny=("MIT",))
    with pytest.raises(WrongInput, match="perhaps"):
        LicencePolicy(unknown="perhaps")  # type: ignore[arg-type]
    with pytest.raises(WrongInput, match="never"):
        LicencePolicy(other="never")  # type: ignore[arg-type]
    with pytest.raises(WrongInput, match="choose one of allow, metadata-only, deny"):
        require_classes(["allow", "some"])
