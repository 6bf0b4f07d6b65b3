"""The sample marketplace: a git repository made on the fly of the skills that come with the package."""

from __future__ import annotations

from pathlib import Path

from storage.root import Root
from tasks.crawl.git_sample import make_repository

SAMPLE = "sample"
FOLDER = Path(__file__).parent / "marketplace"


def resolve_sample(root: Root, spec: str) -> str:
    """Return a spec that can be crawled: for `sample` that of a repository made below the root."""
    if spec != SAMPLE:
        return spec
    return make_repository(FOLDER, root.folder / "state" / "sample" / "marketplace")
