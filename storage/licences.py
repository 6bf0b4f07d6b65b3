"""`state/licences.json`: the class of every licence served, so that queries need no licence library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias, get_args

from storage.errors import StorageError
from storage.root import Root

LICENCES = "state/licences.json"

LicenceClass: TypeAlias = Literal["allow", "metadata-only", "deny"]
CLASSES: tuple[LicenceClass, ...] = get_args(LicenceClass)


@dataclass(frozen=True, slots=True)
class Licences:
    """The class of each licence under the policy of the last run.

    Args:
        classes: By SPDX expression; versions that are served no more have theirs here too.
        unknown: Of documents whose licence is not known.
    """

    classes: Mapping[str, LicenceClass]
    unknown: LicenceClass

    def class_of(self, licence: str | None) -> LicenceClass:
        """Return the class of a licence (None: unknown).

        One that no run has classed keeps its text back: nothing says that it may be shown.
        """
        return self.unknown if licence is None else self.classes.get(licence, "metadata-only")


def read_licences(root: Root) -> Licences | None:
    """Return what the last run wrote, or None where none has.

    Raises:
        StorageError: The file is damaged.
    """
    record = root.read_json(LICENCES)
    if record is None:
        return None
    classes, unknown = record.get("classes"), record.get("unknown")
    if not isinstance(classes, dict) or any(c not in CLASSES for c in (unknown, *classes.values())):
        msg = f"{root.at(LICENCES)} is damaged: delete it, then `skillery run --root {root.uri}`"
        raise StorageError(msg)
    return Licences(**record)


def require_licences(root: Root) -> Licences:
    """Return what the last run wrote.

    Raises:
        StorageError: The file is damaged, or missing: nothing says what may be shown.
    """
    found = read_licences(root)
    if found is None:
        msg = f"{root.at(LICENCES)} is missing: `skillery run --root {root.uri}` works it out"
        raise StorageError(msg)
    return found


def write_licences(root: Root, licences: Licences) -> None:
    """Replace the file in one step."""
    root.write_json(LICENCES, asdict(licences))
