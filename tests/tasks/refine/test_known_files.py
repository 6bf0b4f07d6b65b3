"""Known files: what a skill's card, benchmark, tests and signature say, in `show` and in an export."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import model_signing
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from storage.lance.served import Licences, write_licences
from tasks.evaluate.routing.data import read_qrels, read_tasks
from tasks.refine.export.export import export_corpus
from tasks.refine.known_files import eval_requests, known_facts, routing_lines
from tasks.refine.signatures import signature_facts
from tasks.retrieve.install.contents import prepare
from tasks.retrieve.revisions.show import open_edition, shown
from tests.support.roots.nights import HandSource, Nights, raw, with_files

EVALS = [
    {"id": "a", "question": "When does the tide turn?", "expected_skill": "tide"},
    {"id": "b", "question": "Bake a cake.", "expected_skill": None},
    {"id": "a", "question": "Again", "expected_skill": "tide"},
    {"question": " "},
    "no object",
]
FILES = {
    "evals/evals.json": json.dumps(EVALS).encode(),
    "skill-card.md": b"# Tide\n\n## Owner\nAnn,\nof the sea\n\n## Empty\n\n## License\nMIT\n",
    "BENCHMARK.md": b"## Results\n| agent | passed |\n|---|---|\n| one | 9 |\n",
    "scripts/tide.py": b"print(1)\n",
}
TEXT = b"---\nname: tide\ndescription: Reads tide tables.\nlicense: MIT\n---\nLook it up.\n"


def night(folder: Path, files: dict[str, bytes]) -> Nights:
    nights = Nights(folder / "root")
    nights.run(HandSource("git+https://example.org/o/r", with_files(raw("o/r/tide", TEXT), files)))
    write_licences(nights.root, Licences({"MIT": "allow"}, "deny"))
    return nights


def test_show_and_export_have_the_facts_of_known_files(tmp_path: Path) -> None:
    nights = night(tmp_path, FILES)
    assert shown(*open_edition(nights.root, "o/r/tide"))["known_files"] == {
        "evals": {"queries": 1, "negatives": 1},
        "card": {"Owner": "Ann, of the sea", "License": "MIT"},
        "benchmark": {"Results": "| agent | passed | |---|---| | one | 9 |"},
    }
    export_corpus(nights.root, tmp_path / "out", now=nights.now)
    bench = tmp_path / "out/routing"
    (task,) = read_tasks(bench / "queries.jsonl")
    (qrel,) = read_qrels(bench / "qrels.jsonl")
    (negative,) = read_tasks(bench / "negatives.jsonl")
    assert (task.text, qrel.query_id, qrel.doc_id) == ("When does the tide turn?", task.query_id, "o/r/tide")
    assert (negative.text, negative.not_doc_id) == ("Bake a cake.", "o/r/tide")
    bare = night(tmp_path / "bare", {})
    assert shown(*open_edition(bare.root, "o/r/tide"))["known_files"] == {}
    export_corpus(bare.root, tmp_path / "bare/out", now=bare.now)
    assert not (tmp_path / "bare/out/routing").exists()


def test_show_and_install_tell_the_signature_of_what_was_fetched(
    tmp_path: Path, bundles: dict[str, bytes]
) -> None:
    """What looks like a key in it is none: it is kept as it came."""
    signed = {path: content for path, content in TIDE.items() if path != "SKILL.md"}
    nights = night(tmp_path, {**signed, SIGNED: bundles["certificate"]})
    edition, alias = open_edition(nights.root, "o/r/tide")
    found = shown(edition, alias)["known_files"]["signature"]
    assert found == facts(bundles["certificate"])
    assert prepare(edition, (), ()).told()["signature"] == found


@given(st.binary(max_size=200))
def test_any_bytes_have_facts_or_none(content: bytes) -> None:
    files = dict.fromkeys(FILES, content)
    assert set(known_facts(files)) <= {"evals", "card", "benchmark"}
    assert eval_requests({"evals/evals.json": b"[" * 10_000}) == []
    half = b'[{"id": "\\ud800", "question": "x \\ud800", "expected_skill": "a"}]'
    (line,) = routing_lines("d", {"evals/evals.json": half})["queries.jsonl"]
    assert json.dumps(line, ensure_ascii=False).encode()


SIGNED = "skill.oms.sig"
TIDE = {
    "SKILL.md": TEXT,
    "ref/a.md": b"High.\n",
    "scripts/tide.py": b"print(1)\n",
}
KEY = ec.generate_private_key(ec.SECP384R1())
DER = serialization.Encoding.DER
UNVOUCHED = "which nobody here vouches for"


def certificate(
    key: ec.EllipticCurvePrivateKey, *, name: str = "", url: str = "", extensions: Sequence[str] = (),
    content: bytes = b"",
) -> x509.Certificate:  # fmt: skip
    """Return a certificate of a key that names itself; `extensions` have this `content`."""
    whose = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)] if name else [])
    by = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Root of the sea")])
    made = x509.CertificateBuilder().subject_name(whose).issuer_name(by).public_key(key.public_key())
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    made = made.serial_number(7).not_valid_before(begin).not_valid_after(begin + timedelta(days=9))
    if url:
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(url)])
        made = made.add_extension(names, critical=False)
    for each in extensions:
        made = made.add_extension(
            x509.UnrecognizedExtension(x509.ObjectIdentifier(each), content), critical=False
        )
    return made.sign(key, hashes.SHA256())


CERTIFICATE = certificate(KEY, name="Signing 001")


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Signatures of the files, by how they were made: with a certificate, with a key alone."""
    folder = tmp_path_factory.mktemp("signed")
    for path, content in TIDE.items():
        (folder / "tide" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "tide" / path).write_bytes(content)
    pem, no = serialization.Encoding.PEM, serialization.NoEncryption()
    (folder / "key.pem").write_bytes(KEY.private_bytes(pem, serialization.PrivateFormat.PKCS8, no))
    (folder / "leaf.pem").write_bytes(CERTIFICATE.public_bytes(pem))
    ways: dict[str, Callable[[Any], Any]] = {
        "certificate": lambda signing: signing.use_certificate_signer(
            private_key=folder / "key.pem", signing_certificate=folder / "leaf.pem",
            certificate_chain=[folder / "leaf.pem"],
        ),
        "key": lambda signing: signing.use_elliptic_key_signer(private_key=folder / "key.pem"),
    }  # fmt: skip
    for way, use in ways.items():
        use(model_signing.signing.Config()).sign(folder / "tide", folder / way)
    return {way: (folder / way).read_bytes() for way in ways}


