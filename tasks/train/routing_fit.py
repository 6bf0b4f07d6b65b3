"""Fits routing's model of fit: `python -m tasks.train.routing_fit ENCODER CORPUS PAIRS BENCH...`.

ENCODER is the folder of the exported default encoder, CORPUS the skills of PAIRS (a Parquet file by
`tasks.train.queries.PAIRS`), each BENCH a folder as `evaluate routing --bench` takes it. Requests are asked
of pools that hold their skill, and of pools without it: skills drawn from all, and those of one repository,
which are alike. Requests that authors call negatives are not learned from. Standard output tells how well a
group of requests does under the model of all others. Seeds are fixed; ten minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from storage.root import Root
from tasks.evaluate.measures.statistics import auroc, calibration_by_count, calibration_error
from tasks.evaluate.routing.data import id_starts, read_copies, read_qrels, read_skills, read_tasks
from tasks.models.cached_encoder import KeptEncoder
from tasks.models.encoder import OnnxEncoder
from tasks.models.protocols import Encoder, Vectors
from tasks.retrieve.routing.bm25f import lexical_of
from tasks.retrieve.routing.fit import DECIDING, FEATURES, FILE, Evidence, FitModel
from tasks.retrieve.routing.postings import Postings, joined, postings_of
from tasks.retrieve.routing.postings import kept as those
from tasks.retrieve.routing.router import Router, plain_name
from tasks.retrieve.routing.skill import Skill
from tasks.train.logistic import fit_chance
from tasks.train.queries import grams_of, read_pairs, without_grams

PAIRS = "pairs"  # the group of requests out of a corpus
SIZES = (10, 30, 100, 300, 1000, 3000, 10_000)  # of drawn pools, beside all skills
_DRAWS = 3  # pools of each size
_ASKED = 150  # requests of a pool whose skill is in it, and as many others at most
_LEAST = 12  # skills of a repository that is a pool
_FOREIGN = 0.25  # requests of others that a repository is asked, for one of its own whose skill is left out
# How many requests nothing serves is not known; of authors' requests one in sixteen is a negative.
_UNSERVED = 0.1
_PENALTY = 1e-4
# What is found can only speak for a skill: without this, weights of alike numbers cancel each other out.
_RISING = tuple(place for place, name in enumerate(FEATURES, start=1) if name != "rows")
_LOST = 0.05  # share of the served requests of which it may be told that nothing fits

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class AskedSkill:
    """A request, the place of its skill, that skill without the request's own words, repository and group."""

    query: str
    place: int
    skill: Skill
    repo: str
    group: str


@dataclass(frozen=True, slots=True)
class AskedCorpus:
    """Skills with their postings and unit vectors, `(skills, dimension)`, their encoder, and requests."""

    skills: Sequence[Skill]
    postings: Postings
    vectors: Vectors
    encoder: Encoder
    asked: Sequence[AskedSkill]

    @classmethod
    def of(cls, skills: Sequence[Skill], encoder: Encoder, asked: Sequence[AskedSkill]) -> AskedCorpus:
        """Return what requests are asked of, with what is found of the skills once for all pools."""
        return cls(skills, postings_of(skills), encoder.encode([s.head for s in skills]), encoder, asked)


class FitRows(NamedTuple):
    """Results by row: evidence, `(rows, features)`; whether right, first, of a served request; group, repo.

    The results of a request stand together, and the first begins them.
    """

    evidence: Evidence
    right: Flags
    first: Flags
    served: Flags
    group: npt.NDArray[np.str_]
    repo: npt.NDArray[np.str_]

    def where(self, chosen: Flags) -> FitRows:
        """Return some of the rows."""
        return FitRows(*(column[chosen] for column in self))  # type: ignore[arg-type]

    def surest(self, chances: Evidence) -> Evidence:
        """Return the highest of its results' chances for each request: it decides whether nothing fits."""
        return np.asarray(np.maximum.reduceat(chances, np.flatnonzero(self.first)))


def of_pairs(pairs: Path, corpus: Path, encoder: Encoder) -> AskedCorpus:
    """Return a corpus with one request of each skill that has some."""
    skills = [Skill(*row) for row in read_skills([corpus]).iter_rows()]
    place = {skill.doc_id: i for i, skill in enumerate(skills)}
    rows = read_pairs(pairs).unique(["query", "doc_id"], keep="first", maintain_order=True)
    rows = rows.sample(fraction=1.0, shuffle=True, seed=0).unique("doc_id", keep="first", maintain_order=True)
    asked = []
    for row in rows.filter(pl.col("doc_id").is_in(list(place))).iter_rows(named=True):
        at = place[row["doc_id"]]
        asked.append(AskedSkill(row["query"], at, _without(row, skills[at]), row["repo"], PAIRS))
    return AskedCorpus.of(skills, encoder, asked)


