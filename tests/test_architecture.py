"""The rules that the design sets for folders, imports, names and sizes, read off the sources."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import Stemmer

from tests.support.paths import PROJECT
from tests.support.roots.skill_root import SkillRoot

PACKAGES = ("storage", "tasks", "flows")
STAGES = ("models", "crawl", "refine", "parse", "induce", "retrieve", "evaluate", "train")
TORCH = {"torch", "sentence_transformers", "transformers", "optimum"}
HEAVY = ("prefect", *TORCH)
# What crawling and refining need, and no question does.
FOR_RUNS = ("license_expression", "boolean", "scipy", "rensa", "py3langid", "aiohttp")
# What extras install; without them a night runs, and everything but what they are for.
EXTRAS = {
    "obstore", "openai", "matplotlib", "playwright", "ir_measures", "bm25s", "prefect_dask", "prefect_ray",
    "openlineage", "model_signing", "langchain_core", "llama_index",
}  # fmt: skip
# What exports or trains models may import torch, as the folders of training do.
TORCH_FOLDERS = re.compile(r"tasks/(models/with_torch|(\w+/)?train)/|tasks/models/onnx_export\.py")
# Prefect belongs to flows and shells; the rest of `flows` imports it inside the commands that run flows.
PREFECT = re.compile(r"flows/(server/)?\w+\.py|tasks/\w+/shells\.py")
# Thin by design: shells wrap a core, a flow is one file, a protocol is what others implement.
THIN = re.compile(r"flows/\w+\.py|.*/(shells|protocols?)\.py|.*/__init__\.py")
MARKETPLACE = PROJECT / "tasks" / "crawl" / "marketplace"
SOURCES = sorted(
    path.relative_to(PROJECT).as_posix()
    for package in PACKAGES
    for path in (PROJECT / package).rglob("*.py")
    if not path.is_relative_to(MARKETPLACE)
)
MODULES = dict.fromkeys(source for source in SOURCES if not source.endswith("__init__.py"))
TESTS = sorted(path.relative_to(PROJECT).as_posix() for path in (PROJECT / "tests").rglob("*.py"))


@cache
def text(source: str) -> str:
    return (PROJECT / source).read_text("utf-8")


@cache
def tree(source: str) -> ast.Module:
    return ast.parse(text(source))


def imported(node: ast.AST) -> Iterator[str]:
    """Yield every module that is imported in a node, at whatever depth."""
    for statement in ast.walk(node):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            assert statement.level == 0, "imports are absolute"
            yield from (f"{statement.module}.{alias.name}" for alias in statement.names)


def imported_on_loading(node: ast.AST) -> Iterator[str]:
    """Yield the modules that are imported when the file is; imports inside functions are not."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield from imported(child)
        elif isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from imported_on_loading(child)


def our_files(names: Iterable[str]) -> frozenset[str]:
    """Return the files of those of these modules that are ours."""
    files = ([f"{m.replace('.', '/')}.py" for m in (name, name.rpartition(".")[0])] for name in names)
    return frozenset(found for tried in files if (found := next((f for f in tried if f in MODULES), "")))


@cache
def all_imported(source: str) -> frozenset[str]:
    return frozenset(imported(tree(source)))


@cache
def imports(source: str) -> frozenset[str]:
    """Return the modules of ours that a module imports, by their files."""
    return our_files(all_imported(source))


