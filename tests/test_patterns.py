"""The patterns that meet text of others: of hostile runs none takes one more than linear time."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import re._compiler as compiler  # type: ignore[import-not-found]
import re._constants as codes  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.support.clock import seconds

# Programs of the samples, and what loads torch: of the latter, constant calls are read from the source.
_SAMPLES, _TRAINED = "tasks.crawl.marketplace", "tasks.train"
# What reads rules from a file when it is first asked.
_RULES = (
    ("tasks.refine.risks.rules", "risk_rules"),
    ("tasks.refine.risks.rules", "patterns"),
    ("tasks.models.redact", "_secret_rules"),
    ("tasks.refine.filters", "_placeholder"),
    ("tasks.refine.licences.texts", "_wholes"),
    ("tasks.refine.licences.texts", "_texts"),
)
_COMMON = tuple(" \n\t`*|<[(\"'aA0-_./:#")
_ENDS = ("", "\n\x00", "!x")
_PROBED = [*map(chr, range(32, 127)), "\n", "\t", "é", "。", "あ", "\x00"]
_REPEATS = {codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT}
_SHORT = 8  # times: what is repeated no more often takes a bounded time at each place
_LETTERS = 10
MOST = 2.5  # times as long for twice the size
_MEASURABLE, _HOPELESS = 0.002, 0.5  # seconds: of the clock, and of what is waited for
_LARGEST = 400_000  # characters
Pattern = re.Pattern[Any]


class Run(NamedTuple):
    """A hostile run: a beginning, a piece that is repeated after it, and an end."""

    before: str
    piece: str
    end: str

    def text(self, size: int, pattern: Pattern) -> Any:  # noqa: ANN401 (text or bytes, as the pattern)
        """Return it in about `size` characters."""
        text = self.before + self.piece * (size // len(self.piece)) + self.end
        return text if isinstance(pattern.pattern, str) else text.encode(errors="surrogatepass")


def collected() -> dict[Pattern, str]:
    """Return the patterns that packages make when they load, and the constant ones of calls, with a place."""
    found: dict[Pattern, str] = {}
    for package in ("tasks", "flows", "storage"):
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            name = module.name
            if name.startswith(_SAMPLES) or module.ispkg:
                continue
            if name.startswith(_TRAINED):
                spec = module.module_finder.find_spec(name, None)  # type: ignore[call-arg]
                source = spec.loader.get_source(name)  # type: ignore[union-attr]
            else:
                loaded = importlib.import_module(name)
                source = inspect.getsource(loaded)
                found |= {p: where for where, p in _held(vars(loaded), name, 0)}
            found |= {p: f"{name}:{line}" for line, p in _called(ast.parse(source)) if p not in found}
    return found | {
        p: w for name, made in _RULES for w, p in _held(_loader(name, made)(), f"{name}.{made}", 0)
    }


def _loader(module: str, made: str) -> Callable[[], object]:
    loader: Callable[[], object] = getattr(importlib.import_module(module), made)
    return loader


def _held(thing: object, place: str, depth: int) -> Iterator[tuple[str, Pattern]]:
    if isinstance(thing, re.Pattern):
        yield place, thing
    elif depth < 8 and isinstance(thing, dict):
        for key, value in thing.items():
            yield from _held(value, f"{place}.{key}", depth + 1)
    elif depth < 8 and isinstance(thing, list | tuple | set | frozenset):
        for value in thing:
            yield from _held(value, place, depth + 1)
    elif depth < 8 and hasattr(thing, "__dataclass_fields__") and not isinstance(thing, type):
        for name in thing.__dataclass_fields__:
            yield from _held(getattr(thing, name), f"{place}.{name}", depth + 1)


def _called(tree: ast.AST) -> Iterator[tuple[int, Pattern]]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="re"), attr=made),
                args=[ast.Constant(value=str() | bytes() as given), *_],
            ) if made != "escape":
                flags = [k for k in ast.walk(node) if isinstance(k, ast.Attribute) and k.attr.isupper()]
                yield node.lineno, re.compile(given, sum({getattr(re, flag.attr) for flag in flags}))


def hostile_runs(pattern: Pattern) -> list[Run]:
    """Return hostile runs made of the pattern's own alphabet; none where all its repeats are short."""
    tree = parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE)
    repeats = list(dict.fromkeys(_repeats(tree, "")))
    if not repeats:
        return []
    letters = list(dict.fromkeys(_letters(tree)))[:_LETTERS]
    found = dict.fromkeys(("", one) for one in (*letters, *_COMMON))
    found |= dict.fromkeys(("", a + b) for a in letters[:5] for b in (*letters[:5], " ", "\n") if a != b)
    for before, body in repeats:
        found |= dict.fromkeys([("", before + body), *((before, one) for one in (body, " ", "\n", "a"))])
    found["", _sample(tree)] = None
    return [Run(before, piece, end) for before, piece in found if piece for end in _ENDS]


