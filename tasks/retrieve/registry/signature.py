"""The signature of a static registry: one file beside the others, made and verified offline with a key.

It is a Sigstore bundle in the form of OpenSSF Model Signing over the SHA-256 of every file of the folder. A
key of an elliptic curve signs it. It says that its holder published these files, nothing of what they do.
"""

from __future__ import annotations

import ast
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.errors import WrongInput
from storage.root import Root

if TYPE_CHECKING:
    from model_signing import hashing

SIGNATURE = "skillery-registry.sig"
_MOST_TOLD = 600  # characters of what differs


class RegistrySigner:
    """Signs a registry with the private key of a PEM file.

    Raises `WrongInput` if the place is no folder, the file holds no such key, or the extra is missing.
    """

    def __init__(self, place: Root, key: Path) -> None:
        _require_folder(place)
        self._signing = _model_signing().signing.Config()
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 (comes with the extra)

        try:
            self._signing.use_elliptic_key_signer(private_key=key)
            public = serialization.load_pem_private_key(key.read_bytes(), None).public_key()
        except (OSError, ValueError, TypeError, AttributeError) as error:
            msg = f"--sign {key} holds no private key of an elliptic curve as PEM without a password: {error}"
            raise WrongInput(msg) from error
        self._place = place
        self._public = public.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    def is_signed(self) -> bool:
        """Return whether every file is as this key signed it: what differs may be anybody's."""
        with tempfile.NamedTemporaryFile(prefix="skillery-", suffix=".pem") as public:
            public.write(self._public)
            public.flush()
            return self._place.exists(SIGNATURE) and difference(self._place, Path(public.name)) is None

    def sign(self) -> None:
        """Sign all files."""
        with tempfile.TemporaryDirectory(prefix="skillery-sign-") as folder:
            made = Path(folder, SIGNATURE)
            self._signing.set_hashing_config(_hashing()).sign(Path(self._place.uri), made)
            self._place.write(SIGNATURE, made.read_bytes())


def difference(place: Root, key: Path) -> str | None:
    """Return how a registry differs from what the holder of a key signed; None: it does not.

    `key` is a PEM file with the public key. Raises `WrongInput` if the place is no folder or has no
    signature, the file holds no such key, or the extra is missing.
    """
    _require_folder(place)
    if not place.exists(SIGNATURE):
        msg = f"{place.uri} has no {SIGNATURE}: its publisher makes it by `skillery publish --sign KEY.pem`"
        raise WrongInput(msg)
    verifying = _model_signing().verifying.Config()
    try:
        verifying.use_elliptic_key_verifier(public_key=key)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise WrongInput(f"--key {key} holds no public key of an elliptic curve as PEM: {error}") from error
    try:
        verifying.set_hashing_config(_hashing()).verify(Path(place.uri), Path(place.at(SIGNATURE)))
    except Exception as error:  # whatever the parsers of a forged signature raise
        told = _told(str(error)) or type(error).__name__
        return told if len(told) <= _MOST_TOLD else f"{told[:_MOST_TOLD]} ..."
    return None


def _told(error: str) -> str:
    """Return what the library says in a line, without the digests of files that were changed."""
    try:
        parts = [str(part) for part in ast.literal_eval(error.partition("Signature mismatch: ")[2])]
    except (ValueError, SyntaxError):  # it says something else
        parts = [error]
    changed = (
        part.replace("Hash mismatch for '", "changed: ").partition("': Expected '")[0] for part in parts
    )
    return "; ".join(" ".join(part.split()) for part in changed)


def _hashing() -> hashing.Config:
    """Return how files are hashed: all but the signature, those of git's names included."""
    config: hashing.Config = _model_signing().hashing.Config()
    return config.set_ignored_paths(paths=[SIGNATURE], ignore_git_paths=False)


def _require_folder(place: Root) -> None:
    if place.uri.startswith("s3://"):
        raise WrongInput(f"{place.uri} is no folder: sign a registry in one, then copy it to the bucket")


def _model_signing() -> Any:  # noqa: ANN401 (an extra, without types)
    try:
        import model_signing  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise WrongInput("signatures need an extra: pip install '.[sign]' in Skillery's folder") from error
    return model_signing
