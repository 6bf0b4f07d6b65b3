"""The bench of paging for the command: methods measured on documents and queries of the user."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from flows.commands.console import drawn, folder_at, progress
from flows.commands.judge import Judging, judge_paging, labels_for, require_form, require_speaker
from flows.commands.queries import require_page_options, reranker_of
from flows.settings import Settings, llm_options, load
from storage.errors import WrongInput
from storage.root import Root
from storage.schemas import EDGE_TYPES
from tasks.evaluate.corpus.read import corpus_texts
from tasks.evaluate.measures.evidence import EvidenceQuery
from tasks.evaluate.paging.bench import (
    PagingBench,
    Remembering,
    Setting,
    measure,
    prepare_all,
    require_paging,
    rows_of,
)
from tasks.evaluate.paging.input import read_paging_bench
from tasks.evaluate.paging.label_sample import SAMPLED
from tasks.evaluate.paging.outcomes import Outcome
from tasks.evaluate.paging.picture import draw_paging
from tasks.evaluate.paging.probes import draw_paging_probes
from tasks.evaluate.paging.report import OWN_LIMITS, PagingReport, report_paging, report_probes
from tasks.evaluate.paging.tables import notes_of, paging_markdown
from tasks.models.cached_encoder import KeptEncoder
from tasks.models.encoder import OnnxEncoder
from tasks.models.onnx_export import exported_encoder
from tasks.parse.classify.cascade import embedded_classifier
from tasks.retrieve.baselines.skillpager_settings import Entry, OpenSettings
from tasks.retrieve.page import DEFAULT_METHOD, METHODS

# The row of the default method with an LLM as its reranker.
RERANKED = f"{DEFAULT_METHOD}, reranked"
_METHODS = ("facets", "full", "nodes", "skillpager", "chunks")


class SkillPagerSettings(BaseSettings):
    """What SkillPager's paper leaves open of its methods, for `evaluate paging`."""

    model_config = SettingsConfigDict(env_prefix="SKILLERY_SKILLPAGER_", extra="ignore", frozen=True)

    stop_below: float = Field(
        0.0, description="MMR ends early when the best value left is below this; -1: never."
    )
    entry: Entry = Field("nearest", description="The node where a walk along edges begins.")
    least_gain: float = Field(0.0, description="The gain that a walk's next node must reach.")
    top_k: int = Field(10, ge=1, description="Nodes before their predecessors are added.")
    edge_types: list[str] = Field([*EDGE_TYPES], description="Edges that are followed; JSON.")
    chunk_tokens: int = Field(256, ge=1, description="Tokens of a chunk.")
    chunk_overlap: int = Field(0, ge=0, description="Of them, shared with the next; less than half.")


def load_skillpager() -> OpenSettings:
    """Return what is open of SkillPager's methods; raises `WrongInput` naming what is wrong."""
    found = load(SkillPagerSettings).model_dump()
    return OpenSettings(**{**found, "edge_types": tuple(found["edge_types"])})


@dataclass(frozen=True, slots=True)
class PagingWishes:
    """What to measure of paging."""

    documents: Path  # JSON lines `{doc_id, content}`
    queries: Path  # JSON lines of requests with evidence
    methods: Sequence[str] | None = None  # names of methods, or the single name `all`; None: a selection
    budgets: Sequence[float] | None = None  # budgets as `page` takes them; None: each method's own limit
    # A folder for `paging.md`, `paging.parquet` (a row a query and setting) and, if matplotlib is installed,
    # `paging.png`. A report measures every method, at its own budgets.
    report: Path | None = None
    judge: str = "evidence"  # `evidence`, `llm` or `both`
    labels: Path | None = None  # JSON lines `{query_id, method, budget, sufficient}` of people
    probes: str | None = None  # a root or Parquet file with a corpus, whose long documents are probed too
    # A file for a form with judged contexts, for people to label; drawn from these methods, else the paper's.
    sample_labels: Path | None = None
    rerank: bool = False  # measure the default method again with an LLM as its reranker; not for reports

    def settings(self) -> list[Setting]:
        """Return the methods and budgets to measure; raises `WrongInput` if one cannot be used."""
        usual = _METHODS if self.sample_labels is None else SAMPLED
        wanted = list(METHODS) if self.methods == ["all"] else list(self.methods or usual)
        limits: list[float | None] = [*self.budgets] if self.budgets else [None]
        require_page_options(wanted, limits)
        return list(OWN_LIMITS) if self.report else list(product(wanted, limits))


