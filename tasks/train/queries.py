"""Queries of a training, and its options: sentences that descriptions lack, or the requests of a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from storage.errors import WrongInput
from tasks.models.with_torch.bi_encoder import instructed
from tasks.parse.segment.segment import segment
from tasks.refine.text.markdown import LINK
from tasks.refine.text.words import LETTERS, WORD
from tasks.retrieve.routing.postings import term_sequence
from tasks.retrieve.routing.router import plain_name
from tasks.retrieve.routing.skill import Skill, digest_of
from tasks.train.splits import Rows


class TrainingOptions(BaseModel):
    """How queries are made, negatives are mined and models are trained; the defaults suit two cores."""

    model_config = ConfigDict(frozen=True)

    text: Literal["description", "flat"] = Field(
        "description", description="What the bi-encoder reads of a skill: name and description, or all."
    )
    # Of a flat text; 0: half of the tokens for the description, and what is left for the body.
    description_tokens: int = Field(0, ge=0, description="Of a flat text's description; 0: half of all.")
    body_tokens: int = Field(0, ge=0, description="Of its body; 0: all that are left.")
    pooling: Literal["own", "last"] = Field(
        "own", description="last: a decoder, whose last token's state is the vector; torch runs it."
    )
    instruction: str = Field("", description="Before each query of the bi-encoder; empty: none.")
    mined: Literal["description", "flat"] = Field(
        "description", description="What of skills is compared to find negatives, and false ones."
    )
    held_out: float = Field(0.15, gt=0, lt=1, description="Share of the skills that it is measured on.")
    held_out_queries: int = Field(300, ge=1, description="Queries that are asked of them at most.")
    ranked: int = Field(
        3000, ge=2, description="Skills a side, about, that routers rank: each is encoded anew."
    )
    sentences: int = Field(3, ge=1, description="Sentences a query at most.")
    copied: float = Field(0.2, ge=0, le=1, description="Share of a sentence that the description may have.")
    clusters: int = Field(50, ge=1, description="Categories where no listing gives any.")
    depth: int = Field(50, ge=1, description="Nearest skills that hard negatives are drawn from.")
    semantic: int = Field(4, ge=0, description="Negatives a query out of the nearest.")
    lexical: int = Field(3, ge=0, description="Negatives of these with the most words in common.")
    category: int = Field(2, ge=0, description="Negatives of the same category.")
    random: int = Field(1, ge=0, description="Negatives of another.")
    # SkillRouter does not give its thresholds; texts that share half of their trigrams are versions of one.
    false_body: float = Field(
        0.5, gt=0, le=1, description="Jaccard similarity of bodies' trigrams from which a negative is false."
    )
    false_embedding: float = Field(
        0.9, gt=0, le=1, description="Cosine of descriptions from which a negative is false."
    )
    drop_false: bool = Field(True, description="Whether false negatives are left out.")
    drawn: int = Field(2, ge=1, description="Of a query's negatives, how many a step reads.")
    epochs: int = Field(1, ge=1, description="How often each query is read.")
    batch: int = Field(16, ge=1, description="Queries an update.")
    accumulation: int = Field(1, ge=1, description="So many batches are an update.")
    checkpointing: bool = Field(False, description="Gradient checkpointing: less memory, more time.")
    learning_rate: float = Field(5e-5, gt=0, description="Its peak.")
    temperature: float = Field(0.05, gt=0, description="Divides the bi-encoder's cosines.")
    kept: float = Field(0.5, gt=0, le=1, description="Share of what the bi-encoder learned that is kept.")
    tokens: int = Field(128, ge=8, description="Read of each text.")
    lists: int = Field(300, ge=1, description="Queries that a reranker is trained with at most.")
    lists_from: Literal["router", "encoder"] = Field(
        "router", description="What ranks the skills of its lists: the router, or the trained encoder alone."
    )
    candidates: int = Field(20, ge=2, description="Skills that it puts in order for each.")
    reranker_tokens: int = Field(512, ge=8, description="Read of query and skill together.")
    reranker_description_tokens: int = Field(0, ge=0, description="As description_tokens.")
    reranker_body_tokens: int = Field(0, ge=0, description="As body_tokens.")
    reranker_bf16: bool = Field(False, description="Compute in bf16 where the device does.")
    reranker_batch: int = Field(16, ge=1, description="Lists an update.")
    reranker_loss: Literal["listwise", "pointwise"] = Field(
        "listwise", description="Of a list's candidates together, or of each by itself."
    )

    @property
    def limits(self) -> tuple[int, int]:
        """Return the tokens of description and body that the bi-encoder reads."""
        return self.description_tokens, self.body_tokens

    @property
    def reranker_limits(self) -> tuple[int, int]:
        """Return those that the reranker reads."""
        return self.reranker_description_tokens, self.reranker_body_tokens

    @property
    def query_prefix(self) -> str:
        """Return what stands before each query that the bi-encoder reads."""
        return instructed(self.instruction) if self.instruction else ""

    def told(self) -> dict[str, Any]:
        """Return what decides the outcome: of options that came later, those alone that are not usual."""
        usual = type(self).model_fields
        later = {
            "description_tokens", "body_tokens", "pooling", "instruction", "mined", "accumulation",
            "checkpointing", "lists_from", "reranker_description_tokens", "reranker_body_tokens",
            "reranker_bf16",
        }  # fmt: skip
        return {k: v for k, v in self.model_dump().items() if k not in later or v != usual[k].default}

    @property
    def negatives(self) -> int:
        """Return the number of negatives of each query."""
        return self.semantic + self.lexical + self.category + self.random


PAIRS_FILE = "pairs.parquet"
# A request and the skill that serves it. `skill` is the digest of the skill's texts (`digest_of`), `repo` its
# repository, the cut the half-open span of its `description` or `body` that says the request (empty if none
# does), and `split` `train` or `validation`.
PAIRS = pl.Schema({
    "query": pl.String, "doc_id": pl.String, "skill": pl.String, "repo": pl.String, "cut_field": pl.String,
    "cut_start": pl.Int64, "cut_end": pl.Int64, "split": pl.String,
})  # fmt: skip
GRAM = 5  # A run of so many words of a query, or the whole of a shorter one, stands in no text of its skill
_READ = 20_000  # characters of a body; later sentences seldom say what a skill is for
_FEWEST, _MOST = 6, 60  # words of a sentence
_MARK = re.compile(r"\A(?:[\s>]*+(?:[-*+•]|\d+[.)])\s++)++(?:\[[ xX]\]\s+)?")
_SIGNS = re.compile(r"[*_`]+")
_CODE = re.compile(r"https?://|[{}<>|=\\$]|\w/\w|--\w|\w\.\w+\(|\(\)")


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return [word.casefold() for word in WORD.findall(text)]


def grams_of(text: str) -> frozenset[tuple[str, ...]]:
    """Return the runs of `GRAM` words of a text in lower case, or the whole of a shorter one."""
    words = words_of(text)
    n = min(GRAM, len(words))
    return frozenset(tuple(words[i : i + n]) for i in range(len(words) - n + 1)) if words else frozenset()


def without_grams(text: str, grams: frozenset[tuple[str, ...]]) -> str:
    """Return a text without the words of these runs, wherever they stand; words keep their surroundings."""
    sizes = {len(gram) for gram in grams}
    while True:
        words = list(WORD.finditer(text))
        lowered = [word[0].casefold() for word in words]
        starts = ((i, n) for n in sizes for i in range(len(words) - n + 1))
        covered = {k for i, n in starts if tuple(lowered[i : i + n]) in grams for k in range(i, i + n)}
        if not covered:
            return text
        kept, at = [], 0
        for place in sorted(covered):
            if place - 1 not in covered:
                kept.append(text[at : words[place].start()])
            at = words[place].end()
        text = "".join([*kept, text[at:]])


class Sentence(NamedTuple):
    """A sentence without markup (`text`), and as it stands in the body (`raw`)."""

    text: str
    raw: str


@dataclass(frozen=True, slots=True)
class TrainingQuery:
    """A query, the row of the skill that it was made from, and the passages of that skill's texts."""

    query_id: str
    text: str
    row: int
    passages: tuple[str, ...]

    def without_passages(self, skill: Skill) -> Skill:
        """Return the skill without these passages, and without runs of their words and of the query's."""
        # With them in a text, an exact match of words would be enough to find the positive.
        grams = grams_of(self.text).union(*map(grams_of, self.passages))

        def left(text: str) -> str:
            for passage in self.passages:
                text = text.replace(passage, "")
            return without_grams(text, grams)

        return skill._replace(description=left(skill.description), body=left(skill.body))


