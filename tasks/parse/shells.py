"""Prefect shells of parse: the export of the encoder, the plan, and a batch of partitions."""

from __future__ import annotations

from concurrent.futures import Executor
from contextlib import nullcontext, suppress
from dataclasses import asdict
from functools import partial
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.concurrency.asyncio import concurrency
from prefect.exceptions import ObjectNotFound

from storage.root import Root
from tasks.models.cached_encoder import export_here, load_kept_encoder
from tasks.models.encoder import card_of
from tasks.models.llm.budget import Ledger
from tasks.models.onnx_export import export_below
from tasks.models.retry import task_retries
from tasks.parse.classify.cascade import KeptLook, embedded_classifier, embedded_name
from tasks.parse.classify.options import LlmOptions, Slot, classifier_name, typing_identity
from tasks.parse.corpus import parse_partitions, plan_parse, rules_digest
from tasks.parse.edges.linker import EdgeOptions, edges_identity, open_asked
from tasks.refine.workers import run_in

# The global concurrency limit of questions to the language model, over all workers.
LIMIT = "skillery-llm"


@task(name="prepare-encoder", cache_policy=NO_CACHE, **task_retries())
def prepare_encoder(root: str, encoder: str, precision: str = "float32") -> str:
    """Export the encoder to ONNX below the root unless that has been done; return its local folder."""
    return export_below(Root(root), encoder, precision)


@task(name="plan-parse", cache_policy=NO_CACHE)
def plan_parsing(
    root: str,
    encoder: str,
    *,
    with_vectors: bool,
    llm: LlmOptions | None = None,
    edges: EdgeOptions | None = None,
) -> dict[str, Any]:
    """Return the `ParsePlan` as a dict, with the name of the classifier."""
    plan = plan_parse(Root(root), _rules(encoder, llm, edges, with_vectors=with_vectors))
    return {**asdict(plan), "classifier": classifier_name(embedded_name(careful=with_vectors), llm)}


@task(name="parse-batch", cache_policy=NO_CACHE, **task_retries())
def parse_batch(
    root: str, partitions: list[int], encoder: str, *, with_vectors: bool, llm: LlmOptions | None = None,
    edges: EdgeOptions | None = None, ledger: Ledger | None = None, executor: Executor | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Segment, type, encode and link the documents of a few partitions; return counts and the LLM account."""
    work = partial(_parsed, Root(root), partitions, encoder, with_vectors, llm, edges, ledger or Ledger())
    return run_in(executor, partial(work, _slot(llm, edges)))


def _parsed(
    root: Root, partitions: list[int], encoder: str, with_vectors: bool,
    llm: LlmOptions | None, edges: EdgeOptions | None, ledger: Ledger, slot: Slot,
) -> dict[str, Any]:  # fmt: skip
    encoder = export_here(root.uri, encoder)
    model = load_kept_encoder(root.uri, encoder)
    local = embedded_classifier(careful=with_vectors, look=KeptLook(root))
    with open_asked(root, local, llm, edges, ledger, slot) as (classifier, linker):
        done = parse_partitions(
            root, partitions, rules=_rules(encoder, llm, edges, with_vectors=with_vectors),
            classifier=classifier, tokenizer=model, encoder=model if with_vectors else None,
            dimension=int(model.card["dimension"]), linker=linker,
        )  # fmt: skip
    return {"done": done, "account": ledger.carried()}


def _rules(encoder: str, llm: LlmOptions | None, edges: EdgeOptions | None, *, with_vectors: bool) -> str:
    revision = card_of(encoder)["revision"]
    identity = typing_identity(embedded_name(careful=with_vectors), llm) + edges_identity(edges)
    return rules_digest(identity, revision, revision if with_vectors else None)


def _slot(*asked: object) -> Slot:
    """Return what takes a slot of Prefect's global concurrency limit, if that exists and a model is asked."""
    if not any(asked):
        return nullcontext
    with get_client(sync_client=True) as client, suppress(ObjectNotFound):
        client.read_global_concurrency_limit_by_name(LIMIT)
        return lambda: concurrency(LIMIT)
    return nullcontext
