"""The rules that the design sets for imports and sizes, read off the sources."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.skill_root import SkillRoot

PROJECT = Path(__file__).resolve().parents[1]
PACKAGES = ("storage", "tasks", "flows")
STAGES = ("models", "crawl", "refine", "parse", "retrieve", "evaluate")
HEAVY = ("prefect", "torch", "sentence_transformers", "transformers", "optimum")
# What crawling and refining need, and no question does.
FOR_RUNS = ("license_expression", "boolean", "scipy", "rensa", "py3langid", "aiohttp")
# What loads models to export or train, or those of published pipelines, inside functions.
LOADERS = {
    f"tasks/models/{name}.py"
    for name in ("export", "cross_encoder", "bi_encoder", "causal_reranker", "training")
}
# What is run by hand, to train what the package ships, with what it takes along: imported by nothing else.
PROGRAMS = {"tasks/parse/tune.py", "tasks/parse/context_network.py"}
MARKETPLACE = PROJECT / "tasks" / "crawl" / "marketplace"
SOURCES = sorted(
    path.relative_to(PROJECT).as_posix()
    for package in PACKAGES
    for path in (PROJECT / package).rglob("*.py")
    if not path.is_relative_to(MARKETPLACE)
)
OURS = [*SOURCES, *sorted(p.relative_to(PROJECT).as_posix() for p in (PROJECT / "tests").rglob("*.py"))]


def tree(source: str) -> ast.Module:
    return ast.parse((PROJECT / source).read_text("utf-8"))


def imported(node: ast.AST) -> Iterator[str]:
    """Yield every module that is imported in a node, at whatever depth."""
    for statement in ast.walk(node):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            assert statement.level == 0, "imports are absolute"
            yield from (f"{statement.module}.{alias.name}" for alias in statement.names)


def imported_on_loading(node: ast.AST) -> Iterator[str]:
    """Yield the modules that are imported when the file is, hence not those inside functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield from imported(child)
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from imported_on_loading(child)


