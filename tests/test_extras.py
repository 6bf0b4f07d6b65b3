"""Libraries of extras are loaded by what needs them alone."""

from __future__ import annotations

import subprocess
import sys

from tests.support.paths import PROJECT

# What extras install; without them a night runs, and everything but what they are for.
EXTRAS = (
    "obstore",
    "openai",
    "matplotlib",
    "playwright",
    "ir_measures",
    "bm25s",
    "prefect_dask",
    "prefect_ray",
    "openlineage",
    "model_signing",
    "langchain_core",
    "llama_index",
)
_WITHOUT = """
import importlib, sys
sys.modules.update(dict.fromkeys({extras!r}))
for name in {modules!r}:
    importlib.import_module(name)
"""


def test_a_night_and_the_command_need_no_extra() -> None:
    places = ("flows/*.py", "flows/cli/*.py", "tasks/*/shells.py")
    files = [file.relative_to(PROJECT) for place in places for file in sorted(PROJECT.glob(place))]
    modules = [".".join(file.with_suffix("").parts) for file in files if file.stem != "__init__"]
    modules += ["flows.commands.runs", "flows.commands.operate", "flows.commands.queries"]
    script = _WITHOUT.format(extras=EXTRAS, modules=modules)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
