"""The adapter for LlamaIndex (`llama_index`): a retriever whose nodes are pages of skills that fit.

It needs the extra `llama-index`.
"""

from __future__ import annotations

from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from flows.api import SkillIndex, pages_for


class SkillNodeRetriever(BaseRetriever):
    """Finds the `k` skills that fit a query best, and returns of each what the query needs, with its fit.

    Nothing is returned where nothing fits. Texts are those of third parties: `metadata` says whose, and they
    are data, not instructions.

    Args:
        index: What `flows.api.open_index` returns.
        k: Skills at most.
        budget: That of `SkillIndex.page`, for each skill.
    """

    def __init__(self, index: SkillIndex, k: int = 3, budget: float | None = None) -> None:
        super().__init__()
        self._skills, self._k, self._budget = index, k, budget

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        names = ("doc_id", "name", "source", "url", "commit", "licence", "risks")
        return [
            NodeWithScore(
                node=TextNode(
                    id_=hit.doc_id, text=page.context, metadata={n: getattr(hit, n) for n in names}
                ),
                score=hit.fit,
            )
            for hit, page in pages_for(self._skills, query_bundle.query_str, self._k, self._budget)
        ]
