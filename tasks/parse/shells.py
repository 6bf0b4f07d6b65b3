"""Parse's Prefect tasks: the encoder's export, plan, a batch of partitions."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage.root import Root
from tasks.models.encoder import card_of, load_encoder
from tasks.models.export import exported_encoder
from tasks.parse.corpus import parse_partitions, plan_parse, rules_digest
from tasks.parse.local import RuleClassifier


@task(name="prepare-encoder", cache_policy=NO_CACHE)
def prepare_encoder(root: str, encoder: str) -> str:
    """Export the encoder to ONNX below the root where that has not been done; return its folder."""
    return str(exported_encoder(Root(root).folder / "models", encoder))


def _rules(encoder: str, *, with_vectors: bool) -> str:
    revision = card_of(encoder)["revision"]
    return rules_digest(RuleClassifier.name, revision, revision if with_vectors else None)


@task(name="plan-parse", cache_policy=NO_CACHE)
def plan_parsing(root: str, encoder: str, *, with_vectors: bool) -> dict[str, Any]:
    """Decide which partitions hold documents to parse."""
    return asdict(plan_parse(Root(root), _rules(encoder, with_vectors=with_vectors)))


@task(name="parse-batch", cache_policy=NO_CACHE)
def parse_batch(root: str, partitions: list[int], encoder: str, *, with_vectors: bool) -> dict[str, int]:
    """Segment, type, encode and link the documents of a few partitions that have not been yet."""
    model = load_encoder(encoder)
    return parse_partitions(
        Root(root), partitions, rules=_rules(encoder, with_vectors=with_vectors),
        classifier=RuleClassifier(), tokenizer=model, encoder=model if with_vectors else None,
        dimension=int(model.card["dimension"]),
    )  # fmt: skip
