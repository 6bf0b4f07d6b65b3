"""Figures of the SkillWeaver paper, from its text and captions, and our method for each of its rows.

The bodies of its tables are lost in the copy that these were read from: what no sentence says is not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NOT_STATED, NO_ENDPOINT = "not stated", "no endpoint"


@dataclass(frozen=True, slots=True)
class PaperMethod:
    """A row of a table: our method for it, and the paper's figures as shares, those that it states."""

    label: str
    method: str
    figures: Mapping[str, float] = field(default_factory=dict)


MAIN = (
    PaperMethod("Vanilla, 7B", "local-r0", {"da": 0.510, "da±1": 0.713, "catr@1": 0.342, "catr@10": 0.686}),
    PaperMethod(
        "SAD, H = 15, 7B", "local-r1", {"da": 0.677, "da±1": 0.843, "catr@1": 0.370, "catr@10": 0.703}
    ),
    PaperMethod("Vanilla prompt", "llm-r0", {"da": 0.510, "da±1": 0.713, "catr@1": 0.342, "catr@10": 0.686}),
    PaperMethod("SAD prompt", "paper", {"da": 0.677, "da±1": 0.843, "catr@1": 0.370, "catr@10": 0.703}),
    PaperMethod("LLM-direct, qwen-max", "llm-direct", {"da": 0.90, "catr@1": 0.211}),
    PaperMethod("ReAct, qwen-max", "react", {"da": 0.0}),
    PaperMethod("Vanilla, 14B (50 queries)", "llm-r0", {"da": 0.320, "catr@1": 0.290}),
    PaperMethod("SAD, 14B (50 queries)", "llm-r1", {"da": 0.680, "catr@1": 0.424}),
    PaperMethod("Vanilla, qwen-max (50 queries)", "llm-r0", {"da": 0.660}),
    PaperMethod("SAD, qwen-max (50 queries)", "llm-r1", {"da": 0.920}),
)
ROUNDS: Mapping[int, Mapping[str, float]] = {
    0: {"da": 0.513},
    1: {"da": 0.670, "jaccard": 0.32},
    2: {"da": 0.670, "catr@1": 0.389, "jaccard": 0.47},
    3: {"da": 0.670, "catr@1": 0.361, "jaccard": 0.52},
}
HUMAN = {"local-r0": {"da": 0.085, "da±1": 0.305}, "local-r1": {"da": 0.215, "da±1": 0.505}}
HUMAN_STEPS = {"local-r0": 4.21}  # of easy requests
DIFFICULTY: Mapping[str, Mapping[str, float]] = {
    "local-r0": {"easy": 0.447, "medium": 0.660, "hard": 0.400},
    "local-r1": {"easy": 0.633, "medium": 0.780, "hard": 0.600},
}
HINT_COUNTS: Mapping[int, Mapping[str, float]] = {
    5: {"da": 0.550}, 10: {}, 15: {"da": 0.677, "catr@1": 0.370}, 25: {"da": 0.687, "catr@1": 0.389},
}  # fmt: skip
TOKENS = {"all": 884_000, "a skill": 400, "hints": 1_100}
TRANSFER = (
    ("2 of 24 categories taken (191 skills)", 62, 0.356),
    ("20 % of skills taken (442), 100 of the queries evaluated", 139, 0.232),
)
PARAPHRASES = (
    ("50 paraphrased by qwen-max", 0.660, 0.620, 0.72, 0.383, 0.382),
    ("150 paraphrased by the 7B model", 0.653, 0.593, 0.66, 0.345, 0.334),
)
WHEN_RIGHT = {"catr@1": 0.412, "catr@10": 0.816}
ORACLE = {"da": 0.993, "catr@1": 0.398, "catr@10": 0.791}
SUBSETS: Mapping[str, tuple[int, float, float, float]] = {
    "corrected": (75, 0.236, 0.370, 0.0015),
    "right": (128, 0.417, 0.409, 0.97),
}
# W, pairs that differ, p, and the 95 % interval of the difference (appendix G).
SIGNIFICANCE: Mapping[str, tuple[float, int, float, tuple[float, float] | None]] = {
    "da": (1262.5, 100, 5.7e-7, (0.103, 0.230)),
    "da±1": (1891.0, 128, 2.1e-8, (0.070, 0.190)),
    "catr@1": (3678.5, 130, 0.17, (-0.005, 0.062)),
    "catr@10": (3377.0, 122, 0.34, None),
    "chain_cat": (52.5, 20, 0.025, (0.007, 0.063)),
}
PILOT = {"queries": 30, "steps": 2.80, "da": 0.867, "ses": 0.869, "ccr": 0.767}
RERANKED = {
    "before": 0.371,
    "after": 0.409,
    "low": 0.005,
    "high": 0.057,
    "p": 0.007,
    "wins": 53,
    "losses": 25,
}
