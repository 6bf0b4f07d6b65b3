"""Redaction of trajectories; secrets are put together here from pieces, so that the file holds none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.induce.skills.actions import Result
from tasks.induce.skills.windows import decision_points
from tasks.induce.trajectories.read import Reading, read_trajectories
from tasks.induce.trajectories.record import digest_of, trajectory_of
from tasks.induce.trajectories.redaction import redacted
from tests.support.induce.recordings import row, step, written

ALNUM = "k9Qw7Zr5Tx3Vb1Nm8Lp2Sd4Fg6Hj0Kc7Ye9Ua3Io5Pq1Wz8Xv6"
TOKEN, OTHER = "ghp_" + ALNUM[:36], "ghp_" + ALNUM[4:40]
PASSWORD = "Kn0t5and" + "R0pe7x"
KEY = "\n" + "\n".join("MIIE" + ALNUM[i:] + ALNUM[:i] for i in range(3)) + "\n"
PEM = f"-----BEGIN RSA PRIVATE KEY-----{KEY}-----END RSA PRIVATE KEY-----"


def clean(given: dict[str, Any]) -> dict[str, Any]:
    return dict(redacted(given, trajectory_of(given)))


def test_a_secret_is_replaced_in_every_field_and_names_and_ids_stay() -> None:
    given = row(
        {**step("open", f"user: Use {TOKEN}.", error=f"refused {TOKEN}", key=TOKEN, more=[{"at": [TOKEN]}]),
         "url": f"https://shop.example/?t={TOKEN}", "title": TOKEN, "thought": f"I use {TOKEN}"},
        task=f"Order with {TOKEN}", final=f"done {TOKEN}", actor=f"Ann {TOKEN}", task_id=f"t-{TOKEN}",
    )  # fmt: skip
    found = clean(given)
    assert json.dumps(found) == json.dumps(given).replace(TOKEN, "[redacted:github-token-1]").replace(
        "t-[redacted:github-token-1]", f"t-{TOKEN}"
    )


def test_a_row_without_secrets_is_returned_as_it_is() -> None:
    given = row(
        step("find", 'user: I am ann.lee@post.example, order #W2378156.', email="ann.lee@post.example"),
        step("open", 'find returned: {"order_id": "#W2378156", "user_id": "ann_lee_4521"}', id="#W2378156"),
    )  # fmt: skip
    assert redacted(given, trajectory_of(given)) is given


def test_each_secret_has_a_number_of_its_own() -> None:
    found = clean(row(step("a", f"user: {TOKEN} or {OTHER} or {TOKEN}"), step("b", PEM, old=OTHER)))
    assert found["steps"][0]["observation"] == (
        "user: [redacted:github-token-1] or [redacted:github-token-2] or [redacted:github-token-1]"
    )
    assert found["steps"][1]["action"]["args"] == {"old": "[redacted:github-token-2]"}
    assert "[redacted:private-key-1]-----END" in found["steps"][1]["observation"]


def test_a_password_that_is_known_by_its_name_is_replaced_where_it_has_none() -> None:
    page = '[1] textbox "Password" value=""\n[2] button "Log in"'
    by_element = clean(
        row(
            step("fill", page, element="1", text=PASSWORD), step("click", f'{page} "{PASSWORD}"', element="2")
        )
    )
    by_argument = clean(row(step("login", "user: hi", password=PASSWORD), task=f"My password is {PASSWORD}"))
    by_result = clean(
        row(
            step("get", "user: hi"),
            step("login", f'get returned: {{"password": "{PASSWORD}"}}', word=PASSWORD),
        )
    )
    for found in (by_element, by_argument, by_result):
        assert PASSWORD not in json.dumps(found)
        assert "[redacted:assigned-password-1]" in json.dumps(found)


def test_a_short_secret_is_not_replaced_inside_other_words() -> None:
    found = clean(
        row(
            step(
                "open",
                "user: tangledrope, tangledropes, untangledrope",
                url="db://ann:tangledrope@db.shop.io",
            ),
            step("tangledrope", "tangledropes returned: ok", steps="x"),
        )
    )
    assert found["steps"][0]["observation"] == "user: [redacted:password-1], tangledropes, untangledrope"
    assert [each["action"]["name"] for each in found["steps"]] == ["open", "tangledrope"]


def test_a_key_of_several_lines_is_the_same_in_a_text_of_json() -> None:
    found = clean(row(step("get", "user: hi"), step("put", f"get returned: {json.dumps({'k': PEM})}", k=PEM)))
    result = found["steps"][1]["observation"].removeprefix("get returned: ")
    assert json.loads(result)["k"] == found["steps"][1]["action"]["args"]["k"]
    assert "[redacted:private-key-1]" in result


def test_a_secret_that_a_result_gave_is_still_bound_to_it() -> None:
    given = row(
        step("log_in", "user: Order beans.", user="ann"),
        step("order", f'log_in returned: {{"session": {{"t": "{TOKEN}"}}, "old": "{OTHER}"}}', t=TOKEN),
    )
    (body, *_) = decision_points(trajectory_of(clean(given)))[0].bodies
    assert dict(body[1].args) == {"t": Result(0, ("session", "t"))}
    assert (
        decision_points(trajectory_of(clean(given)))[0].bodies
        == decision_points(trajectory_of(given))[0].bodies
    )


def test_what_is_read_is_redacted_counted_once_and_known_again(tmp_path: Path) -> None:
    given = row(task=f"Order with {TOKEN}")
    path = written(tmp_path / "a.jsonl", given, row(trajectory_id="plain"), given)
    reading = Reading()
    (held, found), _ = read_trajectories([path], "trajectories", reading)
    assert held["task"] == found.task == "Order with [redacted:github-token-1]"
    assert (reading.redacted, reading.repeated) == (1, 1)
    assert reading.digests["run-1"] == digest_of(held)


_PIECES = [TOKEN, OTHER, PASSWORD, PEM, json.dumps(PEM)]
_BETWEEN = ["password: ", "://ann:", "@db.shop.io", " ", "\\n", '"', "x"]
TEXTS = st.lists(st.sampled_from([*_PIECES, *_BETWEEN]), max_size=6).map("".join)
VALUES = TEXTS | st.lists(TEXTS, max_size=2) | st.dictionaries(TEXTS, TEXTS, max_size=2)
STEPS = st.builds(
    lambda seen, args: {"observation": seen, "action": {"name": "do", "args": args}},
    TEXTS,
    st.dictionaries(st.sampled_from(["password", "q"]), VALUES),
)


@given(st.lists(STEPS, min_size=1, max_size=3), TEXTS)
def test_redacting_again_changes_nothing_and_the_order_of_fields_does_not_count(
    steps: list[dict[str, Any]], task: str
) -> None:
    given = row(*steps, task=f"{TOKEN} {task}")
    found = clean(given)
    assert clean(found) == found
    assert TOKEN not in json.dumps(found)
    assert clean(dict(reversed(given.items()))) == found


@pytest.mark.parametrize("secret", [TOKEN, PASSWORD])
def test_values_that_were_equal_stay_equal_and_others_stay_different(secret: str) -> None:
    found = clean(row(step("a", f'user: "password": "{secret}"', a=secret, b=OTHER, c=secret, d="plain")))
    args = found["steps"][0]["action"]["args"]
    assert args["a"] == args["c"]
    assert len(set(args.values())) == 3