def roots(modules: Iterable[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


def functions(source: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of a function's body without its docstring."""
    statements = function.body[1:] if ast.get_docstring(function) else function.body
    return (statements[-1].end_lineno or 0) - statements[0].lineno + 1 if statements else 0


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Return the nodes of one circle of a graph, or none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def folder(source: str) -> str:
    return source.rpartition("/")[0]


def test_there_is_something_to_look_at() -> None:
    assert len(SOURCES) > 200
    assert {source.partition("/")[0] for source in SOURCES} == set(PACKAGES)
    assert {Path(s).parts[1] for s in SOURCES if s.startswith("tasks/") and s.count("/") > 1} <= set(STAGES)
    assert "tasks/crawl/raw_parts.py" in imports("tasks/crawl/collect.py")


def test_imports_run_from_flows_to_tasks_to_storage() -> None:
    above = {
        source: names
        for source in SOURCES
        for own in [PACKAGES.index(source.partition("/")[0])]
        if (names := roots(all_imported(source)) & set(PACKAGES[own + 1 :]))
    }
    assert above == {}


def test_a_stage_imports_itself_and_the_stages_below_it() -> None:
    def stage(source: str) -> int:
        return STAGES.index(source.split("/")[1])

    staged = [source for source in MODULES if source.startswith("tasks/")]
    later = [
        (source, other)
        for source in staged
        for other in imports(source)
        if other.startswith("tasks/") and stage(other) > stage(source)
    ]
    assert later == []


def test_neither_files_nor_folders_import_each_other_in_a_circle() -> None:
    files = {source: set(imports(source)) for source in MODULES}
    folders: dict[str, set[str]] = defaultdict(set)
    for source, others in files.items():
        # `flows` holds the flows and, above them, the command's folders, which share its settings.
        folders[folder(source)] |= {folder(other) for other in others} - {folder(source), "flows"}
    assert circle(files) == []
    assert circle(folders) == []


def test_a_folder_holds_at_most_sixteen_modules() -> None:
    full = {name: n for name, n in Counter(map(folder, MODULES)).items() if n > 16}
    assert full == {}


def test_a_folder_says_in_one_docstring_what_it_is_for() -> None:
    silent = [
        name for name in set(map(folder, MODULES)) if not ast.get_docstring(tree(f"{name}/__init__.py"))
    ]
    assert silent == []


def test_a_module_says_its_name_in_its_first_sentence() -> None:
    stem = Stemmer.Stemmer("english").stemWord

    def words(given: str) -> set[str]:
        return {form for word in re.findall(r"[a-z0-9]+", given.lower()) for form in (word, stem(word))}

    def first_sentence(source: str) -> str:
        return re.split(r"(?<=\.)\s", ast.get_docstring(tree(source)) or "")[0]

    silent = {
        source: missing
        for source in MODULES
        for said in [words(first_sentence(source))]
        if (missing := [w for w in Path(source).stem.split("_") if not words(w) & said])
    }
    assert silent == {}


def test_a_class_name_stands_for_one_thing_in_its_stage() -> None:
    classes = defaultdict(list)
    for source in SOURCES:
        stage = "/".join(source.split("/")[: 2 if source.startswith("tasks/") else 1])
        for node in ast.walk(tree(source)):
            if isinstance(node, ast.ClassDef):
                classes[stage, node.name].append(source)
    assert {name: places for name, places in classes.items() if len(places) > 1} == {}


def test_a_short_module_has_more_than_one_importer() -> None:
    importers = Counter(other for source in MODULES for other in imports(source))
    short = [s for s in MODULES if text(s).count("\n") < 60 and not THIN.fullmatch(s)]
    assert [s for s in short if importers[s] == 1] == []


def test_prefect_is_known_to_flows_and_shells_alone() -> None:
    def known(source: str) -> Iterable[str]:
        inside = source.startswith(("flows/cli/", "flows/commands/"))
        return imported_on_loading(tree(source)) if inside else all_imported(source)

    knowing = [s for s in SOURCES if not PREFECT.fullmatch(s) and "prefect" in roots(known(s))]
    assert knowing == []


def test_settings_load_no_prefect_by_themselves() -> None:
    assert not roots(imported_on_loading(tree("flows/settings.py"))) & set(HEAVY)


def test_storage_knows_no_models() -> None:
    models = {*HEAVY, "onnxruntime", "tokenizers", "openai"}
    assert [s for s in SOURCES if s.startswith("storage/") and roots(all_imported(s)) & models] == []


def test_only_training_and_the_folder_with_torch_import_torch() -> None:
    others = [source for source in SOURCES if not TORCH_FOLDERS.match(source)]
    assert [s for s in others if roots(all_imported(s)) & TORCH] == []
    # On loading, only what is run by hand may: the rest is imported by commands that ask and answer.
    by_hand = [s for s in SOURCES if "/train/" in s]
    assert [s for s in SOURCES if s not in by_hand and roots(imported_on_loading(tree(s))) & TORCH] == []


def test_what_loads_torch_at_once_is_imported_by_training_alone() -> None:
    loading = {s for s in MODULES if roots(imported_on_loading(tree(s))) & TORCH}
    assert [(s, o) for s in MODULES if "/train/" not in s for o in imports(s) & loading] == []


def test_a_night_and_the_command_need_no_extra() -> None:
    first = re.compile(r"flows/(cli/)?\w+\.py|tasks/\w+/shells\.py|flows/commands/(runs|operate|queries)\.py")
    waiting = [source for source in MODULES if first.fullmatch(source)]
    loaded = set(waiting)
    while waiting:
        more = our_files(imported_on_loading(tree(waiting.pop()))) - loaded
        loaded |= more
        waiting += more
    assert len(loaded) > 200
    assert [source for source in loaded if roots(imported_on_loading(tree(source))) & EXTRAS] == []


def test_a_shell_has_at_most_twelve_lines() -> None:
    shells = [source for source in SOURCES if source.endswith("/shells.py")]
    long = [(s, f.name) for s in shells for f in functions(s) if body_lines(f) > 12]
    assert shells
    assert long == []


def test_files_and_functions_keep_their_size() -> None:
    assert [source for source in (*SOURCES, *TESTS) if text(source).count("\n") > 400] == []
    # Of tests, those files are parsed that have more lines between two that are not indented.
    between = re.compile(r"(?:^(?:[ \])}].*)?\n)+", re.MULTILINE)
    tests = [s for s in TESTS if any(part.count("\n") > 60 for part in between.findall(text(s)))]
    assert [(s, f.name) for s in (*SOURCES, *tests) for f in functions(s) if body_lines(f) > 60] == []


def test_nothing_is_called_utils() -> None:
    assert [s for s in SOURCES if Path(s).stem in {"utils", "util", "helpers", "misc", "common"}] == []


def test_no_test_imports_another_test() -> None:
    another = re.compile(r"^ *(?:from|import) (\S*\btest_\S*)", re.MULTILINE)
    assert [(s, name) for s in TESTS for name in another.findall(text(s))] == []


_ASK = """
import contextlib, io, json, sys
from flows.cli.start import main
answers = []
for arguments in json.load(sys.stdin):
    sys.argv, printed = ["skillery", *arguments], io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main()
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
        ["compose", "look after a hive, then bake bread", *root],
        ["show", "bees", *root],
        ["install", "bees", "--to", str(tmp_path / "skills"), *root],
    ]

    for_others = ["markdown_it", "tenacity", "pyarrow"]
    script = _ASK.format(heavy=(*HEAVY, *FOR_RUNS, "lancedb", *for_others))
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    # Search reads the mapped index alone; what comes after it reads tables.
    (_, first), *others = answers
    assert first == []
    assert [[m for m in loaded if m not in for_others] for _, loaded in others] == [["lancedb"]] * len(others)
    found, paged, _, measured, agreed, plan, shown, installed = (printed for printed, _ in answers)
    assert (Path(json.loads(installed)["folder"]) / "bees" / "SKILL.md").exists()
    assert json.loads(shown)["doc_id"] == "local/market/bees"
    assert json.loads(plan)["steps"]
    assert json.loads(found)["results"][0]["name"] == "bees"
    assert "oxalic acid" in json.loads(paged)["context"]
    assert json.loads(Path(files["typed"]).read_text("utf-8"))["id"] == "a"
    assert json.loads(agreed)["fragments"] == 1
    assert {m["sufficient"] for m in json.loads(measured)["methods"]} == {1.0}
