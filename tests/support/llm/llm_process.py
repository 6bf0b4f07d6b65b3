"""`python -m tests.support.llm.llm_process ROOT URL DOCUMENTS EACH` types fragments once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from storage.answers import Answers
from storage.root import Root
from tests.support.llm.llm_asking import classifier_of, fragments_of


def type_all(root: Path, url: str, documents: int, each: int) -> dict[str, Any]:
    """Type so many fragments of so many documents, and return rows and report."""
    with Answers(Root(root)) as answers:
        classifier = classifier_of(url, answers, concurrency=3)
        rows = classifier.type_all(fragments_of(documents, each)).rows
        return {"rows": rows, "report": classifier.llm.ledger.report()}


def main() -> None:
    root, url, documents, each = sys.argv[1:]
    json.dump(type_all(Path(root), url, int(documents), int(each)), sys.stdout)


if __name__ == "__main__":
    main()