def _without(row: dict[str, Any], skill: Skill) -> Skill:
    """Return a skill without its request: the clause it was made of, and its words where they stand again."""
    text = getattr(skill, row["cut_field"])
    skill = skill._replace(**{row["cut_field"]: f"{text[: row['cut_start']]} {text[row['cut_end'] :]}"})
    grams = grams_of(row["query"]) | grams_of(text[row["cut_start"] : row["cut_end"]])
    told, body = (without_grams(text, grams) for text in (skill.description, skill.body))
    return skill._replace(description=told, body=body)


def of_bench(bench: Path, corpus: Path, encoder: Encoder) -> AskedCorpus:
    """Return the skills of a bench and of a corpus, without copies, and its requests that need one skill.

    Requests are grouped by repository where they name one, else by bench.
    """
    own = bench / "documents.parquet"
    copies = read_copies(bench / "copies.jsonl" if (bench / "copies.jsonl").exists() else None)
    held = read_skills([*([own] if own.exists() else []), corpus])
    skills = [Skill(*row) for row in held.iter_rows() if row[0] not in copies]
    place = {skill.doc_id: i for i, skill in enumerate(skills)}
    needed: dict[str, list[str]] = {}
    for query_id, doc_id, relevance in read_qrels(bench / "qrels.jsonl"):
        needed.setdefault(query_id, []).extend([doc_id] * (relevance > 0))
    asked = []
    for task in read_tasks(bench / "queries.jsonl"):
        if len(needed.get(task.query_id, [])) == 1:
            at, group = place[needed[task.query_id][0]], task.repo or bench.name
            asked.append(AskedSkill(task.text, at, skills[at], task.repo or "", group))
    return AskedCorpus.of(skills, encoder, asked)


