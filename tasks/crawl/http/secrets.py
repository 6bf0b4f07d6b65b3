"""Secrets: credentials that print as asterisks and go to their own host only."""

from __future__ import annotations

import hashlib
import hmac
import os

from storage.errors import WrongInput


class Secret:
    """A credential, or none: it is false where it is empty, and prints as `***`.

    Args:
        value: The credential; white space around it is cut off, None and "" mean that there is none.

    Raises:
        WrongInput: It holds what no HTTP header can carry, such as a line break; the message hides it.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str | None = None) -> None:
        stripped = (value or "").strip()
        if not (stripped.isascii() and stripped.isprintable()):
            msg = "a credential holds line breaks or characters beyond ASCII: set it to the bare token"
            raise WrongInput(msg)
        self._value = stripped

    def reveal(self) -> str:
        """Return the credential itself, to be put into a request and nowhere else."""
        return self._value

    def fingerprint(self) -> str:
        """Return 12 hexadecimal digits of its SHA-256: they tell credentials apart and give none away."""
        return hashlib.sha256(self._value.encode()).hexdigest()[:12]

    def hide(self, body: bytes) -> bytes:
        """Return a text with every occurrence of the credential replaced by `***`."""
        return body.replace(self._value.encode(), b"***") if self._value else body

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._value, other._value)

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return "***"


GITHUB_TOKEN, SKILLSMP_KEY = "GITHUB_TOKEN", "SKILLERY_SKILLSMP_KEY"


def credential(variable: str) -> Secret:
    """Return the credential in an environment variable; a secret without a value where it is not set."""
    return Secret(os.environ.get(variable))
