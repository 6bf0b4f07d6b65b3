"""The data of a training: skills split in two sides, queries, hard negatives, a router over each side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from flows.commands.console import progress
from flows.commands.routing.settings import TrainingOptions
from storage.errors import WrongInput
from tasks.models.protocols import Encoder, IndexEncoder, Vectors
from tasks.retrieve.routing.bm25f import Lexical, lexical_of
from tasks.retrieve.routing.postings import Postings, postings_of
from tasks.retrieve.routing.router import Router
from tasks.retrieve.routing.skill import TEMPLATE, Skill
from tasks.retrieve.train.false_negatives import FalseNegatives
from tasks.retrieve.train.hard_negatives import Mined, Pool, candidate_lists, mine_negatives
from tasks.retrieve.train.paired import PairedQueries
from tasks.retrieve.train.queries import TrainingQuery, make_queries, without_queries, words_of
from tasks.retrieve.train.split import (
    Rows,
    Split,
    categories_of,
    families,
    in_turn,
    one_a_family,
    split_families,
)

LEAST_WORDS = 8  # of a text: fewer say nothing of a skill
UNFITTED = "named"  # the part of an exact name, which outweighs all others: no weight may touch it


class Encoders(NamedTuple):
    """One model twice: `skills` keeps vectors, and counts tokens; `tasks` does not, and encodes them once."""

    skills: IndexEncoder
    tasks: Encoder


@dataclass(frozen=True, slots=True)
class Side:
    """Skills of one side, with what the router needs to rank them whatever the encoder."""

    rows: Rows
    skills: list[Skill]
    postings: Postings
    lexical: Lexical

    def router(self, encoders: Encoders) -> Router:
        """Return the default router over these skills with vectors of this encoder."""
        ids, names = [s.doc_id for s in self.skills], [s.name for s in self.skills]
        vectors = encoders.skills.encode(head_texts(self.skills))
        return Router(ids, names, self.lexical, self.postings.sketches, vectors, encoders.tasks)


@dataclass(frozen=True, slots=True)
class Material:
    """What is trained with, and what is measured on; of authors' requests, those left out by reason."""

    skills: list[Skill]
    train: Side
    held_out: Side
    queries: list[TrainingQuery]
    asked: list[TrainingQuery]
    trained: Rows
    false: FalseNegatives
    mined: Mined
    left_out: Counter[str]


def head_texts(skills: Sequence[Skill]) -> list[str]:
    """Return name and description of each skill as the index encodes them."""
    return [TEMPLATE.format(name=skill.name, description=skill.description) for skill in skills]


def gather(
    skills: list[Skill],
    categories: dict[str, str],
    encoders: Encoders,
    options: TrainingOptions,
    *,
    pairs: int,
    seed: int,
    asked: PairedQueries | None = None,
) -> Material:
    """Return the material of a training, made from a corpus.

    Args:
        skills: In an order that does not change.
        categories: By doc_id, of those that have one.
        encoders: The base, which finds the semantic negatives.
        options: How.
        pairs: Queries to train with at most.
        seed: Decides the split, the queries and the negatives.
        asked: Authors' requests, as `skills` has their rows; None: queries are made from bodies.

    Raises:
        WrongInput: There are too few skills, or too few whose bodies say something.
    """
    of = families(skills)
    sides = [[query.row for query in side] for side in (asked.train, asked.validation)] if asked else []
    split = split_families(of, options.held_out, seed, *sides)
    if len(split.train) <= options.mining().total or not len(split.held_out):
        msg = f"{len(skills)} skills are too few to train with: give a corpus of some hundreds"
        raise WrongInput(msg)
    vectors = encoders.skills.encode(head_texts(skills))
    named = categories_of([categories.get(s.doc_id) for s in skills], vectors, options.clusters, seed)
    left_out: Counter[str] = Counter()
    if asked is not None:
        queries, held_out = _requests(skills, asked, split, options, pairs, seed, left_out)
    else:
        queries, held_out = _queries(skills, of, split, named, options, pairs, seed)
    pool = _pool(skills, split.train, vectors, named)
    false = FalseNegatives(skills, vectors, options.false())
    texts = encoders.tasks.encode([query.text for query in queries])
    draw = np.random.default_rng([seed, 2])
    with progress("queries mined for") as report:
        mined = mine_negatives(queries, texts, pool, false, options.mining(), draw, report)
    train = _side(skills, split.train, queries[: options.lists], options.ranked, draw)
    other = _side(skills, split.held_out, held_out, options.ranked, draw)
    return Material(skills, train, other, queries, held_out, split.train, false, mined, left_out)


