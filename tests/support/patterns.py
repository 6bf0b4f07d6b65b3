"""The patterns that meet text of others, and hostile runs that show which takes more than linear time."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import re._constants as codes  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

_TRAINED = "tasks.train"  # loads torch; what it compiles is taken from its source
_COMMON = (
    " ",
    "\n",
    "\t",
    "`",
    "*",
    "|",
    "<",
    "[",
    "(",
    '"',
    "'",
    "a",
    "A",
    "0",
    "-",
    "_",
    ".",
    "/",
    ":",
    "#",
)
_ENDS = ("", "\n\x00", "!x")


def collected(packages: Iterable[str] = ("tasks", "flows", "storage")) -> dict[str, re.Pattern[Any]]:
    """Return every pattern that packages make when they load, and the constant ones in calls of `re`."""
    found: dict[str, re.Pattern[Any]] = {}
    for package in packages:
        root = importlib.import_module(package)
        for module in pkgutil.walk_packages(root.__path__, f"{package}."):
            if module.name.startswith("tasks.crawl.marketplace") or module.ispkg:
                continue
            source = pkgutil.get_loader(module.name).get_source(module.name)  # type: ignore[union-attr, attr-defined]
            found |= {f"{module.name}:{line}": p for line, p in _called(ast.parse(source))}
            if not module.name.startswith(_TRAINED):
                found |= _held(importlib.import_module(module.name), module.name)
    return found


def _held(thing: object, place: str) -> dict[str, re.Pattern[Any]]:
    return dict(_walk(vars(thing), place, 0))


def _walk(thing: object, place: str, depth: int) -> Iterator[tuple[str, re.Pattern[Any]]]:
    if isinstance(thing, re.Pattern):
        yield place, thing
    elif depth < 6 and isinstance(thing, dict):
        for key, value in thing.items():
            yield from _walk(value, f"{place}.{key}", depth + 1)
    elif depth < 6 and isinstance(thing, list | tuple | set | frozenset):
        for n, value in enumerate(thing):
            yield from _walk(value, f"{place}[{n}]", depth + 1)


def _called(tree: ast.AST) -> Iterator[tuple[int, re.Pattern[Any]]]:
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "re":
            given = node.args[0]
            if isinstance(given, ast.Constant) and isinstance(given.value, str | bytes):
                yield node.lineno, re.compile(given.value)


def pumps(pattern: re.Pattern[Any]) -> list[tuple[str, str]]:
    """Return pairs of a beginning and a piece to repeat after it, made from the pattern's own alphabet.

    None where each repeat of the pattern is short: it then takes a bounded time at each place.
    """
    tree = parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE)
    repeats = list(dict.fromkeys(_repeats(tree, "", {})))
    if not repeats:
        return []
    letters = list(dict.fromkeys(_letters(tree)))[:10]
    found = dict.fromkeys(("", one) for one in (*letters, *_COMMON))
    found |= dict.fromkeys(("", a + b) for a in letters[:5] for b in (*letters[:5], " ", "\n") if a != b)
    for before, body in repeats:
        found |= dict.fromkeys(
            [(before, body), ("", before + body), (before, " "), (before, "\n"), (before, "a")]
        )
    found["", _sample(tree, {}) or "a"] = None
    return list(found)


def _letters(tree: Any) -> Iterator[str]:  # noqa: ANN401
    for op, value in tree:
        if op in (codes.LITERAL, codes.NOT_LITERAL):
            yield chr(value)
        elif op is codes.IN:
            yield from {one for one in (_member(value, n) for n in range(3)) if one}
        elif op is codes.BRANCH:
            for branch in value[1]:
                yield from _letters(branch)
        elif op in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            yield from _letters(value[2])
        elif op is codes.SUBPATTERN:
            yield from _letters(value[3])
        elif op is codes.ATOMIC_GROUP:
            yield from _letters(value)
        elif op in (codes.ASSERT, codes.ASSERT_NOT):
            yield from _letters(value[1])


_PROBE = [*map(chr, range(32, 127)), "\n", "\t", "é", "。", "\u3042", "\x00"]


def _member(items: Any, n: int = 0) -> str:  # noqa: ANN401
    """Return the n-th probe character that a class holds, preferring letters."""
    source = parser.parse("[a]")
    source.data[:] = [(codes.IN, items)]
    from re import _compiler  # type: ignore[attr-defined]

    one = _compiler.compile(source)
    held = [c for c in _PROBE if one.match(c)]
    return held[n * (len(held) - 1) // 2] if held else ""


def _sample(tree: Any, groups: dict[int, str]) -> str:  # noqa: ANN401, C901
    """Return a short text that a pattern's tree matches, look-around left out."""
    said = ""
    for op, value in tree:
        if op is codes.LITERAL:
            said += chr(value)
        elif op is codes.NOT_LITERAL:
            said += "a" if value != ord("a") else "b"
        elif op is codes.ANY:
            said += "a"
        elif op is codes.IN:
            said += _member(value)
        elif op is codes.BRANCH:
            said += _sample(value[1][0], groups)
        elif op in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            said += _sample(value[2], groups) * max(
                value[0], 1 if value[0] == 0 and value[1] > 1 else value[0]
            )
        elif op is codes.SUBPATTERN:
            inner = _sample(value[3], groups)
            if value[0] is not None:
                groups[value[0]] = inner
            said += inner
        elif op is codes.ATOMIC_GROUP:
            said += _sample(value, groups)
        elif op is codes.GROUPREF:
            said += groups.get(value, "")
    return said


