"""Code of scripts by its tokens: the flows through the statements of JavaScript, and of languages like it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from tasks.refine.risks.flows import Flows, Marks, fetched, host_marks, joined, text_marks, token_mark
from tasks.refine.risks.rules import Hit
from tasks.refine.risks.shell_code import ShellReader
from tasks.refine.risks.terms import has_hint, may_flow, patterns, terms

_TOKEN = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))|(?P<open>[({\[])|(?P<close>[)}\]])|(?P<end>[;\n])"
    r"|(?P<string>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`)"
    r"|(?P<other>(?:[^\"'`/(){}\[\];\n\\]|\\.)+|.)",
    re.DOTALL,
)
_BLOCK_BEFORE = re.compile(r"(?:=>|\)|\b(?:else|do|try|finally)|[;{}]|\A)\s*\Z|\bclass\b[^;{}]*\Z")
# A property of what holds a mark is another thing; what a method of it answers is not.
_NAME = re.compile(r"[A-Za-z_$][\w$]*(?!\w|\??\.\w{1,60}(?![\w(]))")
# What a statement sets: names before an assignment, or the parameters of a function in it.
_ASSIGNED = re.compile(
    r"(?:\{([^{}=]{1,200})\}|\[([^\[\]=]{1,200})\]|([$@]?[A-Za-z_][\w$.]{0,100}))\s{0,8}[-+.|?]{0,2}=(?![=>~])"
)
_PARAMETERS = re.compile(
    r"\(([\w$,\s{}=]{1,200})\)\s{0,8}(?:=>|\{)|\bfunction\s{0,8}\w{0,60}\s{0,8}\(([^()]{1,200})\)|\b([\w$]{1,60})\s{0,8}=>|\|(\w{1,60})\|"
)
_CALLED_BACK = re.compile(r"=>|\bfunction\b")
_SHELL = re.compile(
    r"(?:exec|execSync|spawn|spawnSync|system|shell_exec|popen|passthru)\s{0,3}\(\s{0,8}([\"'`])"
    r"((?:(?!\1)[^\\]|\\.){3,2000})\1",
    re.DOTALL,
)
_MOST_SINKS = 50  # of a statement
_MOST_MADE = 500  # places of a statement
_MOST_CALL = 600  # characters of a call whose addresses are looked for
_MOST_SAID = 400
_MOST_STATEMENT = 40_000  # characters: a longer one is data
_PASSES = 2


def script_hits(code: str) -> list[Hit]:
    """Return the flows in JavaScript, or in a script of a language that has brackets and quotes like it."""
    if not may_flow(code, "script"):
        return []
    flows = Flows()
    statements = [(line, said, list(_made(said, line))) for line, said in _statements(code)]
    for _ in range(_PASSES):
        for line, statement, made in statements:
            _read(flows, statement, line, made)
        if not flows.held:
            break
    return flows.hits()


def _statements(code: str) -> Iterator[tuple[int, str]]:
    """Yield each statement without comments, and its line: what ends at `;`, a line, or a block's bracket."""
    at = 0
    line = first = 1
    brackets: list[bool] = []  # whether each open one is a block
    said: list[str] = []
    while at < len(code):
        match = _TOKEN.match(code, at)
        if match is None:
            break
        at, kind, text = match.end(), match.lastgroup, match[0]
        block = kind == "open" and text == "{" and _opens_block(said)
        ends = (kind == "end" or text == "}") and (not brackets or brackets[-1])
        if kind == "open":
            brackets.append(block)
        elif kind == "close" and brackets:
            brackets.pop()
        if kind != "comment":
            said.append(text)
        line += text.count("\n")
        if ends or block:
            statement = "".join(said)
            if statement.strip() and len(statement) <= _MOST_STATEMENT:
                yield first, statement
            said, first = [], line
        elif not "".join(said[-1:]).strip() and len(said) == 1:
            first = line
    if (rest := "".join(said)).strip() and len(rest) <= _MOST_STATEMENT:
        yield first, rest


def _opens_block(said: list[str]) -> bool:
    return bool(_BLOCK_BEFORE.search("".join(one[-100:] for one in said[-6:])))


def _read(flows: Flows, statement: str, line: int, made: list[tuple[int, Marks]]) -> None:
    """Note what a statement holds, makes and sets, and report the sinks that its words reach."""
    runs = False
    hosts = host_marks(statement, line) if "://" in statement else {}
    held = flows.of(_names(statement)) if flows.held else {}
    marks = joined(text_marks(statement, line), *(one for _, one in made), held, hosts)
    for sink, pattern in (("run", "script_runs"), ("send", "script_sends")) if marks else ():
        for spent in islice(patterns()[pattern].finditer(statement), _MOST_SINKS):
            # What a call is given; and in what is called back with an answer, the answer.
            after = statement[spent.start() :]
            made_after = (one for at, one in made if at >= spent.start())
            reach = joined(text_marks(after, line), *made_after, flows.of(_names(after)))
            if sink == "run" and _CALLED_BACK.search(statement, 0, spent.start()):
                reach = joined(reach, {m: at for m, at in marks.items() if m.startswith("fetched")})
            source = f"{statement[:_MOST_SAID]} {after[:_MOST_CALL]}"
            flows.sink(sink, reach, line, statement[:_MOST_SAID], source)
            runs |= sink == "run"
    if marks:
        _keep(flows, statement, line, made)
    for command in _SHELL.finditer(statement):
        ShellReader(flows).read(command[2], line)
    # What a program answers is not the environment that it was given.
    marks = {mark: at for mark, at in marks.items() if not (runs and mark == "secret")}
    for setting in (_ASSIGNED, _PARAMETERS) if marks else ():
        for set_here in setting.finditer(statement):
            for name in _NAME.findall(next(filter(None, set_here.groups()), "")):
                flows.hold(name, marks)


def _keep(flows: Flows, statement: str, line: int, made: list[tuple[int, Marks]]) -> None:
    for kept in islice(patterns()["script_keeps"].finditer(statement), _MOST_SINKS):
        first, _, second = statement[kept.end() :].partition(",")
        of_each = [joined(text_marks(one, line), flows.of(_names(one))) for one in (first, second)]
        of_each[1] = joined(of_each[1], *(one for at, one in made if at >= kept.end()))
        source, into = of_each if kept["copy"] else reversed(of_each)
        if "secret" not in into:  # what goes back into a file of keys is not copied
            flows.sink("keep", source, line, statement[:_MOST_SAID])


def _names(statement: str) -> set[str]:
    return set(_NAME.findall(statement)) - terms()["script_common"]


def _made(statement: str, line: int) -> Iterator[tuple[int, Marks]]:
    if not has_hint(statement.lower(), "script_made"):
        return
    for made in islice(patterns()["script_made"].finditer(statement), _MOST_MADE):
        at = made.start()
        match made.lastgroup:
            case "encoded":
                yield at, {"encoded": line}
            case "environment":
                yield at, {"secret": line}
            case "fetched":
                yield at, fetched(statement[at : at + _MOST_CALL], line)
            case _:
                yield at, token_mark(made["js"] or made["ps"] or made["rb"] or "", line)
