"""The bench of paging for the command: methods measured on documents and queries of the user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from flows.commands.classify import require_kind
from flows.commands.console import folder_at, progress, say_aside, steps, write_report
from flows.commands.judge import judge_paging, labels_for, require_form, require_speaker
from flows.commands.queries import load_skillpager, require_page_options, reranker_of
from flows.settings import Settings, asked_llm, llm_options
from storage.errors import WrongInput
from storage.root import Root
from tasks.evaluate.corpus.read import corpus_texts
from tasks.evaluate.measures.evidence import EvidenceQuery, read_paging_bench
from tasks.evaluate.paging.bench import PagingBench, Remembering, measure, prepare_all, require_paging
from tasks.evaluate.paging.judged import (
    SAMPLED,
    Measured,
)
from tasks.evaluate.paging.outcomes import Outcome, Setting, rows_of
from tasks.evaluate.paging.picture import draw_paging
from tasks.evaluate.paging.probes import draw_paging_probes
from tasks.evaluate.paging.report import (
    OWN_LIMITS,
    notes_of,
    paging_markdown,
    probe_settings,
    report_paging,
    report_probes,
    report_steps,
)
from tasks.models.cached_encoder import KeptEncoder
from tasks.models.encoder import OnnxEncoder
from tasks.models.onnx_export import exported_encoder
from tasks.parse.classify.local import LocalClassifier
from tasks.parse.classify.options import TypingOptions, llm_report, open_classifier
from tasks.retrieve.baselines.skillpager import OpenSettings
from tasks.retrieve.page import DEFAULT_METHOD, METHODS

# The row of the default method with an LLM as its reranker.
RERANKED = f"{DEFAULT_METHOD}, reranked"
_USUAL = ("facets", "full", "nodes", "skillpager", "chunks")


def paging_bench(
    root: Root, settings: Settings, *, documents: Path, queries: Path, method: Sequence[str] | None = None,
    budget: Sequence[float] | None = None, report: Path | None = None, judge: str = "evidence",
    labels: Path | None = None, probes: str | None = None, sample_labels: Path | None = None,
    rerank: bool = False, classifier: str = "local",
) -> dict[str, Any]:  # fmt: skip
    """Measure paging methods on a bench; the root keeps vectors and the answers of an LLM.

    The keywords are the options of `skillery evaluate paging`, whose help says what each is. `report` is a
    folder for `paging.md`, `paging.parquet` (the run) and `paging.png`; it has every method, not reranked, of
    which an LLM judges those of `method`.

    Returns `methods` (a row a method and budget), `notes` of them, `judge` (`judge_paging`), `fitted`
    (documents of the packaged scorer, paged by held-out ones), `skillpager` (its settings), `typing`
    (`classifier`, and of an LLM `llm`, as `llm_report`), `probes` (rows) if wanted; with a report also
    `contests` and `report`, the files written. Before anything is encoded, raises
    `WrongInput` if a file, an option or the folder cannot be used; then as `judge_paging`.
    """
    measured = _settings_of(method, budget, report, sample_labels, rerank)
    (speaker, llm), typing = require_speaker(judge, settings), llm_options(settings, require_kind(classifier))
    require_form(sample_labels, llm)
    texts, asked = read_paging_bench(documents, queries, judged=speaker == "llm")
    require_paging(asked, [name for name, _ in measured])
    named = SAMPLED if method in (None, ["all"]) else method or ()
    sampled = [setting for setting in measured if setting[0] in named]
    people = labels_for(labels, asked, measured)
    judging = partial(
        judge_paging, root=root, queries=asked, speaker=speaker, llm=llm, labels=people, form=sample_labels,
        sampled=sampled,
    )  # fmt: skip
    if rerank:
        asked_llm(settings)
    corpus = None if probes is None else corpus_texts(probes)
    if report is not None:
        folder_at(report, "--report")
        if budget or (llm is None and method not in (None, ["all"])):
            say_aside("a report measures every method at budgets of its own; yours are passed over")
    prepared = _preparing(root, settings, load_skillpager(settings), typing)
    bench = prepared("prepared", texts, asked)
    bench.keep_contexts = llm is not None or bool(people)
    probed = None if corpus is None else partial(_probes, prepared, corpus)
    if report is not None:
        return _reported(judging, bench, probed, report, method)
    found = _measured("measured", bench, measured)
    if rerank:
        found |= _measured_again(root, settings, bench, measured)
    judged, told, _ = judging(found)
    rows = judged or rows_of(found)
    more = {} if probed is None else {"probes": rows_of(_measured("probed", probed(), measured))}
    return _answer(rows, rows, bench, told) | more


def _preparing(
    root: Root, settings: Settings, skillpager: OpenSettings, typing: TypingOptions | None
) -> partial[PagingBench]:
    models = exported_encoder(root.folder / "models", settings.encoder)
    single = OnnxEncoder(models, threads=settings.query_threads or 1)
    return partial(_prepared, root, OnnxEncoder(models), Remembering(single), single, skillpager, typing)


def _measured(verb: str, bench: PagingBench, measured: Sequence[Setting]) -> dict[Setting, list[Outcome]]:
    with steps(verb, len(bench.queries) * len(measured)) as step:
        return measure(bench, measured, step)


def _measured_again(
    root: Root, settings: Settings, bench: PagingBench, measured: Sequence[Setting]
) -> dict[Setting, list[Outcome]]:
    """Measure the default method's settings with the LLM as its reranker."""
    wanted = [setting for setting in measured if setting[0] == DEFAULT_METHOD]
    with reranker_of(root, settings, wanted=True) as reranker:
        again = _measured("measured with the LLM", replace(bench, reranker=reranker), wanted)
    return {(RERANKED, limit): outcomes for (_, limit), outcomes in again.items()}


