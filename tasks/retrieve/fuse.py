from __future__ import annotations

from collections.abc import Sequence


def reciprocal_rank_fusion(rankings: Sequence[Sequence[str]], *, k: int = 60) -> list[tuple[str, float]]:
    """Merge rankings by the sum of `1 / (k + rank)` over those that contain an id, ranks from 1.

    Cormack, Clarke and Buettcher, "Reciprocal Rank Fusion outperforms Condorcet and individual rank
    learning methods", SIGIR 2009.

    Args:
        rankings: Ids in descending order of preference; an id counts once a ranking, where it first stands.
        k: Dampens the lead of the first ranks; at least 0.

    Returns:
        `(id, score)` with the highest score first, equal scores in ascending order of id.

    Raises:
        ValueError: `k` is negative.
    """
    if k < 0:
        msg = f"k must be at least 0, got {k}"
        raise ValueError(msg)
    scores: dict[str, float] = {}
    for ranking in rankings:
        for rank, doc_id in enumerate(dict.fromkeys(ranking), start=1):
            scores[doc_id] = scores.get(doc_id, 0.0) + 1 / (k + rank)
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))
