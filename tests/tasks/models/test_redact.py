"""Texts made safe to keep and to show; secrets are put together here, so that the file holds none."""

from __future__ import annotations

import base64
import hashlib
import re
import sys
import unicodedata
from datetime import UTC, datetime
from xml.etree import ElementTree as Xml
from xml.sax.saxutils import escape

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from storage.errors import WrongInput
from tasks.models.redact import redact, secret_rules_text
from tasks.models.retry import RetryPolicy, retry_after
from tasks.models.visible import visible
from tests.support.processes import slow_but

ALNUM = "k9Qw7Zr5Tx3Vb1Nm8Lp2Sd4Fg6Hj0Kc7Ye9Ua3Io5Pq1Wz8Xv6"
HEX = hashlib.sha256(b"knots").hexdigest()
UPPER = ALNUM.upper()
PEM_LINES = "\n".join("MIIE" + ALNUM[i:] + ALNUM[:i] for i in range(3))
PASSWORD = "Kn0t5and" + "R0pe7x"
LOGIN = base64.b64encode(f"smith:{PASSWORD}".encode()).decode()
SERVICE_TOKENS = [
    "dop_" + "v1_" + HEX, "shp" + "at_" + HEX[:32], "xa" + "i-" + ALNUM * 2, "pp" + "lx-" + ALNUM[:48],
    "lin_" + "api_" + ALNUM[:40], "fi" + "gd_" + ALNUM[:40], "sn" + "trys_" + ALNUM * 2,
    "hv" + "s." + ALNUM * 2, "ya" + "29." + ALNUM * 2, "dp." + "pt." + ALNUM[:43],
]  # fmt: skip

# (kind, text before, secret, text after)
SECRETS = [
    ("aws-access-key", "id = ", "AKIA" + "Q3ZR5TX7VB2NM4LP", "\n"),
    ("aws-secret-key", 'aws_secret_access_key = "', ALNUM[:40], '"'),
    ("github-token", "token ", "ghp_" + ALNUM[:36], "."),
    ("github-token", "", "github_pat_" + ALNUM[:22] + "_" + ALNUM, " "),
    ("gitlab-token", "", "glpat-" + ALNUM[:20], ""),
    ("anthropic-key", "KEY=", "sk-ant-" + "api03-" + ALNUM, ""),
    ("openai-key", "key: ", "sk-" + "proj-" + ALNUM, ""),
    ("slack-token", "", "xoxb-" + "2048102401-" + ALNUM[:24], ""),
    ("web-hook", "https://hooks.slack.com/services/", f"T{UPPER[:8]}/B{UPPER[8:16]}/{ALNUM[:24]}", ""),
    ("web-hook", "https://discord.com/api/webhooks/", "7" * 9 + "80213456" + "/" + ALNUM + ALNUM[:18], ""),
    ("telegram-token", "bot", "583910274:AA" + ALNUM[:33], "/send"),
    ("google-key", "?key=", "AIza" + ALNUM[:35], "&q=1"),
    ("stripe-key", "", "sk_" + "live_" + ALNUM[:24], ""),
    ("package-registry-token", "//registry.example/:_authToken=", "npm_" + ALNUM[:36], ""),
    ("model-hub-token", "", "hf_" + ALNUM[:34], ""),
    ("mail-service-key", "", "SG." + ALNUM[:22] + "." + ALNUM[:43], ""),
    ("json-web-token", "", ".".join(["eyJ" + ALNUM[:20], "eyJ" + ALNUM[5:30], ALNUM[3:40]]), ""),
    *(("service-token", before, token, " ") for token in SERVICE_TOKENS for before in ("Use ", "MY_TOKEN=")),
    ("basic-credentials", "Authorization: Basic ", LOGIN, "\n"),
    ("basic-credentials", "'Authorization': 'Basic ", LOGIN, "'"),
    ("command-password", "curl -u smith:", PASSWORD, " https://forge.knots.io"),
    ("command-password", "curl https://forge.knots.io \\\n  --user 'smith:", PASSWORD, "'"),
    ("assigned-password", "DB_PASSWORD=", PASSWORD, "\n"),
    ("assigned-password", '"password": "', PASSWORD, '",'),
    ("assigned-password", "PGPASSWORD=", PASSWORD, " psql"),
    ("bearer-token", "Authorization: Bearer ", ALNUM[:30], "\n"),
    ("password", "postgres://app:", "t4ngled-R0pe", "@db.knots.io/x"),
    ("assigned-secret", 'client_secret = "', ALNUM[:32], '"'),
    ("assigned-secret", "SERVICE_TOKEN=", HEX[:32], "\n"),
    ("assigned-secret", '"apiKey": "', ALNUM[10:40], '",'),
    (
        "private-key",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----",
        f"\n\n{PEM_LINES}\nk9Qw==\n=Zr5T\n",
        "-----END PGP PRIVATE KEY BLOCK-----",
    ),
    ("private-key", "-----BEGIN PRIVATE KEY-----", f"\n{PEM_LINES}\nk9Qw7Zr5\n", "-----END PRIVATE KEY-----"),
    ("private-key", "-----BEGIN RSA PRIVATE KEY-----", f"\n{PEM_LINES}\n", "-----END RSA PRIVATE KEY-----"),
]  # fmt: skip

