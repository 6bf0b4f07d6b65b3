"""Queries for the command, one or a file of them. Nothing here loads Prefect or torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from flows.commands.console import Report, form_of, progress, put_drawing, say_aside
from flows.settings import Settings, load
from storage.errors import UnknownDocument, Withheld, WrongInput
from storage.jsonl import read_lines, write_lines
from storage.root import Root
from tasks.retrieve.baselines.skillpager import OpenSettings, PaperNumbers
from tasks.retrieve.page import METHODS, require_reranked
from tasks.retrieve.paging.types import Reranker
from tasks.retrieve.routing.search import Filters, SkillRanker, require_min_fit
from tasks.retrieve.served_index import ServedIndex

if TYPE_CHECKING:  # a search loads nothing of these
    from tasks.retrieve.baselines.llm_page_rerank import LlmReranker

Line = dict[str, Any]
MERMAID = "mmd"
PLAN_FORMS = ("svg", MERMAID)
_KINDS = ("skill", "mcp-server")


class SkillPagerSettings(BaseSettings, PaperNumbers):
    """The numbers of SkillPager's methods, and of the requests that an LLM writes about a skill."""

    model_config = SettingsConfigDict(env_prefix="SKILLERY_SKILLPAGER_", extra="ignore", frozen=True)

    request_characters: int = Field(60_000, ge=0, description="Of a skill, to write requests about; 0: all.")
    request_categories: bool = Field(False, description="Draw skills over categories, not owners.")
    request_exactly: bool = Field(False, description="Whether skills with fewer than five are left out.")


def load_skillpager(settings: Settings) -> OpenSettings:
    """Return the settings of SkillPager's methods; raises `WrongInput` naming what is wrong."""
    numbers = load(SkillPagerSettings).model_dump(include=set(PaperNumbers.model_fields))
    return OpenSettings(**numbers, grouped=settings.segment == "skillpager")


def open_index(root: Root, settings: Settings) -> ServedIndex:
    """Return the index that the root serves; it is opened by the first query."""
    return ServedIndex(
        root, encoder=settings.encoder, threads=settings.query_threads,
        page_seconds=settings.page_seconds, skillpager=load_skillpager(settings), rerank=settings.rerank,
        exact_rows=settings.exact_rows,
    )  # fmt: skip


def require_page_options(methods: list[str], budgets: list[float | None]) -> None:
    """Raise `WrongInput` if a paging method is not known, or a budget is no positive number."""
    if unknown := [m for m in methods if m not in METHODS]:
        raise WrongInput(f"method {unknown[0]!r} is not known: choose one of {', '.join(METHODS)}")
    if wrong := [b for b in budgets if not _is_budget(b)]:
        msg = f"budget {wrong[0]} is no positive number: give a share up to 1, or a number of tokens"
        raise WrongInput(msg)


def search_filters(
    kinds: list[str] | None, licences: list[str] | None, sources: list[str] | None,
    risks: list[str] | None = None, *, person: bool = False,
) -> Filters:  # fmt: skip
    """Return which skills a person or an agent may find; raise `WrongInput` if a kind is not known."""
    if wrong := [kind for kind in kinds or () if kind not in _KINDS]:
        raise WrongInput(f"kind {wrong[0]!r} is not known: choose {' or '.join(_KINDS)}")
    wanted = [tuple(values or ()) for values in (kinds, licences, sources, risks)]
    return Filters(wanted[0], wanted[1], wanted[2], wanted[3], person=person)


def search_batch(
    index: ServedIndex, batch: Path | None, out: Path | None, *, k: int, filters: Filters | None = None,
    explain: bool = False, min_fit: float | None = None, ranker: SkillRanker | None = None,
) -> int:  # fmt: skip
    """Search for a file of queries, lines `{query_id, query}`; `k` holds for lines without their own.

    A line without `query_id` gets its number in the file, from 1. A line that cannot be answered is answered
    by its `error`; the number of these is returned. `WrongInput` says that `min_fit` or a file cannot be
    used, that only one of the files is given, or that a line has a wrong form; no line was answered then.
    """
    require_min_fit(min_fit)

    def answer(line: Line) -> Line:
        asked, most = line["query"], line.get("k", k)
        return index.search(asked, most, filters=filters, explain=explain, min_fit=min_fit, ranker=ranker)

    return _answer(batch, out, answer, ("query_id", "query"))