def _below(op: object, value: Any) -> list[Any]:  # noqa: ANN401 (trees of the library's parser)
    """Return the trees below a node of a pattern's tree."""
    if op in _REPEATS:
        return [value[2]]
    if op is codes.SUBPATTERN:
        return [value[3]]
    if op is codes.BRANCH:
        return list(value[1])
    if op in (codes.ASSERT, codes.ASSERT_NOT):
        return [value[1]]
    return [value] if op is codes.ATOMIC_GROUP else []


def _letters(tree: Any) -> Iterator[str]:  # noqa: ANN401
    for op, value in tree:
        if op in (codes.LITERAL, codes.NOT_LITERAL):
            yield chr(value)
        elif op is codes.IN:
            yield from filter(None, (_member(value, n) for n in range(3)))
        for below in _below(op, value):
            yield from _letters(below)


def _member(items: Any, n: int) -> str:  # noqa: ANN401
    """Return a character of a class: the first of some probes, one in their middle, or the last."""
    one = parser.parse("[a]")
    one.data[:] = [(codes.IN, items)]
    held = list(filter(compiler.compile(one).match, _PROBED))
    return held[n * (len(held) - 1) // 2] if held else ""


def _sample(tree: Any) -> str:  # noqa: ANN401
    """Return a short text that a tree matches, but for what it looks at ahead or behind."""
    said = ""
    for op, value in tree:
        if op is codes.LITERAL:
            said += chr(value)
        elif op in (codes.ANY, codes.NOT_LITERAL):
            said += "a"
        elif op is codes.IN:
            said += _member(value, 0)
        elif op is codes.BRANCH:
            said += _sample(value[1][0])
        elif op in _REPEATS:
            said += _sample(value[2]) * max(value[0], int(value[1] > 1))
        elif op in (codes.SUBPATTERN, codes.ATOMIC_GROUP):
            said += _sample(_below(op, value)[0])
    return said


def _repeats(tree: Any, before: str) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    """Yield for each long repeat in a tree a text that leads to it, and one that its body matches."""
    for op, value in tree:
        if op in _REPEATS and value[1] > _SHORT:
            yield before, _sample(value[2])
        for below in _below(op, value):
            yield from _repeats(below, before)
        before += _sample([(op, value)])


class Growth(NamedTuple):
    """How many times longer a scan of twice the size takes, from which size on, and on what run."""

    ratio: float
    size: int
    seconds: float
    run: Run | None


def growth_of(pattern: Pattern, size: int = 4_000) -> Growth:
    """Return the worst growth of a pattern over its three slowest hostile runs of a size.

    A pattern that repeats a bounded number of times may grow by more up to there, and a clock that is
    disturbed may say more: what then grows by less at four times the size is as it is there.
    """
    runs = sorted(hostile_runs(pattern), key=lambda run: -_seconds(pattern, run, size))[:3]
    worst = Growth(1.0, size, 0.0, None)
    for run in runs:
        worst = max(worst, _growth(pattern, run, size))
        if worst.ratio > MOST:
            break
    return worst


def _growth(pattern: Pattern, run: Run, size: int) -> Growth:
    while _seconds(pattern, run, size) < _MEASURABLE and size < _LARGEST:
        size *= 4
    found = []
    for at, tries in ((size, 3), (size, 3), (4 * size, 2)):
        shorter, longer = (_seconds(pattern, run, n, tries) for n in (at, 2 * at))
        found.append(Growth(longer / max(shorter, 1e-6), at, shorter, run))
        if found[-1].ratio <= MOST or longer > _HOPELESS:
            break
    return min(found)


def _seconds(pattern: Pattern, run: Run, size: int, tries: int = 1) -> float:
    """Return the least processor time of a match at the start and of a scan of a hostile run."""
    text = run.text(size, pattern)
    return seconds(lambda: (pattern.match(text), deque(pattern.finditer(text), 0)), tries)


@pytest.mark.slow
def test_no_pattern_takes_more_than_linear_time() -> None:
    worst = {(place, pattern.pattern): growth_of(pattern) for pattern, place in collected().items()}
    assert len(worst) > 400
    assert not {place: found for place, found in worst.items() if found.ratio > MOST}


@pytest.mark.slow
@pytest.mark.parametrize("pattern", [r"\s+x", r"^.*\|.*\|$", r"<[^>]*>"])
def test_a_pattern_that_takes_more_is_found(pattern: str) -> None:
    assert growth_of(re.compile(pattern), 400).ratio > MOST
