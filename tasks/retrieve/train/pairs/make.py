"""Makes pairs of request and text of a skill out of a corpus, and of what an LLM wrote about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import polars as pl

from tasks.refine.duplicates.near import NearLimits
from tasks.refine.text.language import language_of
from tasks.retrieve.routing.skill import Skill, digest_of
from tasks.retrieve.train.pairs.clusters import clusters_of, validation_rows
from tasks.retrieve.train.pairs.evals import eval_pieces
from tasks.retrieve.train.pairs.held_out import AskedTexts, Bench, near_gold
from tasks.retrieve.train.pairs.names import Names
from tasks.retrieve.train.pairs.pieces import Piece
from tasks.retrieve.train.pairs.requests import PairRequest, Rarity, requests_in, told_apart
from tasks.retrieve.train.pairs.texts import SkillTexts

PAIRS_FILE = "pairs.parquet"
# `skill` is the digest of the skill's texts, of which `cut_start` and `cut_end` are places.
PAIRS = pl.Schema({
    "query": pl.String, "doc_id": pl.String, "skill": pl.String, "repo": pl.String,
    "origin": pl.String, "field": pl.String, "text": pl.String,
    "cut_field": pl.String, "cut_start": pl.Int64, "cut_end": pl.Int64,
    "split": pl.String, "cluster": pl.String,
})  # fmt: skip
_SURE = 0.8  # confidence of another language than English


class PairSource(NamedTuple):
    """A skill with what its pairs need beside its text: repository, other names, its file of evals.

    `written` is a task that a language model wrote about it.
    """

    skill: Skill
    repo: str
    names: tuple[str, ...] = ()
    evals: bytes | None = None
    written: str | None = None


@dataclass(frozen=True, slots=True)
class PairSettings:
    """The limits of pairs.

    `nats` is the least information of a request, `clusters` how many clusters of skills may share one,
    `validation` the share of skills to validate on (0 to 1), and `near` the least similarity of copies (see
    `NearLimits`).
    """

    nats: float = 7.0
    clusters: int = 2
    validation: float = 0.1
    near: float = 0.85


@dataclass(frozen=True, slots=True)
class PairSet:
    """Pairs by `PAIRS`, and counts: skills by what became of them, requests and texts dropped by reason.

    `benches` has for each bench how many skills (`gold`, `copies`) and requests were kept out because of it.
    """

    pairs: pl.DataFrame
    skills: Counter[str]
    dropped: Counter[str]
    benches: dict[str, Counter[str]]

    def counts(self) -> dict[str, Any]:
        """Return all counts: pairs and requests by origin and split, pairs by field, what was dropped."""
        keys, requests = ["origin", "split"], self.pairs.unique(["query", "doc_id"])
        return {
            "pairs": self.pairs.height, "requests": requests.height,
            "skills_with_pairs": self.pairs["doc_id"].n_unique(),
            "by_origin": [
                {**dict(zip(keys, row, strict=False)), "pairs": row[2], "requests": row[3]}
                for row in self.pairs.group_by(keys)
                .agg(pl.len(), requests=pl.struct("query", "doc_id").n_unique())
                .sort(keys).iter_rows()
            ],
            "by_field": dict(self.pairs.group_by("field").len().sort("field").iter_rows()),
            "by_split": dict(self.pairs.group_by("split").len().sort("split").iter_rows()),
            "skills": dict(self.skills), "dropped": dict(self.dropped.most_common()),
            "benches": {name: dict(found) for name, found in self.benches.items()},
        }  # fmt: skip


def make_pairs(
    sources: Sequence[PairSource],
    benches: Sequence[Bench],
    gold: Mapping[str, str],
    how: PairSettings,
    seed: int,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> PairSet:
    """Return the pairs of a corpus: the same for the same sources in the same order, and the same seed.

    Args:
        sources: The corpus, each doc_id once.
        benches: Whose relevant skills and requests are kept out.
        gold: Bodies of their skills by doc_id, where the corpus does not hold them.
        how: The limits.
        seed: Draws what is validated on.
        progress: Is called with the skills read and their total.
    """
    dropped, skills = Counter[str](), Counter(read=len(sources))
    counted = {bench.name: Counter[str]() for bench in benches}
    free = free_rows(sources, benches, gold, counted, skills)
    clusters = clusters_of([source.skill.body for source in sources], NearLimits(how.near))
    rarity = Rarity.of([source.skill for source in sources])
    names = {row: Names([sources[row].skill.name, *sources[row].names]) for row in free}
    found: list[PairRequest] = []
    for done, row in enumerate(free, start=1):
        source = sources[row]
        apart = [*eval_pieces(source.evals or b"")]
        apart += [Piece("written", source.written, "body", 0, 0)] if source.written else []
        found += requests_in(row, source.skill, apart, names[row], rarity, how.nats, dropped)
        progress(done, len(free))
    told = told_apart(found, clusters.tolist(), how.clusters, dropped)
    asked = _without_asked(told, benches, counted, dropped)
    validated = validation_rows([source.repo for source in sources], clusters, how.validation, seed)
    trained = {request.key for request in asked if request.row not in validated}
    kept = [r for r in asked if r.row not in validated or r.key not in trained]
    dropped["asked_in_train"] += len(asked) - len(kept)
    rows = [
        (*row, "validation" if at in validated else "train", str(clusters[at]))
        for at, row in _rows(sources, names, kept, dropped)
    ]
    return PairSet(pl.DataFrame(rows, PAIRS, orient="row"), skills, dropped, counted)


def free_rows(
    sources: Sequence[PairSource],
    benches: Sequence[Bench],
    gold: Mapping[str, str],
    counted: Mapping[str, Counter[str]],
    skills: Counter[str],
) -> list[int]:
    """Return the rows of English skills that no bench holds, nor copies or versions of what one holds.

    `counted`, by the benches' names, and `skills` are added to.
    """
    bodies = {source.skill.doc_id: source.skill.body for source in sources}
    texts = {
        doc_id: body for b in benches for doc_id in b.gold if (body := gold.get(doc_id, bodies.get(doc_id)))
    }
    ids = sorted(texts)
    near = [
        {ids[at] for at in found} for found in near_gold(bodies.values(), [texts[doc_id] for doc_id in ids])
    ]
    taken = set[int]()
    for bench in benches:
        own = {row for row, doc_id in enumerate(bodies) if doc_id in bench.gold}
        copies = {row for row, found in enumerate(near) if found & bench.gold} - own
        counted[bench.name].update(gold=len(own), copies=len(copies))
        taken |= own | copies
    skills["on_a_bench"] = len(taken)
    free = []
    for row in sorted(set(range(len(sources))) - taken):
        skill = sources[row].skill
        if language_of(skill.body, skill.description, min_confidence=_SURE).code in ("en", None):
            free.append(row)
    skills["not_english"] = len(sources) - len(taken) - len(free)
    return free


def _without_asked(
    requests: Sequence[PairRequest],
    benches: Sequence[Bench],
    counted: Mapping[str, Counter[str]],
    dropped: Counter[str],
) -> list[PairRequest]:
    """Return the requests that are near to none of a bench's."""
    taken: set[int] = set()
    for bench in benches:
        asked = AskedTexts(bench.requests)
        own = {at for at, request in enumerate(requests) if asked.near(request.query)}
        counted[bench.name]["requests"] = len(own)
        taken |= own
    dropped["asked_by_a_bench"] += len(taken)
    return [request for at, request in enumerate(requests) if at not in taken]


def _rows(
    sources: Sequence[PairSource],
    names: Mapping[int, Names],
    requests: Sequence[PairRequest],
    dropped: Counter[str],
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    for row, of_skill in groupby(requests, key=lambda request: request.row):
        skill = sources[row].skill
        texts, digest = SkillTexts.of(skill.description, skill.body, names[row]), digest_of(skill)
        for query, _, piece in of_skill:
            cut = piece.field, piece.start, piece.end
            for name, text in texts.of_request(query, piece):
                if text is None:
                    dropped[f"no_{name}_text"] += 1
                else:
                    known = skill.doc_id, digest, sources[row].repo
                    yield row, (query, *known, piece.origin, name, text, *cut)
