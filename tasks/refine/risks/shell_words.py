"""Shell words: code of a shell as commands, each with its words, redirections and here-documents."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

_PIECE = re.compile(  # a fence of Markdown counts as blank
    r"(?P<continued>\\\r?\n)|(?P<escaped>\\.)|(?P<blank>[ \t\r]+|(?<!\S)```\w*[ \t]*(?=\n|\Z))"
    r"|(?P<sum>\(\((?:[^()\n]|\([^()\n]{0,200}\)){0,300}\)\))"
    r"|(?P<heredoc><<-?[ \t]{0,9}(?P<q>['\"]?)(?P<tag>\w{1,60})(?P=q))"
    r"|(?P<redirect><<<|(?:\d|&)?>{1,2}\|?(?!&\d|\()|<(?![<(&]))|(?P<copied>\d?[<>]&\d)"
    r"|(?P<inner>[$<>]\(|`)|(?P<variable>\$(?:\{[!#]?(?P<braced>\w+)[^}\n]{0,80}\}|(?P<plain>\w+)))"
    r"|(?P<single>\$?'(?P<said>[^']*)')|(?P<quote>\")|(?P<pipe>\|&?(?!\|))|(?P<end>&&|\|\||[;&\n(){}])"
    r"|(?P<comment>(?:(?<=[\s;|&(){}])|\A)\#[^\n]*)|(?P<text>[^\\\s'\"`$<>|;&(){}#\d]+|.)",
    re.DOTALL,
)
_IN_QUOTES = re.compile(
    r"(?P<continued>\\\r?\n)|(?P<escaped>\\.)|(?P<inner>\$\(|`)|(?P<quote>\")"
    r"|(?P<variable>\$(?:\{[!#]?(?P<braced>\w+)[^}\n]{0,80}\}|(?P<plain>\w+)))|(?P<text>[^\\\"`$]+|.)",
    re.DOTALL,
)
_BRACKET = re.compile(r"\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\"|(?P<bracket>[()])|[^\\'\"()]+|.", re.DOTALL)
_NUMBERS = re.compile(r"\\x[0-9a-fA-F]{2}|\\[0-7]{3}")
_LEAST_NUMBERS = 3


@dataclass(slots=True)
class Word:
    """A word without its quotes, the variables in it, and the code whose output stands in it, by line."""

    line: int
    text: str = ""
    names: list[str] = field(default_factory=list)
    codes: list[tuple[int, str]] = field(default_factory=list)
    numbered: bool = False  # spelled by the numbers of its characters


@dataclass(slots=True)
class Command:
    """A command; `piped` says that the next one reads its output, `bodies` are its here-documents."""

    words: list[Word] = field(default_factory=list)
    redirects: list[tuple[str, Word]] = field(default_factory=list)
    bodies: list[tuple[int, str]] = field(default_factory=list)
    piped: bool = False


def commands(code: str, line: int) -> Iterator[Command]:
    """Yield the commands of code that begins on a line, in order."""
    reader = _Splitter(code, line)
    at = 0
    while at < len(code):
        at = reader.step(at)
        yield from reader.done
        reader.done = []
    reader.end_command()
    yield from reader.done


class _Splitter:
    def __init__(self, code: str, line: int) -> None:
        self.done: list[Command] = []
        self._code, self._line = code, line
        self._newlines = [match.start() for match in re.finditer("\n", code)]
        self._command, self._word = Command(), Word(0)
        self._said: list[str] = []  # the parts of the word
        self._in_word = self._quoted = False
        self._redirect = ""
        self._waiting: list[tuple[Command, str]] = []

    def _line_at(self, at: int) -> int:
        return self._line + bisect_left(self._newlines, at)

    def step(self, at: int) -> int:
        """Read the next piece, and return where it ends."""
        match = (_IN_QUOTES if self._quoted else _PIECE).match(self._code, at)
        if match is None:
            return at + 1
        kind = match.lastgroup
        if kind in {"escaped", "text", "single", "quote", "variable", "inner"} and not self._in_word:
            self._word, self._in_word = Word(self._line_at(at)), True
        match kind:
            case "escaped" | "text" | "single":
                self._spell(match)
            case "quote":
                self._quoted = not self._quoted
            case "variable":
                self._word.names.append(match["braced"] or match["plain"])
                self._said.append(match[0])
            case "inner":
                return self._inner(match)
            case "redirect" | "heredoc":
                # A number before it is that of what is redirected.
                self.end_word()
                self._redirect = "" if kind == "heredoc" else match[0].strip("0123456789&|") or match[0]
                self._waiting += [(self._command, match["tag"])] if kind == "heredoc" else []
            case "blank" | "comment":
                self.end_word()
            case "pipe" | "end":
                self._command.piped = kind == "pipe"
                self.end_command()
                return self._bodies(match.end()) if match[0] == "\n" else match.end()
        return match.end()

    def _spell(self, match: re.Match[str]) -> None:
        if match.lastgroup != "single":
            self._said.append(match[0].removeprefix("\\") if match.lastgroup == "escaped" else match[0])
            return
        self._said.append(match["said"])
        numbers = len(_NUMBERS.findall(match[0])) if match[0][0] == "$" else 0
        self._word.numbered |= numbers >= _LEAST_NUMBERS

    def _inner(self, match: re.Match[str]) -> int:
        start, end = match.end(), len(self._code)
        stop = self._code.find("`", start) if match[0] == "`" else _closing(self._code, start)
        stop = end if stop < 0 else stop
        inner = self._code[start:stop]
        self._word.codes.append((self._line_at(start), inner))
        self._said.append(f"$({inner[:200]})")
        return stop + 1

    def end_word(self) -> None:
        """Put the word that was read where it belongs."""
        if not self._in_word:
            return
        self._word.text = "".join(self._said)
        if self._redirect:
            self._command.redirects.append((self._redirect, self._word))
        else:
            self._command.words.append(self._word)
        self._said, self._in_word, self._redirect = [], False, ""

    def end_command(self) -> None:
        """Put the command that was read to those that are done."""
        self.end_word()
        if self._command.words or self._command.redirects:
            self.done.append(self._command)
            self._command = Command()
        self._redirect, self._quoted = "", False

    def _bodies(self, at: int) -> int:
        for command, tag in self._waiting:
            stop = re.compile(rf"^[ \t]*{tag}[ \t]*$", re.MULTILINE).search(self._code, at)
            until, end = stop.span() if stop else (len(self._code), len(self._code))
            command.bodies.append((self._line_at(at), self._code[at:until]))
            at = end
        self._waiting = []
        return at


def _closing(code: str, at: int) -> int:
    """Return where a bracket that opened before closes; the end if it never does."""
    depth = 1
    while at < len(code) and (match := _BRACKET.match(code, at)):
        depth += {"(": 1, ")": -1}.get(match["bracket"] or "", 0)
        if not depth:
            return at
        at = match.end()
    return len(code)