def gather_lists(
    material: Material, router: Router, options: TrainingOptions, seed: int
) -> tuple[list[TrainingQuery], Mined]:
    """Return queries to train a reranker with, and the candidates of each beside its positive."""
    queries = material.queries[: options.lists]
    rows = {skill.doc_id: row for skill, row in zip(material.train.skills, material.train.rows, strict=True)}
    with progress("lists made for") as report:
        ranked = []
        for done, query in enumerate(queries, start=1):
            found = router.rank(query.text, 2 * options.candidates, fold=False)
            ranked.append([int(rows[one.doc_id]) for one in found])
            report(done, len(queries))
    draw = np.random.default_rng([seed, 3])
    most = options.candidates - 1
    return queries, candidate_lists(queries, ranked, material.train.rows, material.false, most, draw)


def described(material: Material) -> dict[str, Any]:
    """Return counts of what was gathered: skills, queries, negatives by source, false ones by layer.

    `left_out` are authors' requests that are not used, by reason.
    """
    mined = material.mined
    removed, found = sum(mined.removed.values()), sum(mined.found.values())
    return {
        "skills": len(material.skills), "train": len(material.trained),
        "held_out": len(material.held_out.rows), "queries": len(material.queries),
        "held_out_queries": len(material.asked), "negatives": dict(mined.found),
        "false_negatives": dict(mined.removed), "false_share": removed / max(found + removed, 1),
        "left_out": dict(material.left_out),
    }  # fmt: skip


def _queries(
    skills: list[Skill],
    of: Rows,
    split: Split,
    named: Sequence[str],
    options: TrainingOptions,
    pairs: int,
    seed: int,
) -> tuple[list[TrainingQuery], list[TrainingQuery]]:
    draw = np.random.default_rng([seed, 1])
    train = in_turn(one_a_family(of, split.train, draw), named)
    queries = make_queries(skills, train, pairs, options.queries(), draw)
    held = draw.permutation(split.held_out)
    asked = make_queries(skills, held, options.held_out_queries, options.queries(), draw)
    if not queries or not asked:
        msg = "no skill has sentences in its body that its description lacks: give a corpus with bodies"
        raise WrongInput(msg)
    return queries, asked


def _requests(
    skills: Sequence[Skill],
    asked: PairedQueries,
    split: Split,
    options: TrainingOptions,
    pairs: int,
    seed: int,
    left_out: Counter[str],
) -> tuple[list[TrainingQuery], list[TrainingQuery]]:
    """Return authors' requests in random order: those to train with, and one a held-out skill."""
    draw = np.random.default_rng([seed, 1])
    usable = _telling(skills, asked.train, options)
    queries = [usable[at] for at in draw.permutation(len(usable))[:pairs].tolist()]
    held = set(split.held_out.tolist())
    shuffled = (asked.validation[at] for at in draw.permutation(len(asked.validation)).tolist())
    one_each = {query.row: query for query in shuffled if query.row in held}
    if not queries or not one_each:
        msg = "no request of the pairs is left to train with, or to validate on: make pairs of more skills"
        raise WrongInput(msg)
    left_out.update(
        of_two_skills=asked.shared, of_skills_that_say_no_more=len(asked.train) - len(usable),
        beyond_pairs=len(usable) - len(queries),
    )  # fmt: skip
    return queries, list(one_each.values())[: options.held_out_queries]


def _telling(
    skills: Sequence[Skill], queries: Sequence[TrainingQuery], options: TrainingOptions
) -> list[TrainingQuery]:
    """Return the queries whose skills still say something without all that is asked of them."""
    read = without_queries(skills, queries)

    def says(skill: Skill) -> bool:
        text = skill.description if options.text == "description" else f"{skill.description} {skill.body}"
        return len(words_of(text)) >= LEAST_WORDS

    return [query for query in queries if says(read[query.row])]


def _pool(skills: Sequence[Skill], rows: Rows, vectors: Vectors, named: Sequence[str]) -> Pool:
    lexical = lexical_of(postings_of(skills[row] for row in rows.tolist()))
    return Pool(rows, vectors[rows], lexical, [named[row] for row in rows.tolist()])


def _side(
    skills: Sequence[Skill],
    rows: Rows,
    queries: Sequence[TrainingQuery],
    most: int,
    draw: np.random.Generator,
) -> Side:
    """Return queries' skills and others, about `most`; bodies lack what is quoted: anything finds that."""
    asked = np.unique(np.array([query.row for query in queries], dtype=np.int64))
    others = draw.permutation(np.setdiff1d(rows, asked))[: max(most - len(asked), 0)]
    rows = np.sort(np.concatenate([asked, others]))
    read = without_queries(skills, queries)
    own = [read[row] for row in rows.tolist()]
    postings = postings_of(own)
    return Side(rows, own, postings, lexical_of(postings))