def compose_batch(plan: Callable[[str], Line], batch: Path | None, out: Path | None) -> int:
    """Plan a file of tasks, lines `{query_id, query}`; files, errors as in `search_batch`."""
    return _answer(batch, out, lambda line: plan(line["query"]), ("query_id", "query"))


def put_plan(plan: Line, out: Path) -> None:
    """Draw a plan to a file, whose ending names one of `PLAN_FORMS`.

    Raises `WrongInput` if the ending names no form, or `out` cannot be written.
    """
    from tasks.retrieve.compose.drawing import as_mermaid, plan_file  # noqa: PLC0415

    form = form_of(out, PLAN_FORMS)
    put_drawing(out, as_mermaid(plan).encode() if form == MERMAID else plan_file(plan))


def reranker_of(root: Root, settings: Settings, *, wanted: bool) -> AbstractContextManager[Reranker | None]:
    """Return the context of a reranker of pages if one is wanted, else of None."""
    return paging_reranker(root, settings) if wanted else nullcontext()


def page_batch(
    index: ServedIndex, batch: Path | None, out: Path | None, *, budget: float | None, method: str,
    reranker: Reranker | None = None,
) -> int:  # fmt: skip
    """Page for a file of queries, lines `{query_id, doc_id, query}`; files, errors as in `search_batch`."""
    require_page_options([method], [budget])
    require_reranked(method, reranked=reranker is not None)

    def answer(line: Line) -> Line:
        limit = line.get("budget", budget)
        return index.page(line["doc_id"], line["query"], budget=limit, method=method, reranker=reranker)

    return _answer(batch, out, answer, ("query_id", "doc_id", "query"))


def _answer(
    batch: Path | None, out: Path | None, answer: Callable[[Line], Line], required: tuple[str, ...]
) -> int:
    if batch is None or out is None:
        raise WrongInput("--batch Q.jsonl and --out R.jsonl go together")
    form = f"{{{', '.join(required)}}}"
    option = "budget" if "doc_id" in required else "k"
    given = enumerate(read_lines(batch, form), start=1)
    numbered = [(where, {"query_id": number, **line}) for number, (where, line) in given]
    lines = [_checked(line, where, required, option) for where, line in numbered]
    failed: list[Line] = []

    def answers(report: Report) -> Iterator[Line]:
        for done, line in enumerate(lines, start=1):
            try:
                yield {"query_id": line["query_id"], **answer(line)}
            except (UnknownDocument, Withheld, WrongInput) as error:
                failed.append(line)
                yield {**{key: line[key] for key in required}, "error": str(error)}
            report(done, len(lines))

    with progress("answered") as report:
        write_lines(out, answers(report))
    if failed:
        say_aside(f"{len(failed)} of {len(lines)} lines failed: {out} says why under `error`")
    return len(failed)


def _checked(line: Line, where: str, required: tuple[str, ...], option: str) -> Line:
    for key in (*required, *([option] if option in line else [])):
        passes, wanted = _FIELDS[key]
        if key not in line or not passes(line[key]):
            found = repr(line[key])[:40] if key in line else "missing"
            raise WrongInput(f"{where}: `{key}` is {found}; it must be {wanted}")
    return line


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_budget(value: object) -> bool:
    if value is None:
        return True
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return value > 0 and math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False


_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "query_id": (lambda v: _is_text(v) or _is_integer(v), "text or an integer"),
    "doc_id": (_is_text, "text"),
    "query": (_is_text, "text"),
    "budget": (_is_budget, "a positive number or null"),
    "k": (lambda v: _is_integer(v) and v >= 1, "an integer of at least 1"),
}


@contextmanager
def paging_reranker(root: Root, settings: Settings) -> Iterator[LlmReranker]:
    """Yield a reranker that asks the LLM, which must be set up, and keeps its answers below the root.

    If the LLM gave no answer for some pages, stderr says so at the end; those pages are not reranked.
    """
    from flows.commands.llm import opened_llm  # noqa: PLC0415 (most queries ask no language model)
    from tasks.retrieve.baselines.llm_page_rerank import LlmReranker  # noqa: PLC0415

    with opened_llm(root, settings, "such pages are not reranked") as llm:
        yield LlmReranker(llm, accuracy=settings.rerank_accuracy)
