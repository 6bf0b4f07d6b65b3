"""SkillRouter's stages over the text `name | description | body` of skills: retrieve, then rerank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks.models.llm.ask import Fallback, Llm
from tasks.models.llm.prompt import Prompt
from tasks.models.protocols import Encoder, Tokenizer, Vectors
from tasks.models.tokens import first_tokens
from tasks.models.with_torch.reranker import PairScorer
from tasks.retrieve.baselines.skillflow import HOTTER, Selected, selection
from tasks.retrieve.baselines.stages import Narrowed
from tasks.retrieve.routing.router import Router
from tasks.retrieve.routing.skill import Skill

_JUDGE: Prompt[Selected] = Prompt("judge-skill-1", "tasks.retrieve/judge_skill.txt", Selected, hotter=HOTTER)
RETRIEVED = 20  # candidates for the reranker: more than that do harm (SkillRouter, table 12 of the appendix)
# Tokens of the description and of the body that each stage reads (SkillRouter, appendix C).
BETWEEN = " | "  # the parts of a flat text
ENCODED = (300, 2500)
RERANKED = (500, 3000)


def flat_text(skill: Skill, limits: tuple[int, int], tokenizer: Tokenizer) -> str:
    """Return `name | description | body`; both latter are cut to so many tokens, and left out at 0."""
    parts = zip(flat_parts(skill, limits, tokenizer), (True, *limits), strict=True)
    return BETWEEN.join(part for part, wanted in parts if wanted)


def flat_parts(skill: Skill, limits: tuple[int, int], tokenizer: Tokenizer) -> tuple[str, str, str]:
    """Return the parts of a flat text; arguments as `flat_text`."""
    description = first_tokens(skill.description, limits[0], tokenizer)
    return skill.name, description, first_tokens(skill.body, limits[1], tokenizer)


@dataclass
class RetrieveStage:
    """Keeps the `k` skills whose `flat_text` is nearest to the task by cosine.

    `vectors`, shape `(n, d)`, are those of the flat texts. The encoder adds its instruction to the task.
    """

    vectors: Vectors
    encoder: Encoder
    k: int = RETRIEVED
    name = "retrieve"

    def narrow(self, task: str, among: Sequence[int]) -> list[int]:
        """Return the positions of the nearest skills, nearest first; equal cosines by position."""
        rows = np.asarray(among)
        cosines = self.vectors[rows] @ self.encoder.encode([task])[0]
        order = np.argsort(-cosines, kind="stable")[: self.k]
        return Narrowed(rows[order], cosines[order])


class RouteStage:
    """Keeps the `k` skills that the default router ranks first, near-identical ones folded."""

    name = "route"

    def __init__(self, skills: Sequence[Skill], router: Router, k: int = RETRIEVED) -> None:
        self._places = {skill.doc_id: place for place, skill in enumerate(skills)}
        self._router, self.k = router, k

    def narrow(self, task: str, among: Sequence[int]) -> list[int]:
        """Return the positions of the first skills; as a first stage it chooses among all."""
        allowed = np.zeros(len(self._places), dtype=np.bool_)
        allowed[list(among)] = True
        found = self._router.rank(task, self.k, allowed=allowed)
        return Narrowed((self._places[one.doc_id] for one in found), (one.score for one in found))


@dataclass
class FlatRerankStage:
    """Keeps the `k` skills whose `flat_text`, cut to `limits`, a scorer of pairs puts first.

    The tokenizer is that of the scorer.
    """

    skills: Sequence[Skill]
    scorer: PairScorer
    tokenizer: Tokenizer
    k: int = RETRIEVED
    limits: tuple[int, int] = RERANKED
    name = "rerank"

    def narrow(self, task: str, among: Sequence[int]) -> list[int]:
        """Return candidates, best first; equal scores in their order."""
        texts = [flat_text(self.skills[i], self.limits, self.tokenizer) for i in among]
        scores = self.scorer.score(task, texts)
        order = np.argsort(-scores, kind="stable")[: self.k]
        return Narrowed((among[i] for i in order), scores[order])


@dataclass
class JudgeStage:
    """Puts first the candidate that an LLM names; the others keep their order (SkillRouter, appendix C).

    Without a usable answer all do, which `llm.fallbacks` counts. `k` skills are kept; of each skill's body so
    many `characters` are sent, from its two ends; with 0, names and descriptions alone.
    """

    skills: Sequence[Skill]
    llm: Llm
    k: int
    characters: int = 4000
    name = "judge"

    def narrow(self, task: str, among: Sequence[int]) -> list[int]:
        """Return the candidates, the best first.

        Raises `LlmDenied` if the server denies access, or has no such model.
        """
        if len(among) < 2:
            return list(among)
        skills = [self.skills[i] for i in among]
        values = selection("Which skill serves the task best?", task, skills, self.characters)
        said = self.llm.ask(_JUDGE, values)
        if isinstance(said, Fallback) or not said.selected:
            return list(among)[: self.k]
        first = among[min(said.selected) - 1]
        return [first, *(i for i in among if i != first)][: self.k]
