"""The errors Skillery raises; terminal and transient ones differ by type."""

from __future__ import annotations

import re
from typing import Any, ClassVar


class SkilleryError(Exception):
    """Anything Skillery raises on purpose; its message names the input and what to do."""


class _Reasoned(SkilleryError):
    """Says about what (as the operator wrote it), why (a short stable code), what was found, what to do."""

    def __init__(self, about: str, reason: str, detail: str) -> None:
        super().__init__(f"{about}: {detail}")
        self.about, self.reason, self.detail = about, reason, detail


class TerminalError(SkilleryError):
    """Trying again cannot help."""


class TransientError(SkilleryError):
    """Trying again later may help."""


class WrongInput(TerminalError):
    """A command, setting or file that the user gave cannot be used (exit code 2)."""


class SourceError(_Reasoned, TerminalError):
    """A source cannot be read; `about` is its spec, `reason` a code such as `missing` or `columns`."""


class SourceUnavailable(_Reasoned, TransientError):
    """A source could not be looked at this time (time-out, cut connection); arguments as SourceError."""


class StorageError(TerminalError):
    """A file or table below the root is damaged or missing."""


class Missing(StorageError):
    """A file below the root is not there."""


class VersionGone(StorageError):
    """The version that a question was put to has been removed meanwhile: ask again."""


class Unreachable(TransientError):
    """The bucket of a root does not answer, or not to these credentials: its files are as they are."""

    AFTER: ClassVar[float] = 60.0  # seconds for which a request is made again before this is raised

    @classmethod
    def of(cls, where: str, error: Exception) -> Unreachable | None:
        """Return what to raise for a library's error, None if it is not of a bucket that did not answer.

        The message names the answer alone: what comes with it may hold an address with a password, or a key.
        """
        text = str(error)
        status = re.search(r"\bstatus(?: code)?:? (\d{3})(?: ([A-Z][\w ]*))?", text)
        code = re.search(r"<Code>(\w+)</Code>", text)
        if status and status[1] not in ("404", "412"):
            answer = f"{status[1]} {code[1] if code else status[2] or ''}".strip()
        elif not status and re.search(r"error sending request|HTTP error|Http\(|RetryError", text):
            answer = "no connection, or no answer in time"
        else:
            return None
        return cls(
            f"{where} cannot be reached ({answer}): look at AWS_ENDPOINT_URL, AWS_REGION and the "
            "credentials, and try again"
        )


class SchemaMismatch(StorageError):
    """A file or table has other columns than this program knows."""


class NewerSchema(SchemaMismatch):
    """A file or table was written by a newer version of this program; it is not damaged."""


class ModelMismatch(TerminalError):
    """The index was built with another encoder than the one configured."""


class EncodingTooLong(TransientError):
    """Texts could not be encoded in the time that a query may take."""


class Locked(TransientError):
    """Another process holds the root's writer lock."""


class NotPublished(TerminalError):
    """The root has no served index yet."""


class UnknownDocument(TerminalError):
    """No served document, and no alias of one, has this id."""


class Withheld(TerminalError):
    """The licence policy keeps this document's text back."""


class GateRefused(TerminalError):
    """A built version failed a check and is not served; `checks` are all that it was put to."""

    def __init__(self, message: str, checks: list[dict[str, object]] | None = None) -> None:
        super().__init__(message)
        self.checks = checks or []


class EvaluationFell(TerminalError):
    """What is served is worse than the thresholds allow; `found` holds the evaluation's figures."""

    def __init__(self, message: str, found: dict[str, Any]) -> None:
        super().__init__(message)
        self.found = found


class NothingReadable(TerminalError):
    """None of a run's sources could be read; `reports` says of each what was wrong."""

    def __init__(self, reports: list[dict[str, object]]) -> None:
        super().__init__("; ".join(str(report["message"]) for report in reports))
        self.reports = reports


class EnvironmentUnusable(_Reasoned, TerminalError):
    """What trajectories are replayed in, a command or an application in a browser, cannot be used.

    Codes are `start`, `answer`, `size` and `repeat`.
    """


class EnvironmentStopped(_Reasoned, TransientError):
    """What trajectories are replayed in ended (`ended`) or did not answer in time (`time`)."""