@dataclass(frozen=True, slots=True)
class _Task:
    """Wishes that were checked, with the files that they name read."""

    texts: Mapping[str, str]
    queries: Sequence[EvidenceQuery]
    settings: Sequence[Setting]
    judging: Judging
    corpus: Mapping[str, str] | None
    skillpager: OpenSettings

    @property
    def keep_contexts(self) -> bool:
        """Whether someone reads the contexts, or has read them."""
        return self.judging.llm is not None or bool(self.judging.labels)


def paging_bench(root: Root, settings: Settings, wishes: PagingWishes) -> dict[str, Any]:
    """Measure paging methods on a bench; the root keeps vectors and the answers of an LLM.

    Returns:
        `methods` (a row for each method and budget), `notes` (what to know of them), `judge`
        (`judge_paging`), `fitted` (documents that the packaged scorer was fitted on, which held-out scorers
        paged) and `skillpager` (the settings of its methods); `probes` (rows too) if wanted; with a report
        also `contests` and `report`, the files written.

    Raises:
        WrongInput: A file, an option or the folder cannot be used; nothing was encoded.
        LlmDenied, NothingJudged: As `judge_paging`.
    """
    task = _checked(settings, wishes)
    models = exported_encoder(root.folder / "models", settings.encoder, settings.encoder_precision)
    encoder, single = OnnxEncoder(models), OnnxEncoder(models, threads=settings.query_threads or 1)
    makers = _Makers(KeptEncoder(encoder, root), Remembering(single), single, task.skillpager)
    bench = makers.bench("prepared", task.texts, task.queries, keep_contexts=task.keep_contexts)
    if wishes.report is not None:
        return _reported(root, task, makers, bench, wishes.report)
    with progress("measured") as report:
        measured = measure(bench, task.settings, report)
    if wishes.rerank:
        measured |= _reranked(root, settings, bench, task.settings)
    rows, judge = judge_paging(root, task.judging, measured, task.queries)
    shown = rows or rows_of(measured)
    found: dict[str, Any] = {
        "methods": shown,
        "notes": notes_of(shown, len(bench.scorers)),
        "judge": judge,
        "fitted": len(bench.scorers),
        "skillpager": asdict(task.skillpager),
    }
    if task.corpus is not None:
        with progress("probed") as report:
            found["probes"] = rows_of(measure(makers.probes(task.corpus), task.settings, report))
    return found


def _require_rerankable(wishes: PagingWishes, measured: Sequence[Setting]) -> None:
    if wishes.report is not None:
        msg = "--rerank goes without --report: a report's methods ask no language model"
        raise WrongInput(msg)
    if DEFAULT_METHOD not in [method for method, _ in measured]:
        msg = f"--rerank is for a method that is not measured: add --method {DEFAULT_METHOD}"
        raise WrongInput(msg)


def _reranked(
    root: Root, settings: Settings, bench: PagingBench, measured: Sequence[Setting]
) -> dict[Setting, list[Outcome]]:
    """Measure the default method at its budgets with a reranker."""
    wanted = [setting for setting in measured if setting[0] == DEFAULT_METHOD]
    with reranker_of(root, settings, wanted=True) as reranker, progress("measured with the LLM") as report:
        found = measure(replace(bench, reranker=reranker), wanted, report)
    return {(RERANKED, budget): outcomes for (_, budget), outcomes in found.items()}


