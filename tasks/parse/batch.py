"""Plans and parses batches of partitions in this process, with models of its own, and without Prefect."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from storage.root import Root
from tasks.models.cached_encoder import export_here, load_kept_encoder
from tasks.models.encoder import card_of
from tasks.models.llm.budget import Ledger
from tasks.parse.classify.cascade import KeptLook, embedded_classifier, embedded_name
from tasks.parse.classify.options import LlmOptions, Slot, classifier_name, typing_identity
from tasks.parse.corpus import parse_partitions, plan_parse, rules_digest
from tasks.parse.edges.linker import EdgeOptions, edges_identity, open_asked


@dataclass(frozen=True, slots=True)
class ParseOptions:
    """How a batch is parsed.

    Args:
        encoder: The folder of the encoder's export.
        with_vectors: Whether nodes get vectors, and types a second look at them.
        llm: The language model that types nodes; None: the local classifier does.
        edges: The language model that infers edges; None: rules do.
    """

    encoder: str
    with_vectors: bool
    llm: LlmOptions | None = None
    edges: EdgeOptions | None = None

    def rules(self) -> str:
        """Return the digest of all but the texts on which a parse depends, as `rules_digest` does."""
        revision = card_of(self.encoder)["revision"]
        identity = typing_identity(embedded_name(careful=self.with_vectors), self.llm)
        identity += edges_identity(self.edges)
        return rules_digest(identity, revision, revision if self.with_vectors else None)


def plan_here(root: Root, options: ParseOptions) -> dict[str, Any]:
    """Return the `ParsePlan` as a dict, with the name of the classifier."""
    name = classifier_name(embedded_name(careful=options.with_vectors), options.llm)
    return {**asdict(plan_parse(root, options.rules())), "classifier": name}


def parse_here(
    root: Root, partitions: list[int], options: ParseOptions, ledger: Ledger, slot: Slot
) -> dict[str, Any]:
    """Segment, type, encode and link the documents of partitions; return counts and the LLM account.

    `slot` is taken for each question to a language model, and `ledger` pays for it. Raises as
    `parse_partitions`.
    """
    options = replace(options, encoder=export_here(root.uri, options.encoder))
    model = load_kept_encoder(root.uri, options.encoder)
    local = embedded_classifier(careful=options.with_vectors, look=KeptLook(root))
    with open_asked(root, local, options.llm, options.edges, ledger, slot) as (classifier, linker):
        done = parse_partitions(
            root, partitions, rules=options.rules(), classifier=classifier, tokenizer=model,
            encoder=model if options.with_vectors else None, linker=linker,
        )  # fmt: skip
    return {"done": done, "account": ledger.carried()}
