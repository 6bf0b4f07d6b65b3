"""The signature that comes with a skill: who says to have signed, and which of its files are as signed.

It is a Sigstore bundle in the form of OpenSSF Model Signing, or over one file. It is read offline, and nobody
is trusted: whoever likes to may make a certificate that names somebody else, or sign what they changed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tasks.models.visible import visible

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

NAMES = ("skill.oms.sig", "skill.sigstore")  # in lower case
_SKILL_FILE = "SKILL.md"
_MOST_NAMED, _MOST_CHARS = 5, 300
_UNVOUCHED = "made with the key of that certificate, which nobody here vouches for"
_NO_KEY = "not checked: it names no certificate, so whose key made it is not known"
_BROKEN = "none: not made with the key of its certificate, which names "
_OTHER_KEY = "not checked: its key is none of the elliptic curves that are read"


def signature_facts(contents: Mapping[str, bytes], row: Mapping[str, Any]) -> dict[str, str]:
    """Return what the signature among a skill's files says, and whether that is so; empty: there is none.

    `row` is the skill's of DOCUMENTS, which has the digests of its files as they were fetched.
    """
    path = min((path for path in contents if path.lower() in NAMES), default=None)
    if path is None:
        return {}
    try:
        return {"file": path, **_facts(json.loads(contents[path]), path, row)}
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return {"file": path, "proof": "none: it is no Sigstore bundle that is read here"}


def _facts(bundle: Mapping[str, Any], path: str, row: Mapping[str, Any]) -> dict[str, str]:
    material = bundle["verificationMaterial"]
    chain = material.get("x509CertificateChain", {}).get("certificates") or [material.get("certificate")]
    if "dsseEnvelope" in bundle:
        envelope = bundle["dsseEnvelope"]
        payload, kind = _bytes(envelope["payload"]), envelope["payloadType"].encode()
        made, of = _bytes(envelope["signatures"][0]["sig"]), b"DSSEv1 %d %s %d %s"
        signed, hashed = of % (len(kind), kind, len(payload), payload), False
        resources = json.loads(payload)["predicate"]["resources"]
        stated = {str(one["name"]): str(one["digest"]) for one in resources if one["algorithm"] == "sha256"}
    else:
        signature = bundle["messageSignature"]
        made, hashed = _bytes(signature["signature"]), True
        signed = _bytes(signature["messageDigest"]["digest"])
        stated = {_SKILL_FILE: signed.hex()}
    files = {"files": _compared(stated, path, row)}
    if not chain[0]:
        hint = str(material.get("publicKey", {}).get("hint") or "unknown")
        return {"signed by": f"a key with the hint {_line(hint)}", "proof": _NO_KEY, **files}
    from cryptography import x509  # noqa: PLC0415 (few skills are signed)

    certificate = x509.load_der_x509_certificate(_bytes(chain[0]["rawBytes"]))
    proof = _proof(certificate, made, signed, hashed=hashed)
    if proof == _BROKEN:  # so nobody signed, least of all whom it names
        return {"proof": proof + _named(certificate)}
    return {"signed by": _named(certificate), "proof": proof, **files}


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _line(text: str) -> str:
    return visible(" ".join(text.split()))[:_MOST_CHARS]


def _named(certificate: Certificate) -> str:
    """Return whom a certificate names, by which it can be told from others of that name."""
    from cryptography import x509  # noqa: PLC0415 (as above)
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415

    subject = certificate.subject.rfc4514_string()
    try:  # that of a person or a workflow, to whom an identity provider vouched
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        subject = subject or ", ".join(str(name.value) for name in names)
    except (x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        pass
    issuer, mark = certificate.issuer.rfc4514_string(), certificate.fingerprint(SHA256()).hex()
    return f"{_line(subject)}, as its certificate says (SHA-256 {mark}, issued by {_line(issuer)})"


def _proof(certificate: Certificate, made: bytes, signed: bytes, *, hashed: bool) -> str:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm  # noqa: PLC0415 (as above)
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec, utils  # noqa: PLC0415

    by_size: dict[int, Callable[[], hashes.HashAlgorithm]] = {
        256: hashes.SHA256, 384: hashes.SHA384, 521: hashes.SHA512,
    }  # fmt: skip
    try:
        key = certificate.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey) or key.key_size not in by_size:
            return _OTHER_KEY
        digest = utils.Prehashed(hashes.SHA256()) if hashed else by_size[key.key_size]()
        key.verify(made, signed, ec.ECDSA(digest))
    except UnsupportedAlgorithm:
        return _OTHER_KEY
    except InvalidSignature:
        return _BROKEN
    return _UNVOUCHED


def _compared(stated: Mapping[str, str], path: str, row: Mapping[str, Any]) -> str:
    """Return how the files of a skill, as they were fetched, differ from those that were signed."""
    if row["files"] is None:
        return "not known, so not compared"
    held = {_SKILL_FILE: row["raw_hash"], **{file["path"]: file["sha256"] for file in row["files"]}}
    held.pop(path, None)
    both = stated.keys() & held.keys()
    differing = {
        "changed since": {name for name in both if stated[name] != held[name]},
        "not signed": held.keys() - both,
        "signed and not here": stated.keys() - both,
    }
    told = [f"{how}: {_listed(sorted(names))}" for how, names in differing.items() if names]
    return "; ".join(told) or f"all {len(both)} are as it states"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(_line(name) for name in names[:_MOST_NAMED])}{more}"
