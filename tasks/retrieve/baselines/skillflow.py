"""SkillFlow's stages over skills: dense, rerank and select; an LLM writes queries and selects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, BeforeValidator, ValidationInfo

from tasks.models.llm.ask import Fallback, Llm, if_too_long
from tasks.models.llm.errors import Rejected
from tasks.models.llm.prompt import Answer, Numbers, Prompt, Values, known_of, without_thoughts
from tasks.models.llm.quoting import shortened
from tasks.models.protocols import Encoder, Vectors
from tasks.models.with_torch.reranker import PairScorer
from tasks.retrieve.baselines.stages import RANK_CONSTANT, Narrowed
from tasks.retrieve.routing.skill import Skill

Gathering = Literal["union", "rrf", "mean", "max"]
Aggregation = Literal["mean", "max", "rrf"]
Matrix = npt.NDArray[np.float64]
HOTTER = 0.3  # added to the temperature at each try: SkillFlow, appendix A.2
_LONGEST = 400  # characters of a query: twice what the prompt asks for
_MOST_SENT = 20_000  # characters of a task


def _query(text: str) -> str:
    query = " ".join(without_thoughts(text).split()).strip("\"'`“” ")
    if not query or len(query) > _LONGEST:
        raise Rejected(f"a query of 1 to {_LONGEST} characters is wanted, there are {len(query)}")
    return query


def _queries(found: object, info: ValidationInfo) -> list[str]:
    count: int = known_of(info)
    if isinstance(found, dict) and len(found) == 1:
        found = next(iter(found.values()))
    if not isinstance(found, list) or not all(isinstance(query, str) for query in found):
        raise Rejected("a JSON list of texts is wanted")
    queries = list(dict.fromkeys(_query(query) for query in found))
    if len(queries) < count:
        raise Rejected(f"{len(queries)} different queries instead of {count}")
    return queries[:count]


class Selected(Answer):
    """The numbers of the skills that an LLM selects."""

    selected: Numbers


_ONE: Prompt[str] = Prompt(
    "flow-query-1", "tasks.retrieve/flow_one_query.txt", Annotated[str, AfterValidator(_query)],
    text=True, hotter=HOTTER,
)  # fmt: skip
_MANY: Prompt[list[str]] = Prompt(
    "flow-queries-1", "tasks.retrieve/flow_many_queries.txt", Annotated[list[str], BeforeValidator(_queries)],
    hotter=HOTTER,
)  # fmt: skip
_RELEVANT: Prompt[Selected] = Prompt(
    "flow-relevant-1", "tasks.retrieve/flow_relevant.txt", Selected, hotter=HOTTER
)
_SPECIFIC: Prompt[Selected] = Prompt(
    "flow-specific-1", "tasks.retrieve/flow_specific.txt", Selected, hotter=HOTTER
)


class QueryWriter(Protocol):
    """Makes queries for a stage."""

    def write(self, task: str, count: int, rules: str | None) -> list[str]:
        """Return about `count` queries for a task, at least one; `rules` replace the packaged prompt."""


class TaskItself:
    """Takes the task as the one query of every stage, without an LLM."""

    def write(self, task: str, count: int, rules: str | None) -> list[str]:  # noqa: ARG002
        """Return the task."""
        return [task]


class LlmQueries:
    """Asks an LLM for queries (SkillFlow, appendix A.2).

    One query is asked for in free text, several, and one too if it is `listed`, as a JSON list. Rules of a
    user may hold `{num_queries}`, their number. If no try gives a list, the queries are asked for one by one,
    each at a higher temperature than the last; if none of these is usable either, the task
    itself is the query.
    """

    def __init__(self, llm: Llm, *, listed: bool = False) -> None:
        self._llm, self._listed = llm, listed

    def write(self, task: str, count: int, rules: str | None) -> list[str]:
        """Return about `count` queries for a task, at least one; `rules` replace the packaged prompt.

        Raises `LlmDenied` if the server denies access, or has no such model.
        """
        (found,) = self._llm.gather([self._write(task, count, rules)])
        return found

    async def _write(self, task: str, count: int, rules: str | None) -> list[str]:
        records = [{"task": task[:_MOST_SENT]}]
        rules = rules and rules.replace("{num_queries}", str(count))
        listed = count > 1 or self._listed
        if listed:
            values = Values(f"Write {count} queries.", records, known=count, rules=rules)
            several = await self._llm.answer(_MANY, values)
            if not isinstance(several, Fallback):
                return several
        found = []
        for number in range(count):
            own = self._llm.sampling
            warmer = replace(own, temperature=own.temperature + HOTTER * number)
            # Rules for several queries do not fit the prompt for one.
            single = None if listed else rules
            values = Values("Write the query.", records, sampling=warmer, rules=single)
            query = await self._llm.answer(_ONE, values)
            found += [] if isinstance(query, Fallback) else [query]
        return list(dict.fromkeys(found)) or [task]


@dataclass
class DenseStage:
    """Keeps the skills that are nearest by cosine (SkillFlow, equation 1).

    The defaults are SkillFlow's (section 4.2, appendix A.4).

    Args:
        vectors: Of all skills, shape `(n, d)`.
        gathering: How the rankings of several queries are fused: `union` of the best `depth` skills of each
            query, by their largest cosine; `rrf`, `mean` or `max` over all skills.
        depth: Number of skills per query in a union.
        rules: The prompt for `queries` queries; None for the packaged one.
    """

    vectors: Vectors
    encoder: Encoder
    writer: QueryWriter
    k: int = 1000
    queries: int = 5
    gathering: Gathering = "union"
    depth: int = 200
    rules: str | None = None
    name = "dense"

    def narrow(self, task: str, among: Sequence[int]) -> list[int]:
        """Return the positions of the nearest skills, nearest first; equal cosines by position."""
        queries = self.writer.write(task, self.queries, self.rules)
        rows = np.asarray(among)
        # All skills are compared without a copy of their vectors, which may take gigabytes.
        held = self.vectors if len(rows) == len(self.vectors) else self.vectors[rows]
        cosines = (held @ self.encoder.encode(queries).T).astype(np.float64)
        values = aggregated(cosines, "max" if self.gathering == "union" else self.gathering)
        order = _descending(values)
        if self.gathering == "union" and len(queries) > 1:
            taken = np.unique([_descending(column)[: self.depth] for column in cosines.T])
            order = taken[_descending(values[taken])]
        return Narrowed(rows[order[: self.k]], values[order[: self.k]])


def aggregated(scores: Matrix, aggregation: Aggregation) -> Matrix:
    """Return one score a row of scores of shape `(n, queries)`; `rrf` is reciprocal rank fusion."""
    if aggregation == "rrf":
        ranks = 1 + np.argsort(np.argsort(-scores, axis=0, kind="stable"), axis=0)
        return np.asarray((1 / (RANK_CONSTANT + ranks)).sum(axis=1))
    return np.asarray(scores.mean(axis=1) if aggregation == "mean" else scores.max(axis=1))


def _descending(scores: Matrix) -> npt.NDArray[np.int64]:
    return np.argsort(-scores, kind="stable")


@dataclass
class RerankStage:
    """Keeps the `k` skills that a scorer of pairs puts first (SkillFlow, equations 2 to 5).

    `name` is `shallow` or `deep`. How much of a skill the scorer reads is its own setting. `queries` are
    generated for a task by the prompt `rules`, None for the packaged one, and their scores are aggregated;
    one query is what SkillFlow found best (appendix A.5).
    """

    name: str
    skills: Sequence[Skill]
    scorer: PairScorer
    writer: QueryWriter
    k: int
    queries: int = 1
    aggregation: Aggregation = "mean"
    rules: str | None = None

    def narrow(self, task: str, among: Sequence[int]) -> list[int]:
        """Return positions of the skills that score best, best first; equal ones in their order."""
        if not among:
            return []
        queries = self.writer.write(task, self.queries, self.rules)
        texts = [self.skills[i].text for i in among]
        scores = np.stack([self.scorer.score(query, texts) for query in queries], axis=1)
        values = aggregated(scores, self.aggregation)
        order = _descending(values)[: self.k]
        return Narrowed((among[i] for i in order), values[order])


@dataclass
class SelectStage:
    """Keeps the skills that an LLM selects, in their order (SkillFlow, equation 6 and appendix A.6).

    It may select none. Skills that do not fit one question are asked about by halves. Without a usable answer
    the first `k` skills stay, and so does a skill of which the LLM does not say whether it is specific;
    `llm.fallbacks` counts both.

    Args:
        specific: Whether relevant skills must also be specific, which is asked for one skill at a time.
        characters: Characters of each skill's text that are sent, from its two ends; 0: all.
        relevant_rules: The prompt of the first filter; None for the packaged one.
        specific_rules: The prompt of the second filter; None for the packaged one.
    """

    skills: Sequence[Skill]
    llm: Llm
    k: int = 5
    specific: bool = False
    characters: int = 12_000
    relevant_rules: str | None = None
    specific_rules: str | None = None
    name = "select"

    def narrow(self, task: str, among: Sequence[int]) -> list[int]:
        """Return positions of the skills selected.

        Raises `LlmDenied` if the server denies access, or has no such model.
        """
        if not among:
            return []
        taken = self._taken(_RELEVANT, self.relevant_rules, task, [among])[0]
        kept = list(among if taken is None else taken)[: self.k]
        if not self.specific:
            return kept
        answers = self._taken(_SPECIFIC, self.specific_rules, task, [[i] for i in kept])
        return [i for i, answer in zip(kept, answers, strict=True) if answer is None or answer]

    def _taken(
        self, prompt: Prompt[Selected], rules: str | None, task: str, groups: Sequence[Sequence[int]]
    ) -> list[list[int] | None]:
        """Return those of each group that the LLM selects, in order; None without a usable answer."""

        def values(among: Sequence[int]) -> Values:
            skills = [self.skills[i] for i in among]
            many = len(among) > 1
            request = f"Which of the {len(among)} skills are taken?" if many else "Is the skill taken?"
            most = self.characters or max(len(skill.body) for skill in skills)
            return replace(selection(request, task, skills, most), rules=rules)

        async def ask(among: Sequence[int]) -> list[int] | None:
            taken = []
            for part, said in await self.llm.answer_parts(prompt, among, values, if_too_long):
                if isinstance(said, Fallback):
                    self.llm.fell_back(prompt, said)
                    return None
                taken += [part[n - 1] for n in sorted(set(said.selected))]
            return taken

        return self.llm.gather(ask(among) for among in groups)


def selection(request: str, task: str, skills: Sequence[Skill], characters: int) -> Values:
    """Return a question about a task and skills, numbered from 1; so many characters of bodies are sent."""
    records: list[dict[str, object]] = [{"task": task[:_MOST_SENT]}]
    for number, skill in enumerate(skills, start=1):
        text = {"text": shortened(skill.body, characters)} if characters else {}
        records.append({"skill": number, "name": skill.name, "description": skill.description, **text})
    return Values(request, records, [skill.doc_id for skill in skills], known=len(skills))