@dataclass(frozen=True, slots=True)
class _Makers:
    """The encoders of documents and of queries, and the tokenizer, from which benches are made."""

    documents: KeptEncoder
    queries: Remembering
    tokenizer: OnnxEncoder
    skillpager: OpenSettings

    def bench(
        self,
        verb: str,
        texts: Mapping[str, str],
        queries: Sequence[EvidenceQuery],
        *,
        keep_contexts: bool = False,
    ) -> PagingBench:
        """Return a bench of prepared documents and queries."""
        with progress(verb) as report:
            ready = prepare_all(
                texts,
                queries,
                encoder=self.documents,
                tokenizer=self.tokenizer,
                classifier=embedded_classifier(cascade=True),
                progress=report,
                skillpager=self.skillpager,
            )
        return PagingBench(
            ready,
            queries,
            self.queries,
            self.tokenizer,
            keep_contexts=keep_contexts,
            skillpager=self.skillpager,
        )

    def probes(self, corpus: Mapping[str, str]) -> PagingBench:
        """Return the probes of a corpus's long documents; raises `WrongInput` if it has none."""
        probes = draw_paging_probes(corpus)
        if not probes.queries:
            msg = "--probes: the corpus has no document of 150 or more nodes to probe; leave the option out"
            raise WrongInput(msg)
        return self.bench("prepared for probes", probes.documents, probes.queries)


def _checked(settings: Settings, wishes: PagingWishes) -> _Task:
    measured = wishes.settings()
    if wishes.rerank:
        _require_rerankable(wishes, measured)
    speaker, llm = require_speaker(wishes.judge, settings)
    require_form(wishes.sample_labels, llm)
    skillpager = load_skillpager()
    texts, queries = read_paging_bench(wishes.documents, wishes.queries)
    require_paging(texts, queries, [method for method, _ in measured])
    named = SAMPLED if wishes.methods in (None, ["all"]) else wishes.methods
    judging = Judging(
        speaker,
        llm,
        labels_for(wishes.labels, queries, measured),
        wishes.sample_labels,
        [setting for setting in measured if setting[0] in (named or ())],
    )
    corpus = None if wishes.probes is None else corpus_texts(wishes.probes)
    if wishes.rerank:
        llm_options(settings, "llm")
    if wishes.report is not None:
        folder_at(wishes.report, "--report")
        if wishes.budgets or wishes.methods not in (None, ["all"]):
            sys.stderr.write("a report measures every method at budgets of its own; yours are passed over\n")
    return _Task(texts, queries, measured, judging, corpus, skillpager)


def _reported(root: Root, task: _Task, makers: _Makers, bench: PagingBench, folder: Path) -> dict[str, Any]:
    with progress("measured") as report:
        found = report_paging(bench, report)
    rows, found.judge = judge_paging(root, task.judging, found.measured, task.queries)
    found.judged = rows or []
    if task.corpus is not None:
        probes = makers.probes(task.corpus)
        with progress("probed") as report:
            report_probes(found, probes, report)
    return _written(found, folder)


def _written(found: PagingReport, folder: Path) -> dict[str, Any]:
    (folder / "paging.md").write_text(paging_markdown(found), "utf-8")
    found.outcomes.write_parquet(folder / "paging.parquet")
    pictures = drawn(lambda path: draw_paging(found, path), folder / "paging.png")
    return {
        "methods": found.all_rows(),
        "notes": notes_of(found.rows, found.fitted),
        "judge": found.judge,
        "fitted": found.fitted,
        "skillpager": asdict(found.skillpager),
        "contests": [asdict(contest) for contest in found.contests],
        **({"probes": found.probes} if found.probes else {}),
        "report": [str(file) for file in (folder / "paging.md", folder / "paging.parquet", *pictures)],
    }
