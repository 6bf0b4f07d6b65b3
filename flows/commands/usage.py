"""Usage of a root: what was asked, found and used by day, and what was asked in vain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from flows.settings import Settings
from storage.root import Root
from storage.state import documents_table
from storage.usage import DROPPED, UsageLog, read_usage
from tasks.models.visible import visible

NEEDS_TEXTS = "what was asked is not kept: it needs SKILLERY_QUERY_LOG=texts"
_MOST_GROUPS, _MOST_SKILLS = 20, 20


def open_log(root: Root, settings: Settings) -> UsageLog:
    """Return the log of a root's usage, which keeps what SKILLERY_QUERY_LOG says."""

    def redacted(text: str) -> str:
        from tasks.models.redact import redact  # noqa: PLC0415 (a search redacts nothing)

        return redact(text)[0]

    return UsageLog(root, settings.query_log, redacted)


def note_once(root: Root, settings: Settings, via: str, action: str, doc_ids: Sequence[str]) -> None:
    """Write one event of a command, if there is a root; where it cannot be written, the log says so."""
    if not root.exists(""):
        return
    log = open_log(root, settings)
    log.note(via, action, doc_ids)
    log.flush()


def usage_of(root: Root, settings: Settings, days: int) -> dict[str, Any]:
    """Return what `skillery usage --json` prints of the last days.

    `days` has an object a day: searches, those that nothing fits and their share, and the other actions;
    `via` counts events by who asked. `not_found` groups what was asked and nothing fits, by its words, the
    most frequent first; it is null, and `needs` says why, where texts are not kept. `skills` counts for each
    skill how often it was found among the first ten, paged and installed; `never_found` are those of the
    corpus that no search of these days found. `dropped` counts events that came too fast to be kept.

    Raises `StorageError` if a file cannot be read.
    """
    rows = read_usage(root, datetime.now(UTC) - timedelta(days=days - 1))
    events, used = (
        rows.filter(pl.col("rank") == 0),
        rows.filter(pl.col("doc_id").is_not_null() & pl.col("fits").ne_missing(other=False)),
    )
    searches = events.filter(pl.col("action") == "search")
    known = searches.filter(pl.col("query").is_not_null())
    has_texts = settings.query_log == "texts" or known.height > 0
    return {
        "mode": settings.query_log,
        "days": _by_day(events),
        "via": dict(events.group_by("via").len().sort("len", descending=True).iter_rows()),
        "not_found": _groups(known.filter(~pl.col("fits"))["query"].to_list()) if has_texts else None,
        **({} if has_texts else {"needs": NEEDS_TEXTS}),
        "skills": _by_skill(used),
        "never_found": _never_found(root, used),
        "dropped": int(rows.filter(pl.col("action") == DROPPED)["rank"].sum()),
    }  # fmt: skip


def _by_day(events: pl.DataFrame) -> list[dict[str, Any]]:
    days = []
    for (day,), rows in events.group_by(pl.col("at").dt.date(), maintain_order=True):
        actions = Counter(rows["action"].to_list())
        searches = actions.pop("search", 0)
        vain = rows.filter((pl.col("action") == "search") & ~pl.col("fits")).height
        share = round(vain / searches, 3) if searches else None
        days.append({"day": str(day), "searches": searches, "nothing_fits": vain, "share": share, **actions})
    return days


def _groups(queries: Sequence[str]) -> list[dict[str, Any]]:
    """Return what was asked, queries of the same words as one, under the one that was asked most."""
    from tasks.retrieve.routing.postings import function_terms, term_sequence  # noqa: PLC0415

    groups: dict[frozenset[int], Counter[str]] = {}
    for query in queries:
        groups.setdefault(frozenset(term_sequence(query)) - function_terms(), Counter())[query] += 1
    ordered = sorted((-asked.total(), asked.most_common(1)[0][0]) for asked in groups.values())
    return [{"query": query, "times": -times} for times, query in ordered[:_MOST_GROUPS]]


def _by_skill(used: pl.DataFrame) -> list[dict[str, Any]]:
    counted = used.group_by("doc_id").agg(
        *(pl.col("action").eq(action).sum().alias(name) for action, name in _COUNTED.items())
    )
    ordered = counted.sort(*(pl.col(name) for name in ("installed", "paged", "found")), descending=True)
    return ordered.head(_MOST_SKILLS).to_dicts()


_COUNTED = {"search": "found", "page": "paged", "install": "installed"}


def _never_found(root: Root, used: pl.DataFrame) -> dict[str, Any]:
    held = documents_table(root).read(columns=["doc_id"])["doc_id"]
    found = used.filter(pl.col("action") == "search")["doc_id"]
    never = held.filter(~held.is_in(found.unique().implode())).sort()
    return {"skills": len(never), "of": len(held), "first": never.head(_MOST_SKILLS).to_list()}


def lines_of(found: dict[str, Any]) -> list[str]:
    """Return what is told a person, a line each."""
    lines = [
        f"log: {found['mode']}" + (f", {found['dropped']:,} events not kept" if found["dropped"] else "")
    ]
    for day in found["days"]:
        others = {k: v for k, v in day.items() if k not in ("day", "searches", "nothing_fits", "share")}
        more = "".join(f", {name} {count:,}" for name, count in others.items())
        share = f" ({day['share']:.0%})" if day["share"] is not None else ""
        lines.append(
            f"{day['day']}  searches {day['searches']:,}, nothing fits {day['nothing_fits']:,}{share}{more}"
        )
    if not found["days"]:
        lines.append("nothing was asked of `serve` or a hook, and nothing was installed")
    lines.append("asked, and not found:" if found["not_found"] is not None else found["needs"])
    lines += [f"  {row['times']:>5}  {visible(row['query'])}" for row in found["not_found"] or ()]
    lines.append("skills: found, paged, installed")
    lines += [
        f"  {r['found']:>5} {r['paged']:>5} {r['installed']:>5}  {r['doc_id']}" for r in found["skills"]
    ]
    never = found["never_found"]
    return [
        *lines,
        f"never found: {never['skills']:,} of {never['of']:,}",
        *(f"  {d}" for d in never["first"]),
    ]
