"""`python -m tests.support.llm.bench_process ROOT OUT URL COUNT` grows a bench once; a test may kill it."""

from __future__ import annotations

import sys

from storage.answers import Answers
from storage.root import Root
from tasks.evaluate.generate.requests import write_requests
from tests.support.llm.llm_asking import llm_of
from tests.support.llm.scripted import skill_about


def grow_all(root: str, out: str, url: str, count: int) -> None:
    """Write requests about so many skills."""
    skills = [skill_about(f"mill{n}") for n in range(count)]
    with Answers(Root(root)) as answers:
        write_requests(skills, Root(out), llm_of(url, answers, concurrency=3))


def main() -> None:
    root, out, url, count = sys.argv[1:]
    grow_all(root, out, url, int(count))


if __name__ == "__main__":
    main()
