"""Kinds of a text: what may read or run it, told by its content first and by its name last."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Collection, Iterator
from itertools import groupby
from typing import Literal, NamedTuple

from tasks.refine.text.markdown import fenced

Kind = Literal["markdown", "shell", "python", "javascript", "json", "yaml", "toml", "text"]


class Part(NamedTuple):
    """A text as one reader takes it, with the line of its file (from 1) on which it begins."""

    kind: Kind
    text: str
    line: int = 1


# By suffix, by the name of a file without one, and by the language of a fence.
_NAMES: dict[Kind, str] = {
    "markdown": "md mdx markdown mdc",
    "shell": "sh bash zsh ksh dash fish command shell console shell-session sh-session terminal makefile mk"
    " dockerfile justfile bashrc zshrc profile bash_profile envrc",
    "python": "py pyw pyi python python3 py3",
    "javascript": "js mjs cjs jsx ts mts cts tsx javascript typescript node",
    "json": "json jsonc json5 webmanifest ipynb",
    "yaml": "yaml yml",
    "text": "rb ruby php ps1 psm1 powershell pl perl lua go",
    "toml": "toml ini cfg conf pipfile npmrc yarnrc pypirc service timer desktop",
}
_CALLED: dict[str, Kind] = {name: kind for kind, names in _NAMES.items() for name in names.split()}
# What programs are never called; who calls one so hides it.
_MEDIA = re.compile(
    r"\.(?:png|jpe?g|gif|webp|bmp|ico|tiff?|avif|heic|pdf|mp[34]|wav|ogg|mov|avi|webm|woff2?|[to]tf|zip|t?gz"
    r"|docx|xlsx|pptx)\Z",
    re.IGNORECASE,
)
_CODE = frozenset({"shell", "python", "javascript"})
_PROSE = frozenset({"txt", "rst", "adoc", "text", "md", "mdx", "markdown", "mdc"})
_SHEBANG = re.compile(
    r"\A\ufeff?#![^\n]{0,200}?\b(?:(?P<shell>(?:ba|da|k|z|fi|a)?sh)|(?P<python>python|pypy|uv)[\d.]*"
    r"|(?P<javascript>node|nodejs|deno|bun|tsx|ts-node))\b"
)
# What no line of prose or of data begins with.
_SAID: dict[Kind, re.Pattern[str]] = {
    "python": re.compile(
        r"^(?:import [\w.]+(?: as \w+)?(?:, ?[\w.]+)*\s*(?:[;#]|$)|from [\w.]+ import \S"
        r"|(?:async )?def \w+\()",
        re.M,
    ),
    "javascript": re.compile(
        r"^\s{0,40}(?:(?:const|let|var) [\w{} ,]{1,80} ?= ?\S|import .{1,200} from ['\"]"
        r"|(?:async )?function \w*\(|module\.exports\b|\(?(?:async )?\(\) ?=>)|\brequire\(['\"]",
        re.M,
    ),
    "shell": re.compile(
        r"^\s{0,40}(?:(?:curl|wget|eval|exec|sudo|chmod|nohup|source|base64|nc|bash|sh|zsh|python3?|node|npx"
        r"|crontab|systemctl|launchctl) \S|export \w+=|echo .{1,400}[|>]|set -[eux]"
        r"|\w{1,40}=[$\"'(]|(?:if|while) \[|\{ )",
        re.M,
    ),
}
_LEAST_SHARE = 0.3  # of the lines of prose that read as code, if it is no prose at all
_TESTED_CHARS = 25_000  # of a text's beginning, and of its end
_BLANK_LINES = re.compile(r"\n\s*\n")
_PROMPT = re.compile(r"^[ \t]{0,20}[$%>#] (?=\S)", re.M)


def kinds_of(text: str, path: str) -> tuple[Kind, ...]:
    """Return what a text may be read or run as, the likeliest first; `text` if nothing says more.

    What a script names as its interpreter counts before its name; what is called neither code nor data is
    tested for both, since a name binds nobody who runs a file.
    """
    name = posixpath.basename(path).lower()
    suffix = name.rpartition(".")[2]
    called, said = _CALLED.get(suffix), text
    if len(said) > _TESTED_CHARS or said[:1].isspace():
        said = _BLANK_LINES.sub("\n", said)
    head = said if len(said) <= _TESTED_CHARS else f"{said[:_TESTED_CHARS]}\n{said[-_TESTED_CHARS:]}"
    kinds: dict[Kind, None] = {}
    if (shebang := _SHEBANG.match(head)) and shebang.lastgroup:
        kinds[shebang.lastgroup] = None  # type: ignore[index]
    if called:
        kinds[called] = None
    if called is None or called in {"yaml", "toml"} or (called == "markdown" and name != "skill.md"):
        is_other = called or suffix in _PROSE
        lines = sum(1 for line in head.splitlines() if line.strip()) if is_other else 0
        kinds |= {kind: None for kind, line in _SAID.items() if _often(line, head, _LEAST_SHARE * lines)}
        kinds |= {"json": None} if _is_json(text) else {}
    return tuple(kinds) or ("text",)


def _often(line: re.Pattern[str], text: str, least: float) -> bool:
    return len(line.findall(text)) >= least if least > 1 else bool(line.search(text))


def is_disguised(path: str, kinds: Collection[str]) -> bool:
    """Tell whether a file is a program that is called as a picture, a document or an archive is."""
    return bool(_MEDIA.search(path)) and not _CODE.isdisjoint(kinds)


def _is_json(text: str) -> bool:
    if text[:1] not in {"{", "["} and text.lstrip()[:1] not in {"{", "["}:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def parts_of(text: str, path: str) -> Iterator[Part]:
    """Yield a text as each of its readers takes it, then the code that stands in fences of Markdown."""
    kinds = kinds_of(text, path)
    yield from (Part(kind, text) for kind in kinds)
    if "markdown" in kinds and ("```" in text or "~~~" in text):
        lines = text.split("\n")
        flags = fenced(lines)[0]
        for inside, numbers in groupby(range(len(lines)), flags.__getitem__):
            if inside:
                block = list(numbers)
                yield from _of_fence(lines[block[0] - 1], lines[block[0] : block[-1] + 1], block[0] + 1)


def _of_fence(opener: str, lines: list[str], first: int) -> Iterator[Part]:
    word = re.search(r"(?:`{3,}|~{3,})[ \t{.]{0,8}([\w-]*)", opener)
    text = _PROMPT.sub("", "\n".join(lines))
    is_deep = next((line for line in lines if line.strip()), "")[:1].isspace()
    depth = min(len(line) - len(line.lstrip()) for line in lines if line.strip()) if is_deep else 0
    text = "\n".join(line[depth:] for line in text.split("\n")) if depth else text
    # A fence without a language is tested as a file without a suffix is.
    for kind in kinds_of(text, f"fence.{word[1]}" if word and word[1] else "fence"):
        if kind not in {"text", "markdown"} or (word and _CALLED.get(word[1].lower()) == "text"):
            yield Part(kind, text, first)