def telling_sentences(skill: Skill, copied: float) -> list[Sentence]:
    """Return the sentences and list items of a skill's body that can make a query, each once, in order.

    They are prose without markup of 6 to 60 words and name neither the skill nor code. `copied` is the
    largest share of a sentence's word trigrams, 0 to 1, that name and description may hold.
    """
    head = term_sequence(f"{skill.name}\n{skill.description}")
    known = set(zip(head, head[1:], head[2:], strict=False))
    found: dict[str, Sentence] = {}
    for piece, raw in _prose(skill.body):
        terms = term_sequence(piece)
        trigrams = set(zip(terms, terms[1:], terms[2:], strict=False))
        fits = _FEWEST <= len(LETTERS.findall(piece)) <= _MOST
        absent = len(trigrams & known) <= copied * len(trigrams)
        if fits and trigrams and absent and not named_in(piece, skill):
            found.setdefault(piece, Sentence(piece, raw))
    return list(found.values())


def without_queries(skills: Sequence[Skill], queries: Sequence[TrainingQuery]) -> list[Skill]:
    """Return the skills in their order, each without the passages of all its queries."""
    # One text a skill, as the positive of a query and beside others': else it would meet itself in a batch.
    found = list(skills)
    for query in queries:
        found[query.row] = query.without_passages(found[query.row])
    return found


