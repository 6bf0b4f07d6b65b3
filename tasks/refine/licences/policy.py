"""The licence policy: which class a licence has, for answers here and for exports."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import polars as pl
from boolean import Expression
from license_expression import AND, OR, ExpressionError, LicenseWithExceptionSymbol

from storage.errors import WrongInput
from storage.lance.served import CLASSES, LicenceClass
from tasks.refine.licences.names import PROPRIETARY, spdx_licensing

# Licences that ask for a notice at most. Copyleft, non-commercial and no-derivatives terms ask for more than
# a mixed corpus can promise: they are `other` licences.
PERMISSIVE = (
    "MIT", "MIT-0", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "0BSD", "Zlib", "BSL-1.0",
    "Unlicense", "CC0-1.0", "CC-BY-4.0",
)  # fmt: skip
REFUSING = (PROPRIETARY, "LicenseRef-Source-Available")


def require_classes(names: Iterable[str]) -> frozenset[LicenceClass]:
    """Return names of licence classes as a set; raise `WrongInput` if one is no class."""
    given = frozenset(names)
    if strange := sorted(given - set(CLASSES)):
        raise WrongInput(f"licence class {strange[0]!r} is not known: choose one of {', '.join(CLASSES)}")
    return cast("frozenset[LicenceClass]", given)


@dataclass(frozen=True, slots=True)
class LicencePolicy:
    """The class of each licence.

    Raises:
        WrongInput: A licence is both allowed and denied, or `unknown` or `other` is no class.
    """

    allow: tuple[str, ...] = PERMISSIVE  # SPDX identifiers
    deny: tuple[str, ...] = REFUSING  # SPDX identifiers
    unknown: LicenceClass = "metadata-only"  # the class of a document without a known licence
    other: LicenceClass = "metadata-only"  # the class of a known licence that is in neither list

    def __post_init__(self) -> None:
        # JSON has lists only.
        object.__setattr__(self, "allow", tuple(self.allow))
        object.__setattr__(self, "deny", tuple(self.deny))
        if both := sorted(set(self.allow) & set(self.deny)):
            raise WrongInput(f"licence {both[0]} is both allowed and denied: name it once")
        require_classes((self.unknown, self.other))


# An export passes texts on, which an unlicensed text forbids, as does one that asks for more than a notice. A
# search on the machine that fetched the texts passes nothing on, so only a refusal keeps a text back. Were
# unknown licences kept back too, little could be answered: of 61,452 skills 0.7 % state a licence.
EXPORT_POLICY = LicencePolicy()
SERVE_POLICY = LicencePolicy(unknown="allow", other="allow")


def licence_policy(
    allow: Sequence[str] | None, deny: Sequence[str] | None, *, unknown: LicenceClass, other: LicenceClass
) -> LicencePolicy:
    """Return the policy that settings name, its SPDX identifiers checked and spelt as SPDX spells them.

    Without a list, the default identifiers count that are not in the other one.

    Raises:
        WrongInput: An identifier is neither known to SPDX nor a LicenseRef, or stands in both lists.
    """
    allowed = [_spdx("licences_allow", name) for name in allow or ()]
    denied = [_spdx("licences_deny", name) for name in deny or ()]
    if allow is None:
        allowed = [name for name in PERMISSIVE if name not in denied]
    if deny is None:
        denied = [name for name in REFUSING if name not in allowed]
    return LicencePolicy(tuple(allowed), tuple(denied), unknown, other)


def _spdx(setting: str, name: str) -> str:
    licensing = spdx_licensing()
    try:
        tree = licensing.parse(name)
        unknown = [key for key in licensing.unknown_license_keys(tree) if not key.startswith("LicenseRef-")]
    except (ExpressionError, IndexError):  # the latter for empty brackets
        tree, unknown = None, []
    if tree is None or unknown or isinstance(tree, AND | OR):
        msg = f"{setting}: {name!r} is no SPDX identifier; those are listed at https://spdx.org/licenses"
        raise WrongInput(msg)
    return str(tree)


@functools.lru_cache(maxsize=4096)
def _parsed(licence: str) -> Expression | None:
    return spdx_licensing().parse(licence)


def _of_symbol(key: str, policy: LicencePolicy) -> LicenceClass:
    if key in policy.deny:
        return "deny"
    return "allow" if key in policy.allow else policy.other


def _of_tree(tree: Expression, policy: LicencePolicy) -> LicenceClass:
    """Return the class of an expression: the strictest of terms joined by AND, the mildest of a choice."""
    if isinstance(tree, AND | OR):
        classes = sorted((_of_tree(part, policy) for part in tree.args), key=CLASSES.index)
        return classes[-1] if isinstance(tree, AND) else classes[0]
    if isinstance(tree, LicenseWithExceptionSymbol):
        listed = str(tree) in (*policy.allow, *policy.deny)
        return _of_symbol(str(tree) if listed else tree.license_symbol.key, policy)
    return _of_symbol(tree.key, policy)


def licence_class(licence: str | None, policy: LicencePolicy) -> LicenceClass:
    """Return the class of a licence under a policy; None and texts that are not SPDX count as unknown."""
    try:
        tree = _parsed(licence) if licence else None
    except ExpressionError:
        tree = None
    return policy.unknown if tree is None else _of_tree(tree, policy)


def licence_classes(licences: pl.Series, policy: LicencePolicy) -> pl.Series:
    """Return the class of each licence of a series."""
    known = {licence: licence_class(licence, policy) for licence in licences.unique()}
    return pl.Series("licence_class", [known[licence] for licence in licences], dtype=pl.String)


def count_classes(licences: pl.Series, policy: LicencePolicy) -> dict[LicenceClass, int]:
    """Return how many of these licences are of each class, 0 included."""
    counts = Counter(licence_classes(licences, policy))
    return {name: counts[name] for name in CLASSES}