def drawn_rows(given: AskedCorpus, draw: np.random.Generator) -> Iterator[FitRows]:
    """Yield what each group's requests find in pools of every size, and in repositories."""
    everything = len(given.skills)
    for group in sorted({a.group for a in given.asked}):
        own = [a for a in given.asked if a.group == group]
        for size in (*(size for size in SIZES if size < everything), everything):
            for _ in range(_DRAWS):
                kept, left_out = halves(own, min(_ASKED, max(size // 2, 1)), draw)
                drawn = draw.permutation(everything)[: max(size - len(kept), 0)]
                yield asked_of(given, drawn.tolist(), kept, left_out)
    for repo, members in repositories(given).items():
        own = [a for a in given.asked if a.repo == repo]
        others = [a for a in given.asked if a.repo != repo]
        for _ in range(_DRAWS):
            kept, left_out = halves(own, _ASKED, draw)
            foreign = draw.permutation(len(others))[: round(_FOREIGN * len(left_out)) + 1]
            yield asked_of(given, members, kept, [*left_out, *(others[i] for i in foreign.tolist())])


def halves(
    asked: Sequence[AskedSkill], most: int, draw: np.random.Generator
) -> tuple[list[AskedSkill], list[AskedSkill]]:
    """Return requests of a half of the skills, drawn at random, and of the other, `most` of each at most."""
    places = draw.permutation(np.unique([a.place for a in asked]))
    stay = set(places[: -(-len(places) // 2)].tolist())
    shuffled = [asked[i] for i in draw.permutation(len(asked)).tolist()]
    kept = [a for a in shuffled if a.place in stay]
    return kept[:most], [a for a in shuffled if a.place not in stay][:most]


def repositories(given: AskedCorpus) -> dict[str, list[int]]:
    """Return the places of the skills of each repository that has enough, of which several are asked for."""
    ids = [skill.doc_id.lower() for skill in given.skills]
    found: dict[str, list[int]] = {}
    for repo in sorted({a.repo for a in given.asked} - {""}):
        if len({a.place for a in given.asked if a.repo == repo}) >= _LEAST // 2:
            members = [i for i, doc_id in enumerate(ids) if doc_id.startswith(id_starts(repo))]
            found |= {repo: members} if len(members) >= _LEAST else {}
    return found


def asked_of(
    given: AskedCorpus, members: Sequence[int], kept: Sequence[AskedSkill], left_out: Sequence[AskedSkill]
) -> FitRows:
    """Ask requests of a pool: members and the skills of `kept`, without any named like one of `left_out`."""
    gone = {plain_name(a.skill.name) for a in (*left_out, *kept)}
    stays = np.zeros(len(given.skills), dtype=bool)
    stays[[i for i in members if plain_name(given.skills[i].name) not in gone]] = True
    own = list({a.skill.doc_id: a.skill for a in kept}.values())
    postings = joined([those(given.postings, stays), postings_of(own)])
    heads = given.encoder.encode([skill.head for skill in own])
    pool = [*(given.skills[i] for i in np.flatnonzero(stays).tolist()), *own]
    router = Router(
        [s.doc_id for s in pool], [s.name for s in pool], lexical_of(postings), postings.sketches,
        np.concatenate([given.vectors[stays], heads]), given.encoder,
    )  # fmt: skip
    rows = [
        (
            [*found.evidence.values()],
            served and asked.skill.doc_id in (found.doc_id, *found.folded), rank == 0, served, asked.group,
            asked.repo,
        )
        for asked, served in [*((a, True) for a in kept), *((a, False) for a in left_out)]
        for rank, found in enumerate(router.rank(asked.query, DECIDING))
    ]  # fmt: skip
    return FitRows(*(np.array(column) for column in zip(*rows, strict=True)))


def fit(rows: FitRows) -> FitModel:
    """Return the model under which what is right is likeliest, each group counting the same."""
    weights = np.zeros(len(rows.right))
    for group in np.unique(rows.group):
        for served, share in ((True, 1 - _UNSERVED), (False, _UNSERVED)):
            some = (rows.group == group) & (rows.served == served)
            weights[some] = share / max(some.sum(), 1)
    columns = np.column_stack([np.ones(len(rows.evidence)), rows.evidence])
    found = fit_chance(columns, rows.right, _PENALTY, weights, _RISING)
    model = FitModel(found[1:], float(found[0]), 0.0)
    surest, of = rows.surest(model.chances(rows.evidence)), rows.where(rows.first)
    least = [np.quantile(surest[of.served & (of.group == group)], _LOST) for group in np.unique(rows.group)]
    return model._replace(least=float(np.mean(least)))


def report(rows: FitRows) -> dict[str, Any]:
    """Return for each group, under the model of all others, how well first results are told.

    Requests of a repository's skills are among the others of no model that is asked about that repository.

    `served` and `right` are areas under the curve of served requests, by their surest result, and of right
    results against all others, `ece` the expected calibration error where the requests are served, and
    `nothing` the shares of served and of other requests of which it is told that nothing fits.
    """
    told = {}
    for group in np.unique(rows.group).tolist():
        model = fit(rows.where((rows.group != group) & (np.char.lower(rows.repo) != group.lower())))
        every = rows.where(rows.group == group)
        own, surest = every.where(every.first), every.surest(model.chances(every.evidence))
        chances = model.chances(own.evidence)
        bins = calibration_by_count(chances[own.served].tolist(), own.right[own.served].tolist())
        nothing = surest < model.least
        told[group] = {
            "requests": len(chances),
            "served": auroc(surest[own.served].tolist(), surest[~own.served].tolist()),
            "right": auroc(chances[own.right].tolist(), chances[~own.right].tolist()),
            "ece": calibration_error(bins),
            "nothing": [float(nothing[own.served].mean()), float(nothing[~own.served].mean())],
        }
    return told


def main() -> None:
    """Fit on all groups, write the packaged model, tell how well each group does without itself."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    for name in ("encoder", "corpus", "pairs"):
        parser.add_argument(name, type=Path)
    parser.add_argument("bench", type=Path, nargs="*")
    parser.add_argument("--out", type=Path, default=FILE)
    told = parser.parse_args()
    draw = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        # Many pools hold the same skills and are asked the same requests.
        encoder = KeptEncoder(OnnxEncoder(told.encoder), Root(folder))
        given = [of_pairs(told.pairs, told.corpus, encoder)]
        given += [of_bench(bench, told.corpus, encoder) for bench in told.bench]
        pools = (pool for asking in given for pool in drawn_rows(asking, draw))
        rows = FitRows(*(np.concatenate(column) for column in zip(*pools, strict=True)))
    told.out.write_text(json.dumps(fit(rows).told(), indent=1) + "\n", "utf-8")
    groups = report(rows) if told.bench else {}
    sys.stdout.write(json.dumps(groups, indent=1) + "\n")


if __name__ == "__main__":
    main()
