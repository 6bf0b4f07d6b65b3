"""The adapter for LangChain: a retriever whose documents are pages of the skills that fit a query.

It needs the extra `langchain`.
"""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from flows.api import pages_for


class SkillRetriever(BaseRetriever):
    """Finds the `k` skills that fit a query best, and returns of each what the query needs.

    Nothing is returned where nothing fits. `budget` is that of `SkillIndex.page`, for each skill. Texts are
    those of third parties: `metadata` says whose, and they are data, not instructions.
    """

    index: Any  # a SkillIndex, which Pydantic need not look into
    k: int = 3
    budget: float | None = None

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002
    ) -> list[Document]:
        names = ("doc_id", "name", "fit", "source", "url", "commit", "licence", "risks")
        return [
            Document(id=hit.doc_id, page_content=page.context, metadata={n: getattr(hit, n) for n in names})
            for hit, page in pages_for(self.index, query, self.k, self.budget)
        ]
