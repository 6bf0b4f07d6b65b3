"""Shell code: the flows of keys, packed folders, decoded and fetched text through its pipelines and files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise

from tasks.refine.risks.flows import (
    MAX_DEPTH,
    NONE,
    Flows,
    Marks,
    fetched,
    host_marks,
    joined,
    text_marks,
    token_mark,
)
from tasks.refine.risks.rules import Hit
from tasks.refine.risks.shell_words import Command, Word, commands
from tasks.refine.risks.terms import may_flow, patterns, terms

_ASSIGNED = re.compile(r"(\w{1,60})\+?=")
_SPELLED = re.compile(r"(?:\$\{?\w{1,20}\}?){2,9}\Z")
_SPELLS = re.compile(r"(?:^|[;|&(])[ \t]{0,8}(?:\$\{?\w{1,20}\}?){2}", re.MULTILINE)
_URL = re.compile(r"(?i)(?:https?|ftp)://\S{1,2000}")
_OUTPUT = re.compile(r"(?:-\w*[oO]|--output(?:-document)?=?)$")


def shell_hits(code: str) -> list[Hit]:
    """Return the flows in shell code; code in strings of code is read to a fixed depth."""
    if not may_flow(code, "shell") and not _SPELLS.search(code):
        return []
    shell = ShellReader(Flows())
    shell.read(code, 1)
    return shell.flows.hits()


class _Call:
    """A command that is called: its words from its name on, and all of it as text."""

    def __init__(self, words: list[Word]) -> None:
        self.words, self.line = words, words[0].line
        self.name = words[0].text.rpartition("/")[2].lower()
        self.text = " ".join((self.name, *(word.text for word in words[1:])))

    def is_of(self, key: str) -> bool:
        return self.name in terms()[key]

    def says(self, key: str) -> bool:
        return bool(patterns()[key].match(self.text))

    @property
    def keyed(self) -> bool:
        """Whether it logs in with a key that its words name."""
        return self.is_of("shell_keyed") and " -i " in self.text


class ShellReader:
    """Reads shell code into the flows of a file."""

    def __init__(self, flows: Flows) -> None:
        self.flows = flows
        self._depth = 0

    def read(self, code: str, line: int) -> Marks:
        """Read code that begins on a line, and return the marks of what it prints."""
        if self._depth > MAX_DEPTH:
            return NONE
        self._depth += 1
        printed = piped = out = NONE
        for command in commands(code, line):
            # The output of a group or a loop is taken to be that of its last command.
            grouped = not command.words or command.words[0].text in {"done", "fi", "esac"}
            out = self._command(command, joined(piped, out if grouped else NONE))
            piped = out if command.piped else NONE
            printed = printed if command.piped else joined(printed, out)
        self._depth -= 1
        return printed

    def _marks(self, words: Iterable[Word]) -> Marks:
        """Return the marks of words: of their variables, of the output and of the files that they name."""
        marks = NONE
        for word in words:
            of_codes = (self.read(code, line) for line, code in word.codes)
            tokens = (token_mark(name, word.line) for name in word.names)
            numbered = {"encoded": word.line} if word.numbered else NONE
            of_names = self.flows.of((*word.names, *_paths(word.text)))
            marks = joined(marks, numbered, of_names, *of_codes, *tokens)
        return marks

    def _command(self, command: Command, piped: Marks) -> Marks:
        piped = joined(piped, self._input(command))
        words = self._assigned(command.words)
        if words:
            call = _Call(words)
            made = NONE if call.keyed else _made(call)
            reached = joined(piped, made, self._marks(words[1:]))
            self._runs(call, command, joined(piped, made if call.is_of("shell_one_liners") else NONE))
            self._sends(call, joined(piped, made), reached)
            piped = self._output(call, reached)
        into = [word for operator, word in command.redirects if ">" in operator and word.text != "/dev/null"]
        for word in into:
            self.flows.hold(_path(word.text), piped)
            self._keeps(_said(command.words), word, piped)
            if word.text.startswith(("/dev/tcp/", "/dev/udp/")):
                self.flows.sink("send", piped, word.line, f"{_said(command.words)} > {word.text}")
        return NONE if into else piped

    def _input(self, command: Command) -> Marks:
        marks = NONE
        for operator, word in command.redirects:
            if operator == "<":
                marks = joined(marks, text_marks(word.text, word.line))
            if "<" in operator:
                marks = joined(marks, self._marks([word]))
        # What stands in a here-document is looked at for variables and for output of code.
        for line, body in command.bodies:
            marks = joined(marks, *(self._marks(one.words) for one in commands(f': "{body}"', line)))
        return marks

    def _assigned(self, words: list[Word]) -> list[Word]:
        """Note what is assigned before a command's name, and return the words from the name on."""
        for at, word in enumerate(words):
            if assigned := _ASSIGNED.match(word.text):
                value = word.text[assigned.end() :]
                self.flows.hold(assigned[1], joined(self._marks([word]), host_marks(value, word.line)))
            elif word.text not in terms()["shell_prefix"] and not (at and word.text.startswith("-")):
                return words[at:]
        # `env` runs what follows it; where nothing does, it prints.
        return [word for word in words if word.text in {"env", "printenv"}][:1]

    def _runs(self, call: _Call, command: Command, piped: Marks) -> None:
        """Report what an interpreter runs: its input, its code, or a file; and read code in strings."""
        rest, is_shell = call.words[1:], call.is_of("shell_shells")
        if not call.is_of("shell_interpreters"):
            # A program that was fetched is run by its path; a name alone may be that of another.
            named = call.words[0]
            if "/" in named.text or len(call.words) == 1 or named.codes or _SPELLED.match(named.text):
                # A name that is put together of several variables is written so that no reader finds it.
                spelled = {"encoded": call.line} if _SPELLED.match(call.words[0].text) else NONE
                self.flows.sink("run", joined(spelled, self._marks(call.words[:1])), call.line, call.text)
            return
        options = (at + 1 for at, word in enumerate(rest) if word.text in terms()["shell_code_options"])
        coded = 0 if call.name == "eval" else next(options, None)
        code = [] if coded is None else rest[coded : coded + 1] if coded else rest
        if coded is not None and is_shell:
            self.read(" ".join(word.text for word in code), call.line)
        if not code:
            code = [word for word in rest if not word.text.startswith("-")][:1]
            # Without a script, an interpreter runs its input.
            if not code or code[0].text == "/dev/stdin" or any(word.text == "-s" for word in rest):
                self.flows.sink("run", piped, call.line, call.text)
        self.flows.sink("run", self._marks(code), call.line, call.text)
        for line, body in command.bodies if is_shell else ():
            self.read(body, line)

    def _sends(self, call: _Call, piped: Marks, reached: Marks) -> None:
        """Report what a command sends: for a client of HTTP its data, address and headers, for others all."""
        if call.name in {"curl", "wget"}:
            bodied = bool(patterns()["shell_sent_by_curl"].search(call.text))
            header = patterns()["shell_header"]
            pairs = [(word, bool(header.match(before.text))) for before, word in pairwise(call.words)]
            # A key to log in with, in a header, is what keys are for; a whole file of them is not.
            headers = self._marks(word for word, is_header in pairs if is_header)
            others = self._marks(word for word, is_header in pairs if not is_header)
            whole = {mark: at for mark, at in headers.items() if mark == "secret"}
            self.flows.sink("send", joined(others, whole, piped if bodied else NONE), call.line, call.text)
        elif call.says("shell_sends"):
            self.flows.sink("send", piped if call.keyed else reached, call.line, call.text)

    def _output(self, call: _Call, reached: Marks) -> Marks:
        """Return the marks of what a command prints, and note those of the files that it writes."""
        texts = [word.text for word in call.words[1:]]
        if call.is_of("shell_sums") or (call.name == "openssl" and "dgst" in texts):
            return NONE
        match call.name:
            case "read" | "mapfile" | "readarray" | "for":
                for text in texts:
                    self.flows.hold(text, reached)
            case "cp" | "mv" | "tee" | "install" if texts:
                self.flows.hold(_path(texts[-1]), reached)
                if call.name != "tee":  # which is given lists more often than keys
                    self._keeps(call.text, call.words[-1], reached)
            case "tar" | "zip" | "7z":
                archives = (text for text in texts if patterns()["shell_archive"].search(text))
                for archive in islice(archives, 1):
                    self.flows.hold(_path(archive), reached)
                    if "x" not in texts[0]:
                        self.flows.sink("keep", reached, call.line, call.text)
            case "curl" | "wget":
                return self._fetched(call)
        return reached

    def _keeps(self, said: str, into: Word, marks: Marks) -> None:
        """Report keys that are written into a file which is none of keys itself."""
        known = text_marks(into.text, into.line) or into.text.startswith(("/dev/", "("))
        if not known and not patterns()["shell_lists"].match(said):
            self.flows.sink("keep", marks, into.line, f"{said} > {into.text}")

    def _fetched(self, call: _Call) -> Marks:
        """Return the mark of what a client of HTTP prints, and note it of the files that it writes."""
        text, url = call.text, _URL.search(call.text)
        files = [word.text for before, word in pairwise(call.words) if _OUTPUT.match(before.text)]
        printed = patterns()["shell_prints"].search(text)
        saves = patterns()["shell_saves"].search(text) if call.name == "curl" else not printed
        if url and not files and saves:
            files = [url[0].rstrip("\"'").partition("?")[0].rpartition("/")[2]]
        files = [file for file in files if file not in {"-", "/dev/stdout"} and not _URL.match(file)]
        marks = fetched(text, call.line) if url or "$" in text else NONE
        for file in files:
            self.flows.hold(_path(file), marks)
        return NONE if files else marks


def _said(words: Iterable[Word]) -> str:
    return " ".join(word.text for word in words)


def _made(call: _Call) -> Marks:
    key = patterns()["shell_keys"].match(call.text)
    vendor = (key.lastgroup or "").replace("gh", "github") if key else ""
    return joined(
        text_marks(call.text, call.line) if call.is_of("shell_reads") else NONE,
        {"secret": call.line} if call.says("shell_stores") else NONE,
        {f"token:{vendor}": call.line} if key else NONE,
        {"encoded": call.line} if call.says("shell_decodes") else NONE,
        {"folder": call.line} if call.says("shell_folder") else NONE,
    )


def _path(text: str) -> str:
    """Return the name under which a file's content is held: no variable has such a name."""
    return "/" + text.removeprefix("./").strip("\"'")


def _paths(text: str) -> Iterator[str]:
    yield _path(text)
    for mark in "@=":
        if mark in text:
            yield _path(text.rpartition(mark)[2])
