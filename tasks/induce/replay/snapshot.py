"""Outlines of live pages, made of Playwright's snapshot of the accessibility tree."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

_KEY = re.compile(r'\A(?P<role>[\w-]+)(?: (?P<name>"(?:[^"\\]|\\.)*"))?(?P<states>(?: \[[^\]]*\])*)\Z')
_STATE = re.compile(r"\[([\w-]{1,60})(?:=([^\]]{0,2000}))?\]")
_VALUED = frozenset({"combobox", "searchbox", "slider", "spinbutton", "textbox"})
_ACTED = _VALUED | {
    "button", "checkbox", "heading", "link", "listbox", "menuitem", "menuitemcheckbox", "menuitemradio",
    "option", "radio", "switch", "tab", "treeitem",
}  # fmt: skip
_ABOVE = frozenset({"alertdialog", "dialog", "menu"})  # what lies above the page stands first
_CLICKABLE = "clickable"
_LONGEST = {_CLICKABLE: 90, "dialog": 60, "text": 160}  # characters of names that are texts of a subtree


@dataclass(slots=True)
class _Node:
    role: str
    name: str = ""
    states: dict[str, str] = field(default_factory=dict)
    children: list[_Node] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Its name, else the texts below it."""
        return self.name or " ".join(filter(None, (child.text for child in self.children)))


def outline_text(snapshot: str) -> str:
    """Return the outline of a page as recordings hold it, a line an element: `[id] role "name"` and states.

    Ids are those of the snapshot, given to elements that one can act on. An element of another role where
    the pointer says that it can be clicked is `clickable`. Dialogs and menus stand first. What is none of
    Playwright's `aria_snapshot(mode="ai")` raises `ValueError`.
    """
    printable = yaml.reader.Reader.NON_PRINTABLE.sub(" ", snapshot)  # a page may hold any characters
    try:
        roots = _nodes(yaml.load(printable, getattr(yaml, "CBaseLoader", yaml.BaseLoader)))  # noqa: S506 (texts)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"the page's accessibility tree cannot be read: {error}") from error
    lines = [line for root in roots for line in _lines(root, 0, is_above=False)]
    return "\n".join(text for _, text in sorted(lines, key=lambda line: not line[0]))


def _nodes(held: Any) -> list[_Node]:  # noqa: ANN401
    """Return the nodes of a list of the snapshot; entries that begin with `/` are no elements."""
    if not isinstance(held, list):
        return [_Node("text", str(held))] if held else []
    found = []
    for entry in held:
        key, below = next(iter(entry.items())) if isinstance(entry, dict) else (entry, None)
        if key == "text":
            found.append(_Node("text", str(below)))
        elif parts := _KEY.match(key):
            name = json.loads(parts["name"], strict=False) if parts["name"] else ""
            found.append(_Node(parts["role"], name, dict(_STATE.findall(parts["states"])), _nodes(below)))
    return found


def _lines(node: _Node, depth: int, *, is_above: bool) -> Iterator[tuple[bool, str]]:
    """Yield the lines of a node and those below it, each with whether it lies above the page."""
    if node.role in _ABOVE and not is_above:
        depth, is_above = 0, True
    role = _role(node)
    shown = role or (node.role if node.children or not node.name else "text")
    if role is None and shown not in {"text", *_ABOVE}:
        for child in node.children:
            yield from _lines(child, depth, is_above=is_above)
        return
    name = json.dumps(node.text[: _LONGEST.get(shown)], ensure_ascii=False)
    ref = f"[{node.states['ref']}] " if role else ""
    yield is_above, f"{'  ' * depth}{ref}{shown} {name}{''.join(_states(node))}"
    for child in node.children if role not in _VALUED else ():
        yield from _lines(child, depth + 1, is_above=is_above)


def _role(node: _Node) -> str | None:
    """Return the role of an element that one can act on; None where it is none."""
    if "ref" not in node.states:
        return None
    if node.role in _ACTED:
        return node.role
    return _CLICKABLE if node.states.get("cursor") == "pointer" else None


def _states(node: _Node) -> Iterator[str]:
    yield from (f" {name}" for name in ("disabled", "checked") if name in node.states)
    if node.states.keys() & {"expanded", "pressed", "selected"}:
        yield " on"
    if node.role not in _VALUED:
        return
    options = [child for child in node.children if child.role == "option"]
    shown = [each for each in options if "selected" in each.states] if options else node.children
    yield f" value={json.dumps(' '.join(each.text for each in shown), ensure_ascii=False)}"
    if options:
        yield f" options={json.dumps([each.text for each in options], ensure_ascii=False)}"
