"""What a source yields: documents, and what it has to say of documents it does not yield."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from storage.schemas import Dropped, Listing, RawDocument


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Documents that were looked at and are as they were."""

    doc_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Missed:
    """Documents that could not be looked at: what is known of them stays, marked stale.

    `reason` is a short stable code such as `missing`, `denied`, `too-large`, `timeout`.
    """

    doc_ids: tuple[str, ...]
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Gone:
    """Documents that are no longer to be served: removed by their owner, missed too often, or withdrawn."""

    doc_ids: tuple[str, ...]
    reason: Literal["retired", "withdrawn"]
    detail: str


Item: TypeAlias = RawDocument | Dropped | Listing | Unchanged | Missed | Gone


@dataclass(frozen=True, slots=True)
class Usage:
    """What a reading cost: requests sent, retries included; quota left of the day, None for no quota."""

    requests: int = 0
    quota_left: int | None = None
