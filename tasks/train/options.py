"""Options of training for routing: how queries are made, negatives mined and models trained."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class TrainingOptions(BaseModel):
    """How queries are made, negatives are mined and models are trained; the defaults suit two cores."""

    model_config = ConfigDict(frozen=True)

    text: Literal["description", "flat"] = Field(
        "description", description="What the bi-encoder reads of a skill: name and description, or all."
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
    learning_rate: float = Field(5e-5, gt=0, description="Its peak.")
    temperature: float = Field(0.05, gt=0, description="Divides the bi-encoder's cosines.")
    kept: float = Field(0.5, gt=0, le=1, description="Share of what the bi-encoder learned that is kept.")
    tokens: int = Field(128, ge=8, description="Read of each text.")
    lists: int = Field(300, ge=1, description="Queries that a reranker is trained with at most.")
    candidates: int = Field(20, ge=2, description="Skills that it puts in order for each.")
    reranker_tokens: int = Field(512, ge=8, description="Read of query and skill together.")
    reranker_batch: int = Field(16, ge=1, description="Lists an update.")
    reranker_loss: Literal["listwise", "pointwise"] = Field(
        "listwise", description="Of a list's candidates together, or of each by itself."
    )

    @property
    def negatives(self) -> int:
        """Return the number of negatives of each query."""
        return self.semantic + self.lexical + self.category + self.random