LEFT = [
    "commit " + HEX[:40],
    "sha256:" + HEX,
    f'"integrity": "sha512-{ALNUM}{ALNUM[:36]}=="',
    "id = 6f1c2a34-58b7-4d09-9c1e-0a2b3c4d5e6f",
    'api_key = "6f1c2a34-58b7-4d09-9c1e-0a2b3c4d5e6f"',
    f"![dot](data:image/png;base64,{ALNUM * 4})",
    'api_key = "YOUR_API_KEY_GOES_HERE_12345"',
    "OPENAI_API_KEY=sk-xxxxxxxxxxxxxxxxxxxxxxxx",
    "export ANTHROPIC_API_KEY=sk-ant-your-key-here-1234567",
    "sk-learn-style-naming-of-things-2024",
    "AKIA" + "IOSFODNN7" + "EXAMPLE",
    'token: "<token>"',
    'password = os.environ["DATABASE_PASSWORD_2024"]',
    "secret: ${{ secrets.DEPLOY_TOKEN_2024_PRODUCTION }}",
    "password: correct-horse-battery-staple-2024",
    "const apiKey = loadKeyFromVault2(process.env)",
    "next_page_token = " + ALNUM[:30],
    "postgres://user:password@db.knots.io/x",
    "postgres://app:$DB_PASSWORD@db.knots.io/x",
    "postgres://app:t4ngled-R0pe@localhost/x",
    "see https://a.example.net:8080/x@y",
    "Authorization: Bearer $TOKEN_FROM_THE_ENVIRONMENT_1",
    "Authorization: Bearer eyJhbGciOiJIUzI1NiIsInR5cCI6...",
    "token = 0x" + HEX[:40],
    "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
    "-----BEGIN PUBLIC KEY-----\n" + PEM_LINES + "\n-----END PUBLIC KEY-----",
    "Authorization: Basic " + base64.b64encode(b"user:password").decode(),
    "Authorization: Basic base64-of-the-login",
    "Authorization: Basic $LOGIN_IN_BASE64",
    "Basic understanding2 of knots",
    "curl -u user:password https://forge.knots.io",
    "curl -u $NAME:$PASSWORD1 https://forge.knots.io",
    "curl https://a.knots.io; docker run -u 1000:1000a1b knots",
    "probe -u https://forge.knots.io/v1",
    '"privateKey": "0xYourPrivateKey1"',
    "git push -u origin feature:topic2024",
    "DB_PASSWORD=changeme2024",
    "password: SecurePass123",
    "PASSWORD=MY_PASSWORD_1_HERE",
    "password = Vault2Client3.read(path)",
    "pwd: /Users/me/Project2a/b3C",
    "The figd_ prefix and xai-models name services.",
    "Keep every key, token, secret and password out of the repository.",
    "eyJ" + "hbGciOiJIUzI1NiJ9." + "eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0." + ALNUM[:43],  # of the standard
]  # fmt: skip