def make_queries(
    skills: Sequence[Skill], rows: Rows, most: int, options: TrainingOptions, draw: np.random.Generator
) -> list[TrainingQuery]:
    """Return one query per skill, for the first `most` of `rows` with sentences that can make one.

    `draw` chooses the sentences and their number.
    """
    found: list[TrainingQuery] = []
    for row in rows.tolist():
        if len(found) == most:
            break
        pieces = telling_sentences(skills[row], options.copied)
        if pieces:
            wanted = int(draw.integers(1, options.sentences + 1))
            chosen = np.sort(draw.choice(len(pieces), min(wanted, len(pieces)), replace=False))
            texts, passages = zip(*(pieces[i] for i in chosen.tolist()), strict=True)
            found.append(TrainingQuery(skills[row].doc_id, " ".join(texts), row, passages))
    return found


def _prose(body: str) -> Iterator[Sentence]:
    for fragment in segment(body[:_READ]).fragments:
        if fragment.block in ("prose", "list_item"):
            text = _SIGNS.sub("", LINK.sub(r"\1", _MARK.sub("", fragment.text)))
            piece = " ".join(text.split())
            if piece and not _CODE.search(piece) and not piece.endswith(":"):
                yield Sentence(piece, fragment.text)


def named_in(piece: str, skill: Skill) -> bool:
    """Tell whether a text holds the name of a skill, word for word."""
    name = plain_name(skill.name)
    return bool(name) and f"-{name}-" in f"-{'-'.join(WORD.findall(piece.casefold()))}-"


class PairedQueries(NamedTuple):
    """Authors' requests as queries: those to train with, and those to validate on.

    `shared` counts requests of two skills, which have no one right answer and are neither.
    """

    train: list[TrainingQuery]
    validation: list[TrainingQuery]
    shared: int = 0


def read_pairs(path: Path) -> pl.DataFrame:
    """Return the pairs of a Parquet file, by `PAIRS`; further columns are left out.

    Raises:
        WrongInput: The file cannot be read, or holds something else.
    """
    try:
        return pl.read_parquet(path).select(PAIRS.names()).cast(PAIRS)
    except (OSError, pl.exceptions.PolarsError) as error:
        why = str(error).splitlines()[0]
        msg = f"{path} cannot be read as pairs ({why}): it needs the columns {', '.join(PAIRS.names())}"
        raise WrongInput(msg) from error


def asked_of(pairs: pl.DataFrame, skills: Sequence[Skill]) -> PairedQueries:
    """Return the requests of pairs, each once.

    Raises:
        WrongInput: A skill that the pairs name is not among these, or has another text, or a side has no
            request.
    """
    rows = {skill.doc_id: row for row, skill in enumerate(skills)}
    # A request has a pair for each text of its skill; it is one query.
    requests = pairs.unique(["query", "doc_id"], keep="first", maintain_order=True)
    _require_same_texts(requests, rows, skills)
    keys = requests["query"].map_elements(lambda query: " ".join(words_of(query)), return_dtype=pl.String)
    own = requests.filter(keys.is_unique())
    sides = own.partition_by("split", as_dict=True)
    train, validation = (
        list(_queries(sides.get((side,), own[:0]).iter_rows(named=True), rows, skills))
        for side in ("train", "validation")
    )
    if not train or not validation:
        lacks = "validate on" if train else "train with"
        raise WrongInput(f"the pairs hold no request to {lacks}: make them of skills of more repositories")
    return PairedQueries(train, validation, requests.height - own.height)


def _require_same_texts(requests: pl.DataFrame, rows: dict[str, int], skills: Sequence[Skill]) -> None:
    for doc_id, digest in requests.select("doc_id", "skill").unique(maintain_order=True).iter_rows():
        row = rows.get(doc_id)
        if row is None or digest_of(skills[row]) != digest:
            lacks = "no --corpus holds" if row is None else "has another text now"
            msg = f"the pairs name the skill {doc_id!r}, which {lacks}: make the pairs of these corpora"
            raise WrongInput(msg)


def _queries(
    pairs: Iterable[dict[str, Any]], rows: dict[str, int], skills: Sequence[Skill]
) -> Iterable[TrainingQuery]:
    for pair in pairs:
        row = rows[pair["doc_id"]]
        skill = skills[row]
        text = skill.body if pair["cut_field"] == "body" else skill.description
        passage = text[pair["cut_start"] : pair["cut_end"]]
        yield TrainingQuery(pair["doc_id"], pair["query"], row, (passage,) if passage else ())