def _settings_of(
    method: Sequence[str] | None, budget: Sequence[float] | None, report: Path | None,
    sample_labels: Path | None, rerank: bool,
) -> list[Setting]:  # fmt: skip
    """Return the methods and budgets to measure; raises `WrongInput` if one cannot be used."""
    usual = _USUAL if sample_labels is None else SAMPLED
    wanted = list(METHODS) if method == ["all"] else list(method or usual)
    limits: list[float | None] = [*budget] if budget else [None]
    require_page_options(wanted, limits)
    measured = list(OWN_LIMITS) if report else list(product(wanted, limits))
    if rerank and report is not None:
        raise WrongInput("--rerank goes without --report: a report's methods ask no language model")
    if rerank and DEFAULT_METHOD not in [name for name, _ in measured]:
        raise WrongInput(f"--rerank is for a method that is not measured: add --method {DEFAULT_METHOD}")
    return measured


def _prepared(
    root: Root, encoder: OnnxEncoder, asking: Remembering, tokenizer: OnnxEncoder,
    skillpager: OpenSettings, typing: TypingOptions | None, verb: str, texts: Mapping[str, str],
    queries: Sequence[EvidenceQuery],
) -> PagingBench:  # fmt: skip
    """Return a bench of documents encoded by one encoder and queries encoded by another."""
    typed: Counter[str] = Counter()
    with open_classifier(root, LocalClassifier(), typing) as (classifier, ledger), progress(verb) as report:
        ready = prepare_all(
            texts, queries, encoder=KeptEncoder(encoder, root), tokenizer=tokenizer, classifier=classifier,
            progress=report, skillpager=skillpager, typed=typed,
        )  # fmt: skip
        name, asked = classifier.name, llm_report(classifier.name, typing, typed, ledger.carried())
    told = {"classifier": name, "llm": asked}
    return PagingBench(ready, queries, asking, tokenizer, skillpager=skillpager, typing=told)


def _probes(prepared: partial[PagingBench], corpus: Mapping[str, str]) -> PagingBench:
    """Return the probes of a corpus's long documents; raises `WrongInput` if it has none."""
    probes = draw_paging_probes(corpus)
    if not probes.queries:
        msg = "--probes: the corpus has no document of 150 or more nodes to probe; leave the option out"
        raise WrongInput(msg)
    return prepared("prepared for probes", probes.documents, probes.queries)


def _answer(
    rows: list[dict[str, Any]], noted: Sequence[Mapping[str, Any]], bench: PagingBench, judge: dict[str, Any]
) -> dict[str, Any]:
    fitted = len(bench.scorers)
    return {
        "methods": rows, "notes": [*notes_of(noted, fitted), *_typed(bench.typing)], "judge": judge,
        "fitted": fitted,
        "skillpager": bench.skillpager.model_dump(), "typing": bench.typing,
    }  # fmt: skip


def _typed(typing: Mapping[str, Any]) -> list[str]:
    """Return who typed the nodes, if a language model was asked, and how many it did not type."""
    if not (asked := typing["llm"]):
        return []
    left = ", ".join(f"{n} {reason}" for reason, n in asked["fallbacks"].items()) or "none"
    return [f"Nodes typed by {typing['classifier']}: {asked['asked']} asked about; of these locally: {left}."]


def _reported(
    judging: Callable[[Measured], Any], bench: PagingBench, probed: partial[PagingBench] | None, folder: Path,
    method: Sequence[str] | None,
) -> dict[str, Any]:  # fmt: skip
    with steps("measured", report_steps(bench.queries)) as step:
        found = report_paging(bench, step)
    chosen = METHODS if method in (None, ["all"]) else method or ()
    contexts = {setting: found.measured[setting] for setting in found.measured if setting[0] in chosen}
    rows, found.judge, judged = judging(contexts)
    found.judged = rows or []
    found.take_verdicts(judged)
    if probed is not None:
        probes = probed()
        with steps("probed", len(probes.queries) * len(probe_settings())) as step:
            report_probes(found, probes, step)
    files = write_report(folder, "paging", paging_markdown(found), [found.run], partial(draw_paging, found))
    return {
        **_answer(found.all_rows(), found.rows, bench, found.judge),
        "contests": found.contests,
        **({"probes": found.probes} if found.probes else {}),
        "report": files,
    }
