"""Wording of skills and states: what a skill does on which page, and what a state is, in the same words."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from tasks.induce.skills.actions import Arg, Body, Const, Result, SkillAction
from tasks.induce.trajectories.cleaning import ELEMENT, answering_tool
from tasks.induce.trajectories.outline import PageOutline, outline_of

MOST_CHARACTERS = 12_000  # of a state that are read
COMMON = 3  # tasks from which on what they share belongs to none of them
MOST_WORDS = 110  # of a summary, about 160 tokens
SUMMED_BY = "rule-1"  # another one when `summed_up` gives other words
_VERBS = {
    "click": "click", "fill": "fill in", "select_option": "select an option of", "hover": "hover over",
    "keyboard_press": "press a key", "scroll": "scroll", "goto": "go to an address",
}  # fmt: skip
_HEADING = re.compile(r'(?:\[[^\[\]]+\] )?heading "((?:[^"\\]|\\.)*)"')
_KEY = re.compile(r'"([A-Za-z_]+)":')
_ADDRESS = re.compile(r"[a-z]{2,}")
_MOST_ELEMENTS = 40
_ENABLED = ("button", "textbox", "combobox", "link", "checkbox", "radio", "menuitem", "tab", "clickable")


def described(body: Body, page: str) -> str:
    """Return a sentence that says what a skill does, and on which page or after what."""
    done = ", then ".join(_phrase(action) for action in body)
    return f"{done[:1].upper()}{done[1:]}{f' ({page})' if page else ''}."


def _phrase(action: SkillAction) -> str:
    verb = _VERBS.get(action.name, action.name.replace("_", " "))
    if action.role is not None:
        return f"{verb} the {action.target or 'unnamed'} {action.role}"
    return f"{verb}{_of(action)}" if action.source(ELEMENT) is None else f"{verb} what the task names"


def _of(action: SkillAction) -> str:
    """Return where a tool's arguments come from: given, or out of an earlier result."""
    given = [name.replace("_", " ") for name, source in action.args if isinstance(source, Arg | Const)]
    read = [name.replace("_", " ") for name, source in action.args if isinstance(source, Result)]
    parts = [f" by {' and '.join(given)}"] if given else []
    parts += [f" with the {' and '.join(read)} found"] if read else []
    return "".join(parts)


def page_named(own: Mapping[str, Collection[str]], every: Mapping[str, Collection[str]]) -> str:
    """Return the page that most of a skill's tasks had, of those that three tasks of the domain had.

    There may be none: the title of another page may hold what one task was about. `own` are the skill's tasks
    by page, `every` those of all skills of the domain.
    """
    common = [page for page in own if len(every[page]) >= COMMON]
    return min(common, key=lambda page: (-len(own[page]), page), default="")


def page_of(observation: str, url: str, title: str) -> str:
    """Return what a state is called: the page's title, address and headings, or which tool has answered."""
    observation = observation[:MOST_CHARACTERS]
    outline = outline_of(observation)
    if not outline.elements:
        tool = answering_tool(observation)
        return f"after {tool.replace('_', ' ')}" if tool else "after a message of the user"
    headings = list(dict.fromkeys(_HEADING.findall(observation)))[:2]
    address = " ".join(_ADDRESS.findall(url.partition("://")[2].partition("/")[2].lower())[:4])
    return " ".join(f"on the {title} {address} page {' '.join(headings)}".split())


def summed_up(observation: str, url: str = "", title: str = "") -> str:
    """Return a state in at most 110 words: what page it is, and what one can do there; SGDR's Summarize(o).

    Of a tool's answer it names the tool and its fields, of a message its words.
    """
    observation = observation[:MOST_CHARACTERS]
    outline = outline_of(observation)
    if outline.elements:
        said = ", ".join(_enabled(outline))
    else:
        is_answer = answering_tool(observation) is not None
        said = ", ".join(dict.fromkeys(_KEY.findall(observation))) if is_answer else observation
    return " ".join(f"{page_of(observation, url, title)}: {said}".split()[:MOST_WORDS])


def _enabled(outline: PageOutline) -> Iterator[str]:
    """Yield what one can do on a page, the rarer roles first, each once."""
    named = [key for key in outline.counts if key[1] and key[0] in _ENABLED]
    named.sort(key=lambda key: _ENABLED.index(key[0]))
    for role, label in named[:_MOST_ELEMENTS]:
        verb = "fill in" if role == "textbox" else "select an option of" if role == "combobox" else "click"
        yield f"{verb} the {label} {role}"
