"""Windows of runs as skills: recurrence, the default inducer, binds arguments to where they come from.

After SGDR, section 4.1 (https://arxiv.org/abs/2606.04391); what differs between tasks becomes an argument.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tasks.induce.skills.actions import (
    KEY,
    LEAST,
    Arg,
    Body,
    Const,
    Find,
    Granularity,
    Path,
    Result,
    SkillAction,
    Source,
    is_name,
    is_sayable,
    window_lengths,
)
from tasks.induce.skills.skill import with_names
from tasks.induce.skills.wording import page_of, summed_up
from tasks.induce.trajectories.cleaning import ELEMENT, CleanStep, cleaned
from tasks.induce.trajectories.record import Trajectory
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
    caller's own. Of a trajectory's `steps`, `start` is the window's first, `place` the action's.
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
    if value is None:
        return []
    found = (path for path, held in _walk(given, ()) if same(held, value))
    return list(itertools.islice(found, _MOST_PATHS))


def _walk(given: object, path: Path) -> Iterator[tuple[Path, object]]:
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


# Elements of other roles may be left to the caller where the task names them: a message, a file, a label.
NARROW = frozenset({"button", "textbox", "combobox"})
_NAMED = 3  # words in a row of an element's label by which a task names it
_MOST_BODIES = 24  # of one window
_MOST_DATA = 40  # characters of a key; a longer one is a text
_Head = tuple[str | None, str | None, Source | None]


def windows(steps: Sequence[CleanStep], start: int, granularity: Granularity = "window") -> Iterator[int]:
    """Yield the lengths of the windows that begin at a step; none of their actions speaks.

    Of `window` these are 2 to 5 actions, of `window:2-3` 2 or 3, of `action` one, of `trajectory` all up to
    the next one that speaks, where the one before speaks or there is none (SGDR, table 4).
    """
    run = next((n for n, step in enumerate(steps[start:]) if step.action.speaks), len(steps) - start)
    if lengths := window_lengths(granularity):
        yield from range(lengths[0], min(lengths[1], run) + 1)
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
        for path in filter(is_general, paths_to(value, step.result)):
            return [Result(number, path)]
    return []


def is_general(path: Path) -> bool:
    """Tell whether a path holds no data: keys with digits or `@` in them are ids of one record."""
    keys = [key for key in path if isinstance(key, str)]
    return all(
        key == KEY or (len(key) < _MOST_DATA and "@" not in key and not any(map(str.isdigit, key)))
        for key in keys
    )


Target = tuple[str, str | None, str | None]  # an action's name, and the role and label of what it was on


@dataclass(frozen=True, slots=True)
class DecisionPoint:
    """A step of a successful trajectory that speaks to nobody, and the skills that do what was done next.

    `t` is the step's number, `page` what its state is called and `state` that state summed up; `before` is
    the last action before it, None if there was none; `task` is what the agent was asked.
    """

    trajectory_id: str
    task_id: str
    domain: str
    t: int
    page: str
    state: str
    before: Target | None
    bodies: tuple[Body, ...]
    task: str = ""


def decision_points(trajectory: Trajectory, granularity: Granularity = "window") -> list[DecisionPoint]:
    """Return the decision points of a trajectory that succeeded: its steps that speak to nobody."""
    steps, _ = cleaned(trajectory)
    before = [None, *(step.target for step in steps)]
    return [
        DecisionPoint(
            trajectory.trajectory_id, trajectory.task_id, trajectory.domain, step.t,
            page_of(step.observation, step.url, step.title),
            summed_up(step.observation, step.url, step.title), before[start],
            tuple(_bodies(trajectory.task, steps, start, granularity)), trajectory.task,
        )
        for start, step in enumerate(steps)
        if not step.action.speaks
    ]  # fmt: skip


def _bodies(task: str, steps: Sequence[CleanStep], start: int, granularity: Granularity) -> Iterator[Body]:
    for length in windows(steps, start, granularity):
        yield from bodies(task, steps, start, length)


def last_actions(trajectory: Trajectory, kept: Sequence[CleanStep]) -> list[Target | None]:
    """Return for each step, those that fell out too, the last action that was kept before it."""
    targets = {step.place: step.target for step in kept}
    found: list[Target | None] = [None]
    for place in range(len(trajectory.steps)):
        found.append(targets.get(place, found[-1]))
    return found[:-1]


def misfit(body: Body, task: str, steps: Sequence[CleanStep], start: int) -> int | None:
    """Return the first action of a skill that is not what was done from a step on; None if all are.

    An argument that the caller gives fits where the caller can know it when the skill begins; one that can be
    known only inside the skill must come out of its source as it was recorded.
    """
    for place, action in enumerate(body):
        if start + place >= len(steps) or not _fits(action, task, steps, start, start + place):
            return place
    return None


def begins(action: SkillAction, task: str, step: CleanStep) -> bool:
    """Tell whether an action is that of a step, in name and target, arguments aside."""
    if action.name != step.action.name or step.action.speaks:
        return False
    element = step.element
    if element is None:
        is_gone = step.outline is not None and ELEMENT in step.action.args
        return action.role is None and not is_gone
    if action.role is None:
        return element.role not in NARROW and names(task, element.label)
    return (element.role, element.label) == (action.role, action.target)


def _fits(action: SkillAction, task: str, steps: Sequence[CleanStep], start: int, place: int) -> bool:
    step = steps[place]
    if not begins(action, task, step) or {name for name, _ in action.args} != set(step.action.args):
        return False
    return all(_comes(source, name, task, steps, start, place) for name, source in action.args)


def _comes(source: Source, name: str, task: str, steps: Sequence[CleanStep], start: int, place: int) -> bool:
    """Tell whether a source gives an argument of a step as it was recorded."""
    step, value = steps[place], steps[place].action.args[name]
    match source:
        case Arg() if name == ELEMENT and step.outline is not None:
            page, element = steps[start].outline, step.element
            return page is not None and element is not None and page.holds(element)
        case Arg():
            return is_known(value, task, steps, start, place)
        case Const():
            return bool(source.value == value)
        case Result(number, path):
            if not 0 <= number < place - start:
                return False
            given = at_path(steps[start + number].result, path)
            return given is not None and same(given, value)
        case Find(ordinal):
            return step.element is not None and step.element.ordinal == ordinal