def row_of(files: dict[str, bytes]) -> dict[str, Any]:
    digests = {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}
    listed = [{"path": path, "sha256": digest} for path, digest in digests.items() if path != "SKILL.md"]
    return {"raw_hash": digests["SKILL.md"], "files": listed}


def facts(bundle: bytes, changed: dict[str, bytes] | None = None, *, name: str = SIGNED) -> dict[str, str]:
    files = {path: content for path, content in {**TIDE, **(changed or {})}.items() if content}
    return signature_facts({**files, name: bundle}, row_of({**files, name: bundle}))


def test_who_signed_is_told_with_what_tells_it_from_others_of_that_name(bundles: dict[str, bytes]) -> None:
    found = facts(bundles["certificate"])
    mark = CERTIFICATE.fingerprint(hashes.SHA256()).hex()
    assert found["signed by"].startswith("CN=Signing 001, as its certificate says")
    assert found["signed by"].endswith(f"(SHA-256 {mark}, issued by CN=Root of the sea)")
    assert (UNVOUCHED in found["proof"], found["files"]) == (True, "all 3 are as it states")
    alone = facts(bundles["key"])
    assert alone["signed by"].startswith("a key with the hint ")
    assert alone["proof"].startswith("not checked")
    assert signature_facts(TIDE, row_of(TIDE)) == {}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"ref/a.md": b"Low."}, "changed since: ref/a.md"),
        ({"SKILL.md": b"x"}, "changed since: SKILL.md"),
        ({"more.py": b"x"}, "not signed: more.py"),
        ({"ref/a.md": b""}, "signed and not here: ref/a.md"),
    ],
)
def test_a_file_that_was_not_signed_so_is_named(
    bundles: dict[str, bytes], changed: dict[str, bytes], told: str
) -> None:
    assert facts(bundles["certificate"], changed)["files"] == told


def test_a_signature_of_another_key_is_none_of_the_certificate_s(bundles: dict[str, bytes]) -> None:
    """Anybody can put a known certificate beside a statement of his own."""
    bundle = json.loads(bundles["certificate"])
    held = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    held["predicate"]["resources"][0]["digest"] = "0" * 64
    bundle["dsseEnvelope"]["payload"] = base64.b64encode(json.dumps(held).encode()).decode()
    found = facts(json.dumps(bundle).encode())
    assert found["proof"].startswith(
        "none: not made with the key of its certificate, which names CN=Signing 001"
    )
    assert found.keys() == {"file", "proof"}


def over_one_file(key: ec.EllipticCurvePrivateKey, der: bytes) -> bytes:
    """Return a bundle as clients of Sigstore make them; `der` is the certificate."""
    signed = TIDE["SKILL.md"]
    sides = {
        "digest": hashlib.sha256(signed).digest(), "signature": key.sign(signed, ec.ECDSA(hashes.SHA256())),
        "leaf": der,
    }  # fmt: skip
    text = {name: base64.b64encode(content).decode() for name, content in sides.items()}
    bundle = {
        "verificationMaterial": {"certificate": {"rawBytes": text["leaf"]}},
        "messageSignature": {
            "messageDigest": {"algorithm": "SHA2_256", "digest": text["digest"]},
            "signature": text["signature"],
        },
    }  # fmt: skip
    return json.dumps(bundle).encode()


def test_a_signature_over_one_file_says_so() -> None:
    """An identity provider knows the address that its certificate names."""
    key = ec.generate_private_key(ec.SECP256R1())
    leaf = certificate(key, url="https://example.org/ann/sea/release.yml")
    found = facts(over_one_file(key, leaf.public_bytes(DER)), name="SKILL.sigstore")
    assert found["signed by"].startswith("https://example.org/ann/sea/release.yml, as its certificate says")
    assert (UNVOUCHED in found["proof"], found["files"]) == (True, "not signed: ref/a.md, scripts/tide.py")


@pytest.mark.parametrize(("extension", "content"), [("1.2.3.4", "0500"), ("2.5.29.17", "3004a3020500")])
def test_a_certificate_with_extensions_that_no_library_reads_is_told(extension: str, content: str) -> None:
    """One that has the same twice; one whose name is of an obsolete kind."""
    made = certificate(
        KEY, name="Ann\x1b[2K", extensions=(extension, "1.2.3.5"), content=bytes.fromhex(content)
    )
    der = made.public_bytes(DER).replace(bytes.fromhex("06032a0305"), bytes.fromhex("06032a0304"))
    assert facts(over_one_file(KEY, der), name="SKILL.sigstore")["signed by"].startswith(r"CN=Ann\x1b[2K, as")


@given(st.binary(max_size=200) | st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from(["verificationMaterial", "dsseEnvelope", "messageSignature", "payload", "x"]), inner,
    ), max_leaves=8,
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_whatever_a_signature_holds_is_told_in_a_line(content: bytes) -> None:
    found = facts(content)
    assert (found["file"], bool(found["proof"])) == (SIGNED, True)