def _repeats(tree: Any, before: str, groups: dict[int, str]) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    """Yield for each repeat in a tree a text that leads to it, and one that its body matches."""
    for item in tree:
        op, value = item
        if op in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT) and value[1] > 8:
            yield before, _sample(value[2], groups)
            yield from _repeats(value[2], before, groups)
        elif op in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            yield from _repeats(value[2], before, groups)
        elif op is codes.SUBPATTERN:
            yield from _repeats(value[3], before, groups)
        elif op is codes.ATOMIC_GROUP:
            yield from _repeats(value, before, groups)
        elif op is codes.BRANCH:
            for branch in value[1]:
                yield from _repeats(branch, before, groups)
        elif op in (codes.ASSERT, codes.ASSERT_NOT):
            yield from _repeats(value[1], before, groups)
        before += _sample([item], groups)


def _scan(pattern: re.Pattern[Any], text: Any) -> None:  # noqa: ANN401
    for _ in pattern.finditer(text):
        pass


def seconds(call: Callable[[], object], tries: int) -> float:
    """Return the least processor time of a call over some tries."""
    took = []
    for _ in range(tries):
        began = time.thread_time()
        call()
        took.append(time.thread_time() - began)
        if took[-1] > 0.5:
            break
    return min(took)


def run(pattern: re.Pattern[Any], before: str, piece: str, end: str, size: int) -> Any:  # noqa: ANN401
    """Return a hostile run of about `size` characters, of the pattern's own type."""
    text = before + piece * (size // max(len(piece), 1)) + end
    return text if isinstance(pattern.pattern, str) else text.encode(errors="surrogatepass")


def slowest(pattern: re.Pattern[Any], size: int, enough: float = 0.3) -> tuple[float, tuple[str, str, str]]:
    """Return the longest time that a scan, or a match, of a hostile run took, and that run.

    Where a run of a tenth of the size, or another one, takes a tenth of `enough` seconds or more, that is it.
    """
    worst = (0.0, ("", "", ""))
    for before, piece in pumps(pattern):
        for end in _ENDS:
            for length in (size // 40, size):
                text = run(pattern, before, piece, end, length)
                for call in (partial(_scan, pattern), pattern.match, pattern.fullmatch):
                    took = seconds(partial(call, text), 1) * size / length
                    worst = max(worst, (took, (before, piece, end)))
                    if worst[0] > enough:
                        return worst
    return worst
