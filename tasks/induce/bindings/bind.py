"""Bindings: the skills that do a window of a trajectory again, by where each argument may come from."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from tasks.induce.bindings.values import is_known, paths_to, word_run
from tasks.induce.skills.actions import (
    KEY,
    LEAST,
    MOST,
    Arg,
    Body,
    Find,
    Granularity,
    Path,
    Result,
    SkillAction,
    Source,
    is_name,
    is_sayable,
)
from tasks.induce.skills.naming import with_names
from tasks.induce.trajectories.cleaning import ELEMENT, CleanStep

# Elements of other roles may be left to the caller where the task names them: a message, a file, a label.
NARROW = frozenset({"button", "textbox", "combobox"})
_NAMED = 3  # words in a row of an element's label by which a task names it
_MOST_BODIES = 24  # of one window
_MOST_DATA = 40  # characters of a key; a longer one is a text
_Head = tuple[str | None, str | None, Source | None]


def windows(steps: Sequence[CleanStep], start: int, granularity: Granularity = "window") -> Iterator[int]:
    """Yield the lengths of the windows that begin at a step; none of their actions speaks.

    Of `window` these are 2 to 5 actions, of `action` one, of `trajectory` all up to the next one that speaks,
    where the one before speaks or there is none (SGDR, table 4).
    """
    run = next((n for n, step in enumerate(steps[start:]) if step.action.speaks), len(steps) - start)
    if granularity == "window":
        yield from range(LEAST, min(MOST, run) + 1)
    elif granularity == "action" and run:
        yield 1
    elif granularity == "trajectory" and run >= LEAST and (start == 0 or steps[start - 1].action.speaks):
        yield run


def bodies(task: str, steps: Sequence[CleanStep], start: int, length: int) -> list[Body]:
    """Return the skills that do a window again; none if an argument can come from nowhere."""
    options = []
    for place in range(start, start + length):
        heads, args = _heads(task, steps, start, place), _args(task, steps, start, place)
        options.append([_action(steps[place], head, own) for head in heads for own in args])
    found = itertools.islice(itertools.product(*options), _MOST_BODIES)
    return [with_names(body) for body in dict.fromkeys(found)]


def _action(step: CleanStep, head: _Head, args: Sequence[tuple[str, Source]]) -> SkillAction:
    role, target, source = head
    own = (*args, (ELEMENT, source)) if source is not None else tuple(args)
    return SkillAction(step.action.name, role, target, tuple(sorted(own, key=lambda each: each[0])))


def _heads(task: str, steps: Sequence[CleanStep], start: int, place: int) -> list[_Head]:
    """Return how an action says what it is on: by role and label, or left open where the task names it.

    What a task names differs from task to task: by its label the skill would serve that one alone.
    There is no way where code cannot say the action's name.
    """
    step, element = steps[place], steps[place].element
    if not is_name(step.action.name):
        return []
    if step.outline is None or ELEMENT not in step.action.args:
        return [(None, None, None)]
    page = steps[start].outline
    if element is None or page is None:
        return []
    if not page.holds(element):
        return [(element.role, element.label, Find(element.ordinal))]
    if element.role not in NARROW and names(task, element.label):
        return [(None, None, Arg(ELEMENT))]
    return [(element.role, element.label, Arg(ELEMENT))]


def names(task: str, label: str) -> bool:
    """Tell whether a task names an element: its label, or three words of it in a row, stand in it."""
    words, run = label.split(), word_run(task)
    tried = (
        [words] if len(words) < _NAMED else (words[k : k + _NAMED] for k in range(len(words) - _NAMED + 1))
    )
    return bool(words) and any(f" {' '.join(some)} " in run for some in tried)


def _args(
    task: str, steps: Sequence[CleanStep], start: int, place: int
) -> list[tuple[tuple[str, Source], ...]]:
    """Return the combinations of sources of an action's arguments other than its element."""
    step, choices = steps[place], []
    for name, value in sorted(step.action.args.items()):
        if name == ELEMENT and step.outline is not None:
            continue
        if not is_sayable(name):
            return []
        found: list[Source] = [Arg(name)] if is_known(value, task, steps, start, place) else []
        found += _results(value, steps, start, place)
        choices.append([(name, source) for source in found])
    # A record with 30 fields, each of two sources, has a thousand million combinations.
    return list(itertools.islice(itertools.product(*choices), _MOST_BODIES))


def _results(value: object, steps: Sequence[CleanStep], start: int, place: int) -> list[Source]:
    """Return the first path in a result of the window at which a value stands, as a source."""
    for number, step in enumerate(steps[start:place]):
        paths = (
            path for path in paths_to(value, step.result) if step.result is not None and is_general(path)
        )
        for path in itertools.islice(paths, 1):
            return [Result(number, path)]
    return []


def is_general(path: Path) -> bool:
    """Tell whether a path holds no data: keys with digits or `@` in them are ids of one record."""
    keys = [key for key in path if isinstance(key, str)]
    return all(
        key == KEY or (len(key) < _MOST_DATA and "@" not in key and not any(map(str.isdigit, key)))
        for key in keys
    )
