"""Figures of the SkillPager paper (tables 1, 4, 5, 6 and 7), and our method for each of its rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PaperRow:
    """A row of a table: our method, and the paper's figures in percent, None where it gives none."""

    label: str
    method: str
    sufficient: float | None = None
    interval: tuple[float, float] | None = None
    nodes: float | None = None
    reduction: float | None = None


TABLES: dict[str, tuple[PaperRow, ...]] = {
    "Table 1: one-hop augmentation": (
        PaperRow("MMR", "skillpager", 69.8, (59.3, 79.1), 17.9, 62.4),
        PaperRow("MMR + one-hop augmentation", "mmr-one-hop", 67.4, (57.0, 76.7), 28.1, 48.0),
        PaperRow("Full document", "full", 82.6, (74.4, 90.7)),
    ),
    "Table 4: main results": (
        PaperRow("Full document", "full", 82.23, (80.51, 83.90), 57.43),
        PaperRow("Top-k + dependency", "top-k-dependency", 57.85, (55.65, 59.95), 14.80, 36.00),
        PaperRow("Greedy graph", "greedy-graph", 66.73, (64.66, 68.76), 21.59, 45.10),
        PaperRow("Naive chunk + MMR", "chunks", 81.77, (80.05, 83.44), 7.09, -28.81),
        PaperRow("SkillPager", "skillpager", 78.89, (77.01, 80.61), 24.68, 47.04),
        PaperRow("Skillery, no budget", "facets"),
    ),
    "Table 5: concept nodes": (
        PaperRow("Concept only", "concept-only", 20.21, (17.74, 22.77), 13.85),
        PaperRow("Executable only", "executable-only", 78.26, (75.59, 80.82), 15.74),
        PaperRow("Density adaptive 0.3", "density-0.3", 63.38, (60.31, 66.46), 22.05),
        PaperRow("Density adaptive 0.4", "density-0.4", 62.56, (59.59, 65.64), 21.66),
        PaperRow("Density adaptive 0.5", "density-0.5", 62.46, (59.49, 65.54), 20.07),
        PaperRow("Adaptive", "skillpager", 86.67, (84.51, 88.72), 22.34),
        PaperRow("Full document", "full", 88.41, (86.36, 90.36), 47.87),
    ),
    "Table 6: relevance weight": (
        PaperRow("0.3", "weight-0.3", 42.56, (39.49, 45.74), 1.0),
        PaperRow("0.5", "weight-0.5", 54.05, (50.77, 57.13), 3.97),
        PaperRow("0.7", "weight-0.7", 85.95, (83.79, 88.10), 22.34),
        PaperRow("0.9", "weight-0.9", 86.05, (83.90, 88.21), 22.35),
    ),
    "Table 7: node budget k": (
        PaperRow("5", "k-5", 63.08, (60.00, 66.05), 4.99, 72.67),
        PaperRow("10", "k-10", 75.49, (72.72, 78.15), 9.70, 55.48),
        PaperRow("20", "k-20", 85.03, (82.77, 87.28), 18.24, 31.66),
        PaperRow("30", "k-30", 85.74, (83.49, 87.90), 24.57, 19.61),
        PaperRow("40", "k-40", 85.64, (83.38, 87.79), 29.27, 12.77),
        PaperRow("60", "k-60", 86.97, (84.82, 89.03), 35.08, 6.77),
        PaperRow("Full document", "full", 88.41, (86.36, 90.36), 47.87),
    ),
}
