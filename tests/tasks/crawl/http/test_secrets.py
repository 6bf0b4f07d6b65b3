from __future__ import annotations

import json

import pytest

from storage.errors import WrongInput
from tasks.crawl.http.secrets import Secret


def test_a_secret_shows_itself_when_asked_by_name_alone() -> None:
    secret = Secret(" t0ken-x\n")
    assert secret.reveal() == "t0ken-x"
    assert f"{secret} {secret!r} {[secret]}".count("***") == 3
    assert not hasattr(secret, "__dict__")
    with pytest.raises(TypeError):
        json.dumps(secret)


def test_fingerprints_tell_secrets_apart_and_hold_nothing_of_them() -> None:
    one, two = Secret("sk_live_one"), Secret("sk_live_two")
    assert one.fingerprint() == Secret("sk_live_one").fingerprint() != two.fingerprint()
    assert len(one.fingerprint()) == 12
    assert (one == Secret("sk_live_one"), one == two, one == "sk_live_one") == (True, False, False)
    assert len({one, two, Secret("sk_live_one")}) == 2


@pytest.mark.parametrize("nothing", [None, "", "  \n"])
def test_nothing_is_no_secret(nothing: str | None) -> None:
    assert not Secret(nothing)
    assert Secret("x")
    assert Secret(nothing).hide(b"a body") == b"a body"


@pytest.mark.parametrize("value", ["two\r\nlines", "caf\u00e9", "a\x00b"])
def test_what_no_header_can_carry_is_refused_unseen(value: str) -> None:
    with pytest.raises(WrongInput) as caught:
        Secret(value)
    assert value not in str(caught.value)
