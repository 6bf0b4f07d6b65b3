"""Prefect repeats a task that failed for a transient reason, by the one retry policy, and no other."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from storage.errors import StorageError, Unreachable
from tasks.models.retry import RetryPolicy, task_retries
from tests.support.paths import PROJECT

QUICK = RetryPolicy(tries=3, wait_min=0.01, wait_max=0.02)


@pytest.mark.prefect
@pytest.mark.parametrize(
    ("errors", "tries"),
    [
        ([Unreachable("the bucket does not answer")], 2),
        ([Unreachable("no"), Unreachable("no"), Unreachable("no")], 3),
        ([StorageError("documents/part-00.parquet is damaged")], 1),
        ([ZeroDivisionError()], 1),
    ],
)
def test_what_is_transient_is_tried_again(prefect_server: str, errors: list[Exception], tries: int) -> None:
    from prefect import flow, task

    left, tried = list(errors), list[int]()

    @task(**task_retries(QUICK))
    def fetch() -> str:
        tried.append(len(left))
        if left:
            raise left.pop(0)
        return "fetched"

    @flow
    def night() -> str:
        return fetch()

    run: Callable[[], str] = night
    if tries > len(errors):
        assert run() == "fetched"
    else:
        with pytest.raises(type(errors[-1])):
            run()
    assert len(tried) == tries


def test_the_waits_are_those_of_the_policy() -> None:
    given = task_retries(RetryPolicy(tries=4, wait_min=1, wait_max=5))

    assert (given["retries"], given["retry_delay_seconds"]) == (3, [1.5, 3.0, 5])


@pytest.mark.parametrize(
    "name",
    ["crawl-source", "refresh-source", "prepare-encoder", "parse-batch", "embed-batch", "build-tables"],
)
def test_tasks_that_ask_the_network_or_a_model_are_among_them(name: str) -> None:
    shells = "".join(file.read_text() for file in PROJECT.glob("tasks/*/shells.py"))

    assert re.search(rf'@task\(\s*name="{name}"[^@]*?task_retries\(\)', shells)
