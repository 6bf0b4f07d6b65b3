"""The form in which a person labels contexts: Markdown, filled in with an editor and read back.

It names neither the method that gave a context nor what the model said of it, so that the person is blind to
both: a pair is named by a digest of its query, method and budget, and another one of its context.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from storage.errors import WrongInput
from tasks.evaluate.judge.judge import PROMPT, Label

SUFFIX = ".md"
Setting = tuple[str, float | None]  # a method and its budget
_PAIR = re.compile(r"## Pair \d+ of \d+ \[([0-9a-f]{12})-([0-9a-f]{12})\]")
_ANSWER = re.compile(r"\A\W*+sufficient[^\w:]*+:\W*+(\w*+)\W*+", re.IGNORECASE)
_MEANT = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}


@dataclass(frozen=True, slots=True)
class Pair:
    """A request and the context that a method gave it under a budget."""

    query_id: str
    method: str
    budget: float | None
    query: str
    context: str


def form_of(pairs: Sequence[Pair], options: str) -> str:
    """Return the form for pairs in this order; `options` of the command measure the same contexts again."""
    # People answer the question that the model is asked.
    how = (
        f"{len(pairs)} pairs of a request and an excerpt of a guide. After each `Sufficient:` write yes or"
        " no, and change nothing else. A pair that is left blank is not counted."
    )
    back = f"Read it back by `skillery evaluate paging {options} --labels` and the name of this file."
    head = ["# Does the excerpt suffice for the request?", how, PROMPT.rules.split("\n\n")[1], back]
    parts = [_part(pair, f"Pair {n} of {len(pairs)}") for n, pair in enumerate(pairs, start=1)]
    return "\n\n".join([*head, *parts]) + "\n"


def _part(pair: Pair, title: str) -> str:
    name = f"{_name(pair.query_id, (pair.method, pair.budget))}-{digest_of(pair.context)}"
    texts = (("Request", pair.query), ("Excerpt", pair.context))
    quoted = [f"{what}:\n\n{_quoted(text)}" for what, text in texts]
    return "\n\n".join([f"## {title} [{name}]", *quoted, "Sufficient: "])


def _quoted(text: str) -> str:
    """Return text with a mark before each line, so that none can be taken for a line of the form."""
    shown = "".join(c if c in "\n\t" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return "\n".join(f"> {line}".rstrip() for line in shown.split("\n"))


def digest_of(context: str) -> str:
    """Return the digest by which a form names a context."""
    return hashlib.sha256(context.encode()).hexdigest()[:12]


def _name(query_id: str, setting: Setting) -> str:
    return digest_of(json.dumps([query_id, *setting]))


def read_form(path: Path, query_ids: Iterable[str], settings: Collection[Setting]) -> list[Label]:
    """Return the labels of a form that a person filled in, in order; pairs left blank are passed over.

    Raises:
        WrongInput: The file cannot be read, an answer is neither yes nor no, a pair occurs twice or is of
            none of these queries and settings, or no pair has an answer; names the line.
    """
    names = {_name(query_id, setting): (query_id, setting) for query_id in query_ids for setting in settings}
    found: dict[str, Label] = {}
    for where, name, context, answer in _answers(path):
        if name not in names:
            msg = f"{where}: this pair is not measured here; give the options that the form names at its top"
            raise WrongInput(msg)
        if name in found:
            raise WrongInput(f"{where}: this pair has an answer in {found[name].where}; keep one")
        if answer.casefold() not in _MEANT:
            raise WrongInput(f"{where}: {answer[:40]!r} is no answer; write yes or no after `Sufficient:`")
        query_id, (method, budget) = names[name]
        found[name] = Label(query_id, method, budget, _MEANT[answer.casefold()], where, context)
    if not found:
        raise WrongInput(f"{path}: no pair has an answer; write yes or no after each `Sufficient:`")
    return list(found.values())


def _answers(path: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yield `file:line` of each answer, the name of its pair, the digest of its context, and the word."""
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path}: cannot be read ({error}); give a form that --sample-labels wrote"
        raise WrongInput(msg) from error
    pair: re.Match[str] | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith(">"):
            continue
        pair = _PAIR.match(line) or pair
        answer = _ANSWER.fullmatch(line.strip())
        if pair and answer and answer[1]:
            yield f"{path}:{number}", pair[1], pair[2], answer[1]


def require_same_contexts(
    labels: Iterable[Label], contexts: Mapping[tuple[str, str, float | None], str]
) -> None:
    """Raise `WrongInput`, naming the line, if a label's context is another one now; `contexts` by `key`."""
    for label in labels:
        if label.context and label.context != digest_of(contexts[label.key]):
            msg = (
                f"{label.where}: the context is another one than the form shows: documents, encoder or "
                "settings have changed; draw and label anew, by --sample-labels"
            )
            raise WrongInput(msg)
