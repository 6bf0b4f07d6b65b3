"""Prefect shells of parse: the export of the encoder, the plan, and a batch of partitions."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage.root import Root
from tasks.models.llm.budget import Ledger
from tasks.models.onnx_export import export_below
from tasks.models.retry import task_retries
from tasks.parse.classify.local import LocalClassifier
from tasks.parse.classify.options import TypingOptions, belief, classifier_name
from tasks.parse.corpus import ParseOptions, parse_here, plan_parse
from tasks.refine.shells import slot_of
from tasks.refine.workers import run_in


@task(name="prepare-encoder", cache_policy=NO_CACHE, **task_retries())
def prepare_encoder(root: str, encoder: str) -> str:
    """Export the encoder to ONNX below the root unless that has been done; return its local folder."""
    return export_below(Root(root), encoder)


@task(name="plan-parse", cache_policy=NO_CACHE)
def plan_parsing(root: str, options: ParseOptions) -> dict[str, Any]:
    """Return the `ParsePlan` as a dict, with the name of the classifier."""
    name = classifier_name(LocalClassifier.name, options.llm)
    return {**asdict(plan_parse(Root(root), options.rules())), "classifier": name}


@task(name="believe-llm", cache_policy=NO_CACHE, **task_retries())
def believe_llm(root: str, llm: TypingOptions, ledger: Ledger) -> TypingOptions:
    """Return the options with how far the model's labels are believed, as `belief` has it."""
    return replace(llm, accuracy=belief(Root(root), LocalClassifier(), llm, ledger, slot_of(llm)))


@task(name="parse-batch", cache_policy=NO_CACHE, **task_retries())
def parse_batch(
    root: str, partitions: list[int], options: ParseOptions, ledger: Ledger | None = None,
    executor: Executor | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Segment, type, encode and link the documents of a few partitions; return counts and the LLM account."""
    # A worker loads what it is given, and not this module, since Prefect takes seconds.
    slot = slot_of(options.llm, options.edges)
    work = partial(parse_here, Root(root), partitions, options, ledger or Ledger(), slot)
    return run_in(executor, work)
