"""Checks of what an LLM says of one window: only a skill that does what was recorded may be kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from storage.errors import WrongInput
from tasks.induce.library.drafts import Rare, SkillDraft
from tasks.induce.llm_inducer.windows import always
from tasks.induce.replay.verify import Replay, verify
from tasks.induce.skills.actions import Arg, Body, Const, Result, SkillAction, Source, const
from tasks.induce.skills.code import actions_of, identifier, parameters, skill_id_of
from tasks.induce.skills.skill import InducedSkill
from tasks.induce.texts.safeguards import unfit
from tasks.induce.windows.bind import NARROW, is_general
from tasks.models.llm.errors import Rejected

INDUCER = "llm"
_MOST_CODE, _MOST_DESCRIPTION = 4_000, 300  # characters
_LEAST_WORDS = 3  # of a description
_MOST_REASON = 300  # characters


def checked_skill(
    answer: Mapping[str, Any], draft: SkillDraft, rare: Rare, replay: Replay
) -> InducedSkill | None:
    """Return the skill that an answer makes of a draft; None: it says that the window is not reusable.

    The reasons hold no value that was recorded: the model is told them.

    Raises:
        Rejected: The answer is none, or its skill is not one that may be kept.
    """
    texts = [answer.get(name) for name in ("func_name", "description", "code")]
    if "error" in answer:
        raise Rejected(str(answer["error"]))
    if answer.get("reusable") is False:
        return None
    name, description, code = (text if isinstance(text, str) else "" for text in texts)
    if answer.get("reusable") is not True or not (name and description and code):
        reason = "reusable must be true or false, and where it is true func_name, description and code texts"
        raise Rejected(reason)
    body = _body(name, code, draft)
    description = description.strip()
    _check_words(name, description, body)
    skill = replace(
        draft.skill, skill_id=skill_id_of(draft.skill.domain, body), name=name, description=description,
        body=body, inducer=INDUCER,
    )  # fmt: skip
    if rare.stand_in(f"{name} {description} {skill.code}"):
        reason = "a value that belongs to a single task stands in the name, the description or the code"
        raise Rejected(reason)
    verdict = verify(body, draft.windows, replay)
    if verdict.broken is not None:
        place = verdict.broken.place
        reason = f"call {place}: replayed, it does not do what was recorded, or no caller could know it"
        raise Rejected(reason)
    return skill.with_verdict(verdict.how, len(verdict.sources))


def _body(name: str, code: str, draft: SkillDraft) -> Body:
    """Return the actions that an answer's code says, which are those of the draft."""
    own = draft.skill.body
    if len(code) > _MOST_CODE:
        reason = f"the code has {len(code)} characters, and at most {_MOST_CODE} are allowed"
        raise Rejected(reason)
    try:
        called, body = actions_of(code, [action.name for action in own])
    except WrongInput as error:
        raise Rejected(str(error)[:_MOST_REASON]) from error
    if called != name:
        reason = "func_name is not the name of the function in the code"
        raise Rejected(reason)
    if len(body) != len(own):
        reason = f"the code has {len(body)} calls, and the window has {len(own)}"
        raise Rejected(reason)
    constant = always(draft)
    for place, (action, recorded) in enumerate(zip(body, own, strict=True)):
        if wrong := _difference(action, recorded, constant):
            reason = f"call {place}: {wrong}"
            raise Rejected(reason)
    return body


def _difference(action: SkillAction, recorded: SkillAction, constant: Mapping[str, Any]) -> str | None:
    """Return what an action says that the recorded one does not let it say."""
    if action.name != recorded.name:
        return f"it must be {recorded.name}, as in the window"
    is_open = action.role is None and recorded.role is not None and recorded.role not in NARROW
    if not is_open and (action.role, action.target) != (recorded.role, recorded.target):
        return "`on` must be as in the window"
    given, known = dict(action.args), dict(recorded.args)
    if given.keys() != known.keys():
        return f"its arguments must be those of the window: {', '.join(sorted(known)) or 'none'}"
    wrong = [name for name, source in given.items() if not _may_be(source, known[name], constant)]
    return f"{wrong[0]} must not be this value: make it a parameter" if wrong else None


def _may_be(source: Source, recorded: Source, constant: Mapping[str, Any]) -> bool:
    """Tell whether a source holds nothing of a single task: a value of all tasks, or a path without data."""
    if isinstance(source, Const):
        return (
            isinstance(recorded, Arg)
            and recorded.name in constant
            and const(constant[recorded.name]) == source.told
        )
    return not isinstance(source, Result) or is_general(source.path)


def _check_words(name: str, description: str, body: Body) -> None:
    names = [name, *parameters(body)]
    if any(identifier(each) != each for each in names) or name in {action.name for action in body}:
        reason = "names are in lower case with underscores, 60 characters at most, and none is an action's"
        raise Rejected(reason)
    if not (len(description) <= _MOST_DESCRIPTION and len(description.split()) >= _LEAST_WORDS):
        reason = f"the description must be one sentence of at most {_MOST_DESCRIPTION} characters"
        raise Rejected(reason)
    if wrong := unfit(description):
        reason = f"the description {wrong}"
        raise Rejected(reason)
    if wrong := unfit(" ".join(names).replace("_", " ")):
        reason = f"a name {wrong}"
        raise Rejected(reason)