def roots(modules: Iterator[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


def stage(module: str) -> int | None:
    """Return where `tasks.<stage>...` stands in the order of stages."""
    parts = module.split(".")
    return STAGES.index(parts[1]) if parts[0] == "tasks" and parts[1:2] != ["__init__"] else None


def test_there_is_something_to_look_at() -> None:
    assert len(SOURCES) > 80
    assert {source.partition("/")[0] for source in SOURCES} == set(PACKAGES)
    assert {Path(s).parts[1] for s in SOURCES if s.startswith("tasks/") and s.count("/") > 1} == set(STAGES)


@pytest.mark.parametrize("source", SOURCES)
def test_imports_run_from_flows_to_tasks_to_storage(source: str) -> None:
    own = PACKAGES.index(source.partition("/")[0])

    above = roots(imported(tree(source))) & set(PACKAGES[own + 1 :])

    assert not above, f"{source} imports {above}, which lies above it"


@pytest.mark.parametrize("source", [s for s in SOURCES if s.startswith("tasks/")])
def test_a_stage_imports_itself_and_what_lies_below_it(source: str) -> None:
    own = stage(source.removesuffix(".py").replace("/", "."))

    later = {
        m for m in imported(tree(source)) if (at := stage(m)) is not None and own is not None and at > own
    }

    assert not later, f"{source} imports later stages: {later}"


@pytest.mark.parametrize("source", [s for s in SOURCES if Path(s).parts[0] != "flows"])
def test_prefect_is_known_to_flows_and_shells_alone(source: str) -> None:
    may = source.startswith("tasks/") and source.endswith("/shells.py")

    assert may or not any(m.startswith("prefect") for m in roots(imported(tree(source))))


@pytest.mark.parametrize(
    "source",
    [
        *(
            "flows/cli.py",
            "flows/cli_evaluate.py",
            "flows/options.py",
            "flows/queries.py",
            "flows/printing.py",
            "flows/settings.py",
        ),
        *("flows/classifying.py", "flows/evaluating_nodes.py", "flows/llm_settings.py"),
    ],
)
def test_the_command_loads_no_prefect_by_itself(source: str) -> None:
    assert not roots(imported_on_loading(tree(source))) & set(HEAVY)


@pytest.mark.parametrize("source", [s for s in SOURCES if s.startswith("storage/")])
def test_storage_knows_no_models(source: str) -> None:
    models = {*HEAVY, "onnxruntime", "tokenizers", "openai"}

    assert not roots(imported(tree(source))) & models


@pytest.mark.parametrize("source", [s for s in SOURCES if s.startswith("tasks/")])
def test_training_libraries_are_loaded_by_what_loads_models_alone_and_inside_a_function(source: str) -> None:
    heavy = set(HEAVY) - {"prefect"}

    assert source in PROGRAMS or not roots(imported_on_loading(tree(source))) & heavy
    assert source in LOADERS | PROGRAMS or not roots(imported(tree(source))) & heavy


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_what_trains_by_hand_is_imported_by_nothing_that_runs(program: str) -> None:
    module = program.removesuffix(".py").replace("/", ".")
    others = [source for source in SOURCES if source not in PROGRAMS]
    assert not [s for s in others if any(name.startswith(module) for name in imported(tree(s)))]


@pytest.mark.parametrize("source", [s for s in SOURCES if s.endswith("/shells.py")])
def test_a_shell_has_at_most_twelve_lines(source: str) -> None:
    for function in functions(source):
        assert body_lines(function) <= 12, f"{source}: {function.name} is too long for a shell"


@pytest.mark.parametrize("source", OURS)
def test_files_and_functions_keep_their_size(source: str) -> None:
    text = (PROJECT / source).read_text("utf-8")
    assert text.count("\n") <= 350

    for function in functions(source):
        assert body_lines(function) <= 60, f"{source}: {function.name} is too long"


def functions(source: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of a function's body without its docstring."""
    statements = function.body[1:] if ast.get_docstring(function) else function.body
    return (statements[-1].end_lineno or 0) - statements[0].lineno + 1 if statements else 0


def test_nothing_is_called_utils() -> None:
    assert [s for s in SOURCES if Path(s).stem in {"utils", "util", "helpers", "misc", "common"}] == []


_ASK = """
import contextlib, io, json, sys
from flows import cli
answers = []
for arguments in json.load(sys.stdin):
    sys.argv, printed = ["skillery", *arguments], io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        cli.main()
    answers.append([printed.getvalue(), [m for m in {heavy!r} if m in sys.modules]])
json.dump(answers, sys.stdout)
"""


def test_asking_typing_and_measuring_load_neither_prefect_nor_torch(
    served_bakery: SkillRoot, tmp_path: Path
) -> None:
    given: dict[str, dict[str, Any]] = {
        "fragments": {
            "id": "a",
            "heading_path": [],
            "block": "prose",
            "text": "Open the hive.",
            "node_type": "step",
        },
        "documents": {"doc_id": "d", "content": "# Bees\n\nTreat mites with acid.\n"},
        "queries": {"query_id": "q", "doc_id": "d", "query": "mites?", "evidence": [{"any_of": ["acid"]}]},
    }
    files = {name: str(tmp_path / f"{name}.jsonl") for name in (*given, "typed")}
    for name, record in given.items():
        Path(files[name]).write_text(json.dumps(record) + "\n", "utf-8")
    root = ["--root", served_bakery.root.uri, "--json"]
    bench = ["--documents", files["documents"], "--queries", files["queries"]]
    commands = [
        ["search", "look after a hive", *root],
        ["page", "local/market/bees", "mites in winter", *root],
        ["classify", files["fragments"], "--out", files["typed"]],
        ["evaluate", "paging", *bench, *root],
        ["evaluate", "nodes", files["fragments"], *root],
    ]

    script = _ASK.format(heavy=(*HEAVY, *FOR_RUNS))
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    (found, *_), (paged, *_), _, (measured, *_), (agreed, *_) = answers = json.loads(done.stdout)
    assert [loaded for _, loaded in answers] == [[]] * 5
    assert json.loads(found)["results"][0]["name"] == "bees"
    assert "oxalic acid" in json.loads(paged)["context"]
    assert json.loads(Path(files["typed"]).read_text("utf-8"))["id"] == "a"
    assert json.loads(agreed)["fragments"] == 1
    assert {m["sufficient"] for m in json.loads(measured)["methods"]} == {1.0}
