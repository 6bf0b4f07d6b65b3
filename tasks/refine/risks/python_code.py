"""Python code: the flows of keys, decoded and fetched text through its names, calls and functions."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from itertools import islice

from tasks.refine.risks.flows import NONE, Flows, Marks, fetched, host_marks, joined, text_marks, token_mark
from tasks.refine.risks.rules import Hit
from tasks.refine.risks.script_code import script_hits
from tasks.refine.risks.shell_code import ShellReader
from tasks.refine.risks.terms import may_flow, patterns, terms

_LEAST_NUMBERS = 8
_MOST_PATH = 400  # characters of a text that may be a path
_MOST_NODES = 5_000  # of a call whose addresses are looked for
_NO_BASE = "-"  # of a name that stands alone, in the lists of terms
_PASSES = 3


def python_hits(code: str) -> list[Hit]:
    """Return the flows in Python code; what does not parse is read by its tokens.

    Raises:
        RecursionError, MemoryError: It nests too deep to be read.
    """
    if not may_flow(code, "python"):
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(code.lstrip("\ufeff"))
        except SyntaxError:
            return script_hits(code)
    reader = PythonReader(Flows(), code.split("\n"))
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    named = [one for node in imports for one in node.names]
    reader.aliases |= {one.asname: one.name.rpartition(".")[2] for one in named if one.asname}
    # What a function returns, or a later line sets, is known when it is read again.
    for _ in range(_PASSES):
        before = dict(reader.flows.held)
        reader.read(tree.body)
        if reader.flows.held == before:
            break
    return reader.flows.hits()


class PythonReader:
    """Reads the tree of Python code into the flows of a file."""

    def __init__(self, flows: Flows, lines: list[str]) -> None:
        self.flows, self._lines = flows, lines
        self._scope = ""
        self._functions: dict[str, list[str]] = {}
        self._texts: set[str] = set()
        self.aliases: dict[str, str] = {}  # of what is imported under another name, its own

    def read(self, body: Iterable[ast.AST]) -> None:
        """Read statements in order."""
        for node in body:
            self._statement(node)

    def _statement(self, node: ast.AST) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                outer, self._scope = self._scope, node.name
                self._functions[node.name] = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
                self.read(node.body)
                self._scope = outer
            case ast.Return(value=ast.expr() as value):
                self.flows.hold(f"{self._scope}()", self._marks(value))
            case ast.Assign(targets=targets, value=value):
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    self._texts |= {self._key(one) for one in targets if isinstance(one, ast.Name)}
                self._bind(targets, self._marks(value))
            case (
                ast.AnnAssign(target=target, value=ast.expr() as value)
                | ast.AugAssign(target=target, value=value)
            ):
                self._bind([target], self._marks(value))
            case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
                self._bind([target], self._marks(value))
                self.read([*node.body, *node.orelse])
            case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                for item in items:
                    marks = self._marks(item.context_expr)
                    self._bind([item.optional_vars] if item.optional_vars else [], marks)
                self.read(body)
            case ast.expr():
                self._marks(node)
            case _:
                self.read(ast.iter_child_nodes(node))

    def _bind(self, targets: Iterable[ast.expr], marks: Marks) -> None:
        for target in targets:
            for node in ast.walk(target):
                if isinstance(node, ast.Name | ast.Attribute):
                    self.flows.hold(self._key(node), marks)

    def _key(self, node: ast.Name | ast.Attribute) -> str:
        # What is set on an object is looked for by any method of it.
        return f"{self._scope}:{node.id}" if isinstance(node, ast.Name) else f".{node.attr}"

    def _marks(self, node: ast.AST | None) -> Marks:
        """Return the marks of an expression, and report the sinks in it."""
        match node:
            case ast.Constant(value=str() as text):
                return self._of_text(text, self._at(node))
            case ast.Name(id=name):
                runs = {"runner": self._at(node)} if name in {"exec", "eval"} else NONE
                return joined(runs, self._of_name(name))
            case ast.Attribute(attr=attr, value=value):
                whole = {"secret": self._at(node)} if attr == "environ" and _name(value) == "os" else NONE
                return joined(whole, self._marks(value), self.flows.of([f".{attr}"]))
            case ast.Subscript(value=value, slice=index):
                return self._subscript(node, value, index)
            case ast.Call():
                return self._call(node)
        return self._of_parts(node) if node else NONE

    def _of_text(self, text: str, line: int) -> Marks:
        if len(text) >= _MOST_PATH:
            return NONE
        return joined(text_marks(text, line), host_marks(text, line) if "://" in text else NONE)

    def _of_parts(self, node: ast.AST) -> Marks:
        for one in getattr(node, "generators", ()):
            self._bind([one.target], self._marks(one.iter))
        marks = joined(*(self._marks(child) for child in ast.iter_child_nodes(node)))
        match node:
            case ast.BinOp(op=ast.Div()):
                return joined(self._path(node), marks)
            case ast.BinOp(op=ast.BitXor()):
                return joined({"encoded": self._at(node)}, marks)
        return NONE if isinstance(node, ast.Compare) else marks

    def _at(self, node: ast.AST) -> int:
        return int(getattr(node, "lineno", 1))

    def _meant(self, node: ast.AST) -> str:
        """Return the last part of a name, or the one under which it was imported."""
        name = _name(node).removesuffix("()")
        return self.aliases.get(name, name) if isinstance(node, ast.Name) else name

    def _subscript(self, node: ast.Subscript, value: ast.expr, index: ast.expr) -> Marks:
        backwards = isinstance(index, ast.Slice) and ast.unparse(index) == "::-1" and self._is_text(value)
        if isinstance(value, ast.Attribute) and value.attr == "environ":
            return token_mark(_text(index), self._at(node))
        marks, of_index = self._marks(value), self._marks(index)
        if _name(value) in terms()["python_tables"]:
            self._sink("run", of_index, node)
        return joined(marks, {"encoded": self._at(node)} if backwards else NONE)

    def _is_text(self, node: ast.AST) -> bool:
        is_named = isinstance(node, ast.Name) and f"{self._scope}:{node.id}" in self._texts
        return (
            is_named or isinstance(node, ast.Call) or (isinstance(node, ast.Constant) and bool(_text(node)))
        )

    def _path(self, node: ast.AST) -> Marks:
        return text_marks("/".join(_parts(node)), self._at(node))

    def _call(self, node: ast.Call) -> Marks:
        name, base, func = self._meant(node.func), _NO_BASE, node.func
        of_func = self._of_name(func.id) if isinstance(func, ast.Name) else self._marks(func)
        if isinstance(func, ast.Attribute):
            base = self._meant(func.value)
        given = [self._marks(arg) for arg in node.args]
        named = {k.arg or "**": self._marks(k.value) for k in node.keywords}
        marks = joined(*given, *named.values())
        line = self._at(node)
        if name in {"get", "getenv", "pop"} and base in {"environ", "os"}:
            return token_mark(_text(node.args[0]) if node.args else "", line)
        self._runs(node, name, base, of_func, given or [*named.values()])
        self._sends(node, name, base, marks, named)
        copies = name in terms()["python_copies"] and base in {"shutil", _NO_BASE}
        into = joined(*given[1:]) if copies or name == "dump" else of_func
        # What goes back into a file of keys is not copied.
        if (copies or name in terms()["python_writes"]) and given and "secret" not in into:
            self._sink("keep", given[0], node)
        for parameter, value in zip(self._functions.get(name, ()), given, strict=False):
            self.flows.hold(f"{name}:{parameter}", value)
        if patterns()["python_sums"].match(name):
            return NONE
        made = self._made(node, name, base)
        if name == "urlretrieve" and len(node.args) > 1:
            self.flows.hold(f"/{_text(node.args[1])}", made)
        if name in terms()["python_fills"] and isinstance(func, ast.Attribute):
            self._bind([n for n in ast.walk(func.value) if isinstance(n, ast.Name)], marks)
            for part in _parts(func.value):
                self.flows.hold(f"/{part}", marks)
        return joined(marks, of_func, made, self.flows.of([f"{name}()"]))

    def _of_name(self, name: str) -> Marks:
        return self.flows.of((f"{self._scope}:{name}", f":{name}"))

    def _made(self, node: ast.Call, name: str, base: str) -> Marks:
        """Return the marks that a call makes: it decodes, fetches, or reads a store of keys."""
        line, first = self._at(node), node.args[0] if node.args else None
        codec = any(patterns()["python_codec"].match(_text(arg)) for arg in node.args[:2]) and name in {
            "decode",
            "encode",
        }
        mapped = name == "map" and isinstance(first, ast.Name) and first.id == "chr"
        numbers = name in {"bytes", "bytearray"} and isinstance(first, ast.List | ast.Tuple)
        numbers = numbers and len(first.elts) >= _LEAST_NUMBERS  # type: ignore[union-attr]
        reversing = name == "reversed" and isinstance(first, ast.Constant)
        unmarshalled = name == "loads" and base in {"marshal", "dill"}
        if name in terms()["python_decoders"] or codec or mapped or numbers or reversing or unmarshalled:
            return {"encoded": line}
        if base in terms()["python_stores"] and patterns()["python_store_readers"].match(name):
            return {"secret": line}
        if name in terms()["python_fetchers"] and (
            base in terms()["python_clients"] or name in {"urlopen", "urlretrieve"}
        ):
            return fetched(_source(node), line)
        return self._path(node) if name in {"join", "Path", "open", "expanduser", "joinpath"} else NONE

    def _runs(self, node: ast.Call, name: str, base: str, of_func: Marks, given: list[Marks]) -> None:
        first = given[0] if given else NONE
        if name in terms()["python_runners"] and base in terms()["python_runner_bases"]:
            self._sink("run", first, node)
        elif "runner" in of_func or "lookup" in of_func:
            self._sink("run", joined(*given), node)
        elif name in terms()["python_lookups"]:
            looked_up = given[1:2] if name == "getattr" else given[:1]
            encoded = {mark: at for mark, at in joined(*looked_up).items() if mark == "encoded"}
            self._sink("run", encoded, node)
        elif (
            name in terms()["python_shell_calls"]
            and (not base or base in terms()["python_shell_bases"])
            and node.args
        ):
            self._shell(node.args[0], node)

    def _shell(self, command: ast.expr, call: ast.Call) -> None:
        words = command.elts if isinstance(command, ast.List | ast.Tuple) else [command]
        texts = [_text(word) for word in words]
        code = next((at + 1 for at, text in enumerate(texts[:-1]) if text in {"-c", "-e"}), None)
        # Of a list only the program and its code run; its other words are data, or a script.
        run = [words[0]] if words[:1] else []
        run += [words[code]] if code is not None else []
        held = self.flows.of(f"/{text.removeprefix('./')}" for text in texts)
        self._sink("run", joined(held, *(self._marks(word) for word in run)), call)
        if any(patterns()["python_network_tools"].search(text) for text in texts):
            marks = joined(*(self._marks(word) for word in words))
            self._sink("send", {m: at for m, at in marks.items() if m == "secret"}, call)
        ShellReader(self.flows).read(" ".join(text for text in texts if text), self._at(call))

    def _sends(self, node: ast.Call, name: str, base: str, marks: Marks, named: dict[str, Marks]) -> None:
        getter = name in {"get", "head", "resolve", "query"} and base in terms()["python_clients"]
        if name in terms()["python_senders"] or getter:
            # A key to log in with, in a header, is what keys are for; a whole file of them is not.
            headers = joined(*(named.get(key, NONE) for key in terms()["python_logins"]))
            kept = {m: at for m, at in marks.items() if m == "secret" or m not in headers}
            self._sink("send", kept, node)

    def _sink(self, sink: str, marks: Marks, node: ast.expr) -> None:
        if marks:
            said = "\n".join(self._lines[node.lineno - 1 : min(node.end_lineno or 1, node.lineno + 4)])
            self.flows.sink(sink, marks, self._at(node), said, _source(node))


def _source(node: ast.AST) -> str:
    """Return the texts in an expression: no comment, and nothing else of its lines."""
    nodes = islice(ast.walk(node), _MOST_NODES)
    return " ".join(_text(one)[:_MOST_PATH] for one in nodes if isinstance(one, ast.Constant | ast.JoinedStr))


def _name(node: ast.AST) -> str:
    """Return the last part of a name; with brackets, of what is called."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=func):
            return _name(func) + "()"
        case ast.Await(value=value):
            return _name(value)
    return ""


def _text(node: ast.AST) -> str:
    """Return what is written of a text, with a blank where something else is put in."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_text(value) or " " for value in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left) + _text(right)
    return ""


def _parts(node: ast.AST) -> Iterator[str]:
    for child in ast.walk(node):
        if isinstance(child, ast.Constant) and isinstance(child.value, str) and len(child.value) < _MOST_PATH:
            yield child.value.strip("/")