@pytest.mark.parametrize(("kind", "before", "secret", "after"), SECRETS, ids=lambda v: v[:12] if v else "-")
def test_a_secret_is_replaced_and_all_around_it_stays(
    kind: str, before: str, secret: str, after: str
) -> None:
    text, found = redact(f"One\n{before}{secret}{after}")
    line = 2 + before.count("\n")
    assert text == f"One\n{before}[redacted:{kind}]{after}"
    assert [(f.code, f.severity) for f in found] == [(f"risk.secret.{kind}", "warning")]
    assert found[0].message.startswith(f"line {line}: ")
    assert secret.strip() not in found[0].message


@pytest.mark.parametrize("text", LEFT)
def test_what_only_resembles_a_secret_is_left(text: str) -> None:
    assert redact(text) == (text, ())


def test_a_kind_of_secret_has_one_finding_with_the_first_line_and_how_many_more() -> None:
    rules = yaml.safe_load(secret_rules_text())["rules"]
    assert {kind for kind, *_ in SECRETS} == {rule["kind"] for rule in rules}
    token = "ghp_" + ALNUM[:36]
    text, found = redact(f"\n{token}\n\n{token} {token}\nbot583910274:AA{ALNUM[:33]}\n")
    assert re.sub(r"\[redacted:[a-z-]+\]", "*", text) == "\n*\n\n* *\nbot*\n"
    assert {f.code: f.message for f in found} == {
        "risk.secret.github-token": (
            "line 2: 40 characters that look like a live github-token were redacted (and 2 more)"
        ),
        "risk.secret.telegram-token": (
            "line 5: 45 characters that look like a live telegram-token were redacted"
        ),
    }


@pytest.mark.parametrize("word", ["fake", "todo", "your", "mock", "xxxx", "abc123", "sample", "example"])
def test_a_word_inside_a_long_key_makes_no_placeholder_of_it(word: str) -> None:
    pem = f"-----BEGIN RSA PRIVATE KEY-----\n{PEM_LINES}\nMIIE{ALNUM[:20]}{word}{ALNUM[20:]}\n-----END"
    token = ".".join(["eyJ" + ALNUM[:20], "eyJ" + ALNUM[5:30] + word + ALNUM[:20], ALNUM[3:40]])
    assert redact(pem)[0] == "-----BEGIN RSA PRIVATE KEY-----[redacted:private-key]-----END"
    assert redact(token)[0] == "[redacted:json-web-token]"


@pytest.mark.parametrize("word", ["fake", "todo", "your", "mock", "demo", "dummy"])
def test_a_short_word_marks_a_placeholder_only_where_a_piece_starts(word: str) -> None:
    inside = "ghp_" + ALNUM[:16] + word + ALNUM[16:36]
    start = f"ghp_{word}" + ALNUM[:36]
    assert redact(inside)[0] == "[redacted:github-token]"
    assert redact(start)[0] == start


def test_a_private_key_in_a_string_of_code_is_found() -> None:
    body = PEM_LINES.replace("\n", "\\n")
    text, _ = redact(f'key = "-----BEGIN PRIVATE KEY-----\\n{body}\\n-----END PRIVATE KEY-----\\n"')
    assert text == 'key = "-----BEGIN PRIVATE KEY-----[redacted:private-key]-----END PRIVATE KEY-----\\n"'


PIECES = [f"{before}{secret}{after}" for _, before, secret, after in SECRETS] + LEFT
PIECES += ["\n", " ", "ghp_", "sk-", "eyJ", "AKIA", ":AA", "Bearer ", "key=", '"', ALNUM, HEX]
PIECES.append("-----BEGIN PRIVATE KEY-----")


@settings(max_examples=200)
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@example("xoxb-2048102401-k9Qw7Zr5Tx3Vb1Nm8Lp2Sd4Fbot583910274:AAk9Qw7Zr5Tx3Vb1Nm8Lp2Sd4Fg6Hj0Kc7Y/send")
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once, _ = redact(text)
    assert redact(once) == (once, ())


