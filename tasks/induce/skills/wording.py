"""Words for skills and states: what a skill does on which page, and what a state is, in the same words."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tasks.induce.skills.actions import Arg, Body, Const, Result, SkillAction
from tasks.induce.trajectories.outline import PageOutline, outline_of

MOST_CHARACTERS = 12_000  # of a state that are read
MOST_WORDS = 110  # of a summary, about 160 tokens
_VERBS = {
    "click": "click", "fill": "fill in", "select_option": "select an option of", "hover": "hover over",
    "keyboard_press": "press a key", "scroll": "scroll", "goto": "go to an address",
}  # fmt: skip
_HEADING = re.compile(r'(?:\[[^\]]+\] )?heading "((?:[^"\\]|\\.)*)"')
_TOOL = re.compile(r"(\w+) returned: ")
_KEY = re.compile(r'"([A-Za-z_]+)":')
_ADDRESS = re.compile(r"[a-z]{2,}")
_MOST_ELEMENTS = 40
_ENABLED = ("button", "textbox", "combobox", "link", "checkbox", "radio", "menuitem", "tab", "clickable")


def described(body: Body, page: str) -> str:
    """Return a sentence that says what a skill does, and on which page or after what."""
    done = ", then ".join(_phrase(action) for action in body)
    return f"{done[:1].upper()}{done[1:]}{f' ({page})' if page else ''}."


def _phrase(action: SkillAction) -> str:
    if action.role is None and action.source("element") is None:
        verb = _VERBS.get(action.name, action.name.replace("_", " "))
        return f"{verb}{_of(action)}"
    verb = _VERBS.get(action.name, action.name.replace("_", " "))
    if action.role is None:
        return f"{verb} what the task names"
    return f"{verb} the {action.target or 'unnamed'} {action.role}"


def _of(action: SkillAction) -> str:
    """Return where a tool's arguments come from: given, or out of an earlier result."""
    given = [name.replace("_", " ") for name, source in action.args if isinstance(source, Arg | Const)]
    read = [name.replace("_", " ") for name, source in action.args if isinstance(source, Result)]
    parts = [f" by {' and '.join(given)}"] if given else []
    parts += [f" with the {' and '.join(read)} found"] if read else []
    return "".join(parts)


def page_of(observation: str, url: str, title: str) -> str:
    """Return what a state is called: the page's title, address and headings, or which tool has answered."""
    observation = observation[:MOST_CHARACTERS]
    outline = outline_of(observation)
    if not outline.elements:
        tool = _TOOL.match(observation)
        return f"after {tool[1].replace('_', ' ')}" if tool else "after a message of the user"
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
        words = f"{page_of(observation, url, title)}: {', '.join(_enabled(outline))}"
    else:
        tool = _TOOL.match(observation)
        fields = ", ".join(dict.fromkeys(_KEY.findall(observation)))
        words = f"{page_of(observation, url, title)}: {fields if tool else observation}"
    return " ".join(words.split()[:MOST_WORDS])


def _enabled(outline: PageOutline) -> Iterator[str]:
    """Yield what one can do on a page, the rarer roles first, each once."""
    named = [key for key in outline.counts if key[1] and key[0] in _ENABLED]
    named.sort(key=lambda key: _ENABLED.index(key[0]))
    for role, label in named[:_MOST_ELEMENTS]:
        verb = "fill in" if role == "textbox" else "select an option of" if role == "combobox" else "click"
        yield f"{verb} the {label} {role}"
