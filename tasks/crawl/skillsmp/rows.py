"""One row of SkillsMP's listings as a `Listing`, in whatever form it comes."""

from __future__ import annotations

from collections.abc import Mapping

from storage.schemas import Dropped, Listing
from tasks.crawl.source.fields import count_of, text_of, time_of
from tasks.crawl.source.identity import hide_credentials


def listing_of(record: object, source: str) -> Listing | Dropped:
    """Return a marketplace's row as a listing, or why it is none; no JSON value raises.

    `githubUrl` alone says where the skill is: `branch` contradicts it, `path` counts from the skill's folder,
    and the slugs of `route` and `id` are lossy. So a row without one is dropped as `no-url`; what is no
    object, or lacks `id` and `githubUrl`, is dropped as `malformed`.

    Args:
        record: What the JSON of a page holds in one place of its list.
        source: The spec of the source.
    """
    if not isinstance(record, Mapping):
        return Dropped("", source, "malformed", f"the row is {_kind(record)}, not an object")
    row_id, url = text_of(record.get("id")), text_of(record.get("githubUrl"))
    name = text_of(record.get("name"))
    if url is None and row_id is None:
        detail = f"the row of {name or 'an unnamed skill'} lacks id and githubUrl"
        return Dropped("", source, "malformed", detail)
    if url is None:
        return Dropped(row_id or "", source, "no-url", f"{name or row_id}: githubUrl is missing or empty")
    shown = hide_credentials(url)
    return Listing(
        source=source,
        source_id=row_id or shown,
        name=name,
        description=text_of(record.get("description")),
        author=text_of(record.get("author")),
        url=shown,
        category=text_of(record.get("category")),
        tags=_texts(record.get("tags")),
        stars=count_of(record.get("stars")),
        updated_at=time_of(record.get("updatedAt")),
    )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(text for v in value if (text := text_of(v))) if isinstance(value, list) else ()


def _kind(value: object) -> str:
    kinds = {list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return "null" if value is None else kinds.get(type(value), type(value).__name__)
