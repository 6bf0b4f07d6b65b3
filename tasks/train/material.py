"""Material of a training for routing: skills split in two sides, queries, negatives, and rows of texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from storage.errors import WrongInput
from tasks.models.protocols import Encoder, IndexEncoder, Tokenizer
from tasks.retrieve.baselines.skillrouter import flat_text
from tasks.retrieve.routing.bm25f import Lexical, lexical_of
from tasks.retrieve.routing.postings import Postings, postings_of
from tasks.retrieve.routing.router import Router
from tasks.retrieve.routing.skill import Skill
from tasks.train.hard_negatives import FalseNegatives, Mined, Negative, Pool, candidate_lists, mine_negatives
from tasks.train.queries import (
    PairedQueries,
    TrainingOptions,
    TrainingQuery,
    make_queries,
    without_queries,
    words_of,
)
from tasks.train.splits import Rows, Split, categories_of, families, in_turn, one_a_family, split_families

# Shows, under a name, what is done of a total.
Progress = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]
TextOf = Callable[[Skill], str]
Rank = Callable[[str, int], Sequence[str]]
LEAST_WORDS = 8  # of a text: fewer say nothing of a skill
_DESCRIPTION_SHARE = 0.5  # of the tokens of a flat text


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
        vectors = encoders.skills.encode([skill.head for skill in self.skills])
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

    def counts(self) -> dict[str, Any]:
        """Return the numbers of skills, queries, negatives by source, false ones by layer, and `left_out`."""
        removed, found = sum(self.mined.removed.values()), sum(self.mined.found.values())
        return {
            "skills": len(self.skills), "train": len(self.trained), "held_out": len(self.held_out.rows),
            "queries": len(self.queries), "held_out_queries": len(self.asked),
            "negatives": dict(self.mined.found), "false_negatives": dict(self.mined.removed),
            "false_share": removed / max(found + removed, 1), "left_out": dict(self.left_out),
        }  # fmt: skip


def gather(
    skills: list[Skill], categories: dict[str, str], encoders: Encoders, options: TrainingOptions,
    progress: Progress, *, pairs: int, seed: int, asked: PairedQueries | None = None,
) -> Material:  # fmt: skip
    """Return the material of a training, made from a corpus in an order that does not change.

    `encoders` are the base, which finds the semantic negatives, `pairs` the most queries to train with, and
    `asked` authors' requests, as `skills` has their rows; None: queries are made from bodies. `seed` decides
    the split, the queries and the negatives.

    Raises:
        WrongInput: There are too few skills, or too few whose bodies say something.
    """
    of = families(skills)
    sides = [[query.row for query in side] for side in (asked.train, asked.validation)] if asked else []
    split = split_families(of, options.held_out, seed, *sides)
    if len(split.train) <= options.negatives or not len(split.held_out):
        raise WrongInput(f"{len(skills)} skills are too few to train with: give a corpus of some hundreds")
    compared = text_form(options.mined, options.tokens, encoders.skills, options.limits)
    vectors = encoders.skills.encode([compared(skill) for skill in skills])
    named = categories_of([categories.get(s.doc_id) for s in skills], vectors, options.clusters, seed)
    left_out: Counter[str] = Counter()
    if asked is not None:
        queries, held_out = _requests(skills, asked, split, options, pairs, seed, left_out)
    else:
        queries, held_out = _queries(skills, of, split, named, options, pairs, seed)
    false = FalseNegatives(skills, vectors, options)
    texts = encoders.tasks.encode([query.text for query in queries])
    draw = np.random.default_rng([seed, 2])
    lexical = lexical_of(postings_of(skills[row] for row in split.train.tolist()))
    pool = Pool(split.train, vectors[split.train], lexical, [named[row] for row in split.train.tolist()])
    with progress("queries mined for") as report:
        mined = mine_negatives(queries, texts, pool, false, options, draw, report)
    train = _side(skills, split.train, queries[: options.lists], options.ranked, draw)
    other = _side(skills, split.held_out, held_out, options.ranked, draw)
    return Material(skills, train, other, queries, held_out, split.train, false, mined, left_out)


def gather_lists(
    material: Material, rank: Rank, options: TrainingOptions, seed: int, progress: Progress
) -> tuple[list[TrainingQuery], Mined]:
    """Return queries to train a reranker with, and the candidates of each beside its positive.

    `rank` gives the ids of so many skills of the training side, best first.
    """
    queries = material.queries[: options.lists]
    rows = {skill.doc_id: row for skill, row in zip(material.train.skills, material.train.rows, strict=True)}
    with progress("lists made for") as report:
        ranked = []
        for done, query in enumerate(queries, start=1):
            ranked.append([int(rows[doc_id]) for doc_id in rank(query.text, 2 * options.candidates)])
            report(done, len(queries))
    draw, most = np.random.default_rng([seed, 3]), options.candidates - 1
    return queries, candidate_lists(queries, ranked, material.train.rows, material.false, most, draw)


def text_form(form: str, tokens: int, tokenizer: Tokenizer, limits: tuple[int, int]) -> TextOf:
    """Return a function that makes the text of a skill.

    `description` is name and description as they are indexed. `flat` is SkillRouter's form,
    `name | description | body`, of so many tokens at most; `limits` are those of description and body, 0:
    half of the tokens, and all.
    """
    if form == "description":
        return lambda skill: skill.head
    own = limits[0] or int(_DESCRIPTION_SHARE * tokens), limits[1] or tokens
    return lambda skill: flat_text(skill, own, tokenizer)


def training_rows(
    material: Material, text: TextOf, options: TrainingOptions, draw: np.random.Generator
) -> list[tuple[str, ...]]:
    """Return rows of query, positive and `drawn` of its negatives; each epoch draws and shuffles again.

    A query with fewer negatives has no row. `text` makes the text of a skill, which is read without the
    passages that queries were made of.
    """
    rows, read = [], without_queries(material.skills, material.queries)
    for _ in range(options.epochs):
        for at in draw.permutation(len(material.queries)).tolist():
            query, found = material.queries[at], material.mined.negatives[at]
            if len(found) >= options.drawn:
                chosen = draw.choice(len(found), options.drawn, replace=False).tolist()
                own = (query.row, *(found[i].row for i in chosen))
                rows.append((query.text, *(text(read[row]) for row in own)))
    return rows


def list_rows(
    skills: Sequence[Skill],
    queries: Sequence[TrainingQuery],
    lists: Sequence[Sequence[Negative]],
    text: TextOf,
) -> list[tuple[str, ...]]:
    """Return rows of query, positive and all other candidates, for the lists of the greatest length.

    Skills are read as `training_rows` reads them.
    """
    read = without_queries(skills, queries)
    longest = max(map(len, lists), default=0)
    return [
        (query.text, text(read[query.row]), *(text(read[n.row]) for n in candidates))
        for query, candidates in zip(queries, lists, strict=True)
        if len(candidates) == longest
    ]


def _queries(
    skills: list[Skill], of: Rows, split: Split, named: Sequence[str], options: TrainingOptions, pairs: int,
    seed: int,
) -> tuple[list[TrainingQuery], list[TrainingQuery]]:  # fmt: skip
    draw = np.random.default_rng([seed, 1])
    train = in_turn(one_a_family(of, split.train, draw), named)
    queries = make_queries(skills, train, pairs, options, draw)
    held = draw.permutation(split.held_out)
    asked = make_queries(skills, held, options.held_out_queries, options, draw)
    if not queries or not asked:
        msg = "no skill has sentences in its body that its description lacks: give a corpus with bodies"
        raise WrongInput(msg)
    return queries, asked


def _requests(
    skills: Sequence[Skill], asked: PairedQueries, split: Split, options: TrainingOptions, pairs: int,
    seed: int, left_out: Counter[str],
) -> tuple[list[TrainingQuery], list[TrainingQuery]]:  # fmt: skip
    """Return authors' requests in random order: those to train with, and one a held-out skill."""
    draw = np.random.default_rng([seed, 1])
    usable = _telling(skills, asked.train, options)
    queries = [usable[at] for at in draw.permutation(len(usable))[:pairs].tolist()]
    held = set(split.held_out.tolist())
    shuffled = (asked.validation[at] for at in draw.permutation(len(asked.validation)).tolist())
    one_each = {query.row: query for query in shuffled if query.row in held}
    if not queries or not one_each:
        msg = "no request of the pairs is left to train with, or to validate on: give pairs of more skills"
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


def _side(
    skills: Sequence[Skill], rows: Rows, queries: Sequence[TrainingQuery], most: int,
    draw: np.random.Generator,
) -> Side:  # fmt: skip
    """Return queries' skills and others, about `most`; bodies lack what is quoted: anything finds that."""
    asked = np.unique(np.array([query.row for query in queries], dtype=np.int64))
    others = draw.permutation(np.setdiff1d(rows, asked))[: max(most - len(asked), 0)]
    rows = np.sort(np.concatenate([asked, others]))
    read = without_queries(skills, queries)
    own = [read[row] for row in rows.tolist()]
    postings = postings_of(own)
    return Side(rows, own, postings, lexical_of(postings))