@settings(max_examples=200)
@given(st.text(alphabet="abcdefgh ,.:/\n=\"'-_()", max_size=400))
def test_words_without_digits_are_never_touched(text: str) -> None:
    assert redact(text) == (text, ())


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "piece",
    slow_but(
        {"sk-", "authorization: basic aa", "a1B2"},
        [
            "sk-", "eyJ", "key=", "://a:", "ghp_", "a1B2", "-----BEGIN PRIVATE KEY-----\n", ALNUM,
            "curl -u a1:", "password=", "authorization: basic aa", "hvs.", f"curl -u me:{PASSWORD}\n",
        ],
    ),
)  # fmt: skip
def test_a_hostile_text_of_a_megabyte_is_read_through(piece: str) -> None:
    token = "glpat-" + ALNUM[:20]
    assert redact(piece * (1_000_000 // len(piece)) + f"\n{token}\n")[0].endswith(
        "\n[redacted:gitlab-token]\n"
    )


# Any code point, lone surrogates too, and often one of those that matter.
CONTROLS = "\x00\x07\x08\t\n\r\x1b\x7f\x85\x9b\xad\u061c\u200b\u200e\u2028\u202e\u2066\ufeff\ufffe\ud800"
ANY_TEXTS = st.text(st.one_of(st.characters(codec=None), st.sampled_from(CONTROLS)), max_size=60)
# Seen, or needed to write Persian, Hindi, emoji and hieroglyphs.
WRITING = {0x200C, 0x200D, *range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
HIEROGLYPHS = range(0x13430, 0x13460)
CLASSES = {"Cc", "Cf", "Cs", "Zl", "Zp"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]52;c;aGk=\x07rm", r"\x1b]52;c;aGk=\x07rm"),
        ("good\rbad", r"good\rbad"),
        ("one\ntwo\tthree", r"one\ntwo\tthree"),
        ("exe\u202egnp", r"exe\u202egnp"),
        ("\u2066a\u2069", r"\u2066a\u2069"),
        ("\x9b31m", r"\x9b31m"),
        ("half \ud83d", r"half \ud83d"),
        ("\U000e0041tag", r"\U000e0041tag"),
        ("héllo, 面包 خبز \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 👩\u200d🌾", None),
        (r"C:\new", None),
        ("", None),
    ],
)
def test_control_characters_stand_as_escapes_and_writing_stays(text: str, shown: str | None) -> None:
    assert visible(text) == (text if shown is None else shown)
    assert visible("a\n\tb\r\n\x1bc", lines=True) == "a\n\tb\\r\n\\x1bc"


def test_every_control_and_format_character_is_escaped_but_for_what_writing_needs() -> None:
    everything = map(chr, range(sys.maxunicode + 1))
    kept = {ord(c) for c in everything if visible(c) == c and unicodedata.category(c) in CLASSES}
    assert kept - set(HIEROGLYPHS) == WRITING


@given(ANY_TEXTS, st.booleans())
def test_any_text_becomes_one_that_a_terminal_and_xml_take(text: str, lines: bool) -> None:
    shown = visible(text, lines=lines)
    assert not {c for c in shown if unicodedata.category(c) in CLASSES - {"Cf"}} - set("\n\t" * lines)
    assert not any(unicodedata.bidirectional(c) in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI"} for c in shown)
    assert Xml.fromstring(f"<a>{escape(shown)}</a>").text == (shown or None)  # noqa: S314
    assert shown.encode("utf-8").decode("utf-8") == shown
    assert visible(shown, lines=lines) == shown


@given(ANY_TEXTS)
def test_what_is_left_without_the_escapes_is_the_text_itself(text: str) -> None:
    assert visible(text) == "".join(map(visible, text))
    assert all(visible(c) in {c, c.encode("unicode_escape").decode("ascii")} for c in text)


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "7", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "Sun, 01 Mar 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Sun, 01 Mar 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
    ],
)
def test_the_servers_word_on_waiting(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOON) == seconds


@given(st.integers(1, 60), st.floats(0, 0.999))
def test_a_wait_of_our_own_lies_between_the_least_and_the_longest(tried: int, draw: float) -> None:
    assert 0.5 <= RetryPolicy(wait_min=0.5, wait_max=20).backoff(tried, draw) <= 20


@pytest.mark.parametrize("wrong", [{"tries": 0}, {"wait_min": -1}, {"server_wait_max": -1}])
def test_a_policy_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(WrongInput):
        RetryPolicy(**wrong)  # type: ignore[arg-type]
