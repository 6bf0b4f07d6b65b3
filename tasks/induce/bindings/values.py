"""Values: whether one had been read by a time, and where it stands in what a tool gave."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from tasks.induce.skills.actions import KEY, Path
from tasks.induce.trajectories.cleaning import CleanStep
from tasks.refine.text.words import IDENTIFIER

_MOST_PATHS = 64  # of one value in one result
_DEEPEST = 8  # entries of a path
_KEPT = 1024  # texts whose words are kept


@functools.lru_cache(maxsize=_KEPT)
def word_run(text: str) -> str:
    """Return the words of a text in lower case, each between blanks."""
    return f" {' '.join(IDENTIFIER.findall(text.lower()))} "


def leaves(value: object) -> Iterator[object]:
    """Yield the single values in a value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from leaves(each)
    else:
        yield value


def stands_in(value: object, text: str) -> bool:
    """Tell whether the words of a value stand in a text, one after the other."""
    run = word_run(str(value))
    return bool(run.strip()) and run in word_run(text)


def is_known(value: object, task: str, steps: Sequence[CleanStep], start: int, place: int) -> bool:
    """Tell whether a caller can give the value of an action when a window begins.

    It can if each single value had been read by then, or is read nowhere before the action: then it is the
    caller's own.

    Args:
        value: An argument of the action at `place`.
        task: What the agent was asked.
        steps: All steps of the trajectory.
        start: The window's first step.
        place: The action's step, at or after `start`.
    """
    before = [task, *(step.observation for step in steps[: start + 1])]
    inside = [step.observation for step in steps[start + 1 : place + 1]]
    return all(
        any(stands_in(leaf, text) for text in before) or not any(stands_in(leaf, text) for text in inside)
        for leaf in leaves(value)
    )


def paths_to(value: object, given: object) -> list[Path]:
    """Return the paths at which a value stands in what a tool gave, in order; an empty path is all of it.

    Null stands nowhere: it is what `at_path` gives where nothing stands.
    """
    found: list[Path] = []
    if value is None:
        return found
    for path, held in _walk(given, ()):
        if same(held, value):
            found.append(path)
            if len(found) == _MOST_PATHS:
                break
    return found


def _walk(given: object, path: Path) -> Iterator[tuple[Path, object]]:
    """Yield all paths and what stands there."""
    yield path, given
    if len(path) >= _DEEPEST:
        return
    if isinstance(given, list):
        for place, each in enumerate(given):
            yield from _walk(each, (*path, place))
    elif isinstance(given, dict):
        for place, (key, each) in enumerate(given.items()):
            if key != KEY:  # at the end of a path it says another thing
                yield from _walk(each, (*path, key))
            if isinstance(each, dict | list):  # what is told by a place fits other keys too
                yield from _walk(each, (*path, place))
            yield (*path, place, KEY), key


def at_path(given: object, path: Path) -> object:
    """Return what stands at a path; None if nothing does."""
    by_key = path[-1:] == (KEY,)
    for step in path[:-2] if by_key else path:
        given = _entry(given, step)
    if not by_key:
        return given
    place = path[-2] if len(path) > 1 else None
    known = isinstance(given, dict) and isinstance(place, int) and 0 <= place < len(given)
    return list(given)[place] if known else None  # type: ignore[call-overload]


def _entry(given: object, step: str | int) -> object:
    if isinstance(given, dict) and step in given:
        return given[step]
    entries = list(given.values()) if isinstance(given, dict) else given
    known = isinstance(entries, list) and isinstance(step, int) and 0 <= step < len(entries)
    return entries[step] if known else None  # type: ignore[index]


def same(held: object, value: object) -> bool:
    """Tell whether what was read is a value: equal, or a number whose digits a text holds."""
    if isinstance(held, bool) or isinstance(value, bool):
        return held is value
    if isinstance(held, int | float) and isinstance(value, str):
        return str(held) == value
    return type(held) is type(value) and held == value
