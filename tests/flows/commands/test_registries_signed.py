"""A signed registry: one signature over all files, made with a key, verified offline with its other half."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from flows.commands.registries import publish_registry
from tasks.retrieve.registry.signature import SIGNATURE
from tasks.retrieve.registry.static import NOTES
from tests.support.command import Ask
from tests.support.registry_client import files_in
from tests.support.roots.skill_root import SkillRoot

INDEX = ".well-known/agent-skills/index.json"


def write_key(folder: Path, name: str, curve: ec.EllipticCurve | None = None) -> tuple[Path, Path]:
    """Write a pair of keys, of RSA without a curve, and return where the private and the public one lie."""
    key = ec.generate_private_key(curve) if curve else rsa.generate_private_key(65537, 2048)
    secret, public = folder / f"{name}.pem", folder / f"{name}.pub.pem"
    encoding, no = serialization.Encoding.PEM, serialization.NoEncryption()
    secret.write_bytes(key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, no))
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key.public_key().public_bytes(encoding, form))
    return secret, public


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory, storied: SkillRoot) -> Path:
    """A folder with a signed registry `site` and the keys `own` and `other`."""
    folder = tmp_path_factory.mktemp("signed")
    write_key(folder, "own", ec.SECP256R1())
    write_key(folder, "other", ec.SECP256R1())
    assert publish_registry(storied.root, f"{folder}/site", sign=folder / "own.pem")["signed"]
    return folder


def publish(ask: Ask, root: SkillRoot, folder: Path, *options: str) -> None:
    done = ask("publish", "--out", f"{folder}/site", *options, "--root", root.root.uri)
    assert (done.code, "; signed;" in done.stdout) == (0, bool(options)), done.stderr


def verify(ask: Ask, site: Path, key: Path) -> tuple[int, str]:
    done = ask("verify", "--registry", str(site), "--key", str(key))
    return done.code, done.stdout + done.stderr


def archive(site: Path) -> Path:
    return min((site / ".well-known/agent-skills/archives").iterdir())


TAMPERINGS: dict[str, Callable[[Path], object]] = {
    "a byte of the index": lambda site: (site / INDEX).write_bytes((site / INDEX).read_bytes() + b" "),
    "a byte of an archive": lambda site: archive(site).write_bytes(archive(site).read_bytes() + b"\0"),
    "an empty archive": lambda site: archive(site).write_bytes(b""),
    "an archive less": lambda site: archive(site).unlink(),
    "an archive under another name": lambda site: archive(site).rename(site / "moved.zip"),
    "a file more": lambda site: (site / "more.json").write_bytes(b"{}"),
    "a hidden file more": lambda site: (site / ".gitattributes").write_bytes(b"* text"),
    "a file in git's folder": lambda site: (
        (site / ".git").mkdir(), (site / ".git/config").write_bytes(b"[core]\n"),
    ),
    "a link in place of a file": lambda site: (
        shutil.move(site / INDEX, site.parent / "index"), (site / INDEX).symlink_to(site.parent / "index"),
    ),
    "a cut signature": lambda site: (site / SIGNATURE).write_bytes((site / SIGNATURE).read_bytes()[:-40]),
    "a signature of another format": lambda site: (site / SIGNATURE).write_bytes(b"{}"),
}  # fmt: skip


@pytest.mark.parametrize("tampering", TAMPERINGS.values(), ids=TAMPERINGS.keys())
def test_each_tampering_with_a_signed_registry_is_found(
    signed: Path, tmp_path: Path, ask: Ask, tampering: Callable[[Path], object]
) -> None:
    site = shutil.copytree(signed / "site", tmp_path / "site")
    code, said = verify(ask, site, signed / "own.pub.pem")
    assert (code, "every file is as" in said) == (0, True), said
    tampering(site)
    code, said = verify(ask, site, signed / "own.pub.pem")
    assert (code, "not as the holder of" in said) == (1, True), said
    assert not any(word in said for word in ("Traceback", "Digest("))


def test_only_the_holder_of_the_key_signs(signed: Path, tmp_path: Path, storied: SkillRoot, ask: Ask) -> None:
    """Another's signature is not believed, and an unchanged registry keeps the signature that it has."""
    assert verify(ask, signed / "site", signed / "other.pub.pem")[0] == 1
    shutil.copytree(signed / "site", tmp_path / "site")
    held = tmp_path / "site" / SIGNATURE
    before = held.read_bytes()
    publish(ask, storied, tmp_path, "--sign", f"{signed}/own.pem")
    assert held.read_bytes() == before
    publish(ask, storied, tmp_path, "--sign", f"{signed}/other.pem")
    assert held.read_bytes() != before
    assert verify(ask, tmp_path / "site", signed / "other.pub.pem")[0] == 0
    publish(ask, storied, tmp_path)
    assert not held.exists()  # it would be of other files
    code, said = verify(ask, tmp_path / "site", signed / "own.pub.pem")
    assert (code, f"has no {SIGNATURE}" in said) == (2, True)


def test_what_others_changed_is_never_signed(
    signed: Path, tmp_path: Path, storied: SkillRoot, ask: Ask
) -> None:
    """A registry that is not as it was signed is written anew, and a file of others is refused by name."""
    site = shutil.copytree(signed / "site", tmp_path / "site")
    before = files_in(site)
    skill = min((site / ".well-known/skills").rglob("SKILL.md"))
    for spoilt in (skill, archive(site)):
        spoilt.write_bytes(spoilt.read_bytes() + b"Then run evil.")
    notes = json.loads((site / NOTES).read_bytes())
    evil = site / f".well-known/agent-skills/archives/{hashlib.sha256(b'evil').hexdigest()}.zip"
    evil.write_bytes(b"evil")
    notes["archives"][evil.relative_to(site).as_posix()] = ["local/market/bees", 1]
    (site / NOTES).write_text(json.dumps(notes), "utf-8")
    publish(ask, storied, tmp_path, "--sign", f"{signed}/own.pem")
    assert verify(ask, site, signed / "own.pub.pem")[0] == 0
    same = {path for path, content in before.items() if files_in(site).get(path) == content}
    assert before.keys() - same <= {SIGNATURE, NOTES}
    assert files_in(site).keys() == before.keys()
    (site / "planted.json").write_bytes(b"{}")
    done = ask("publish", "--out", str(site), "--sign", f"{signed}/own.pem", "--root", storied.root.uri)
    assert (done.code, "planted.json is none of the registry's files" in done.stderr) == (2, True)
    assert verify(ask, site, signed / "own.pub.pem")[0] == 1


def test_what_is_no_key_is_told_in_a_line(signed: Path, tmp_path: Path, storied: SkillRoot, ask: Ask) -> None:
    """Nothing is written before the key is known to sign."""
    rsa_key, rsa_public = write_key(tmp_path, "rsa")
    nothing = tmp_path / "nothing.pem"
    for key in (rsa_key, nothing, signed / "own.pub.pem"):
        done = ask("publish", "--out", f"{tmp_path}/new", "--sign", str(key), "--root", storied.root.uri)
        assert (done.code, done.stderr.count("\n"), str(key) in done.stderr) == (2, 1, True), done.stderr
    assert not (tmp_path / "new").exists()
    for key in (rsa_public, nothing, signed / "own.pem"):
        code, said = verify(ask, signed / "site", key)
        assert (code, said.count("\n"), str(key) in said) == (2, 1, True), said
    code, said = verify(ask, tmp_path, signed / "own.pub.pem")
    assert (code, "has no" in said) == (2, True)
    done = ask("verify", "--registry", str(signed / "site"))
    assert (done.code, "go together" in done.stderr) == (2, True)
