"""The LLM inducer: a language model says which windows are skills, and names, describes and writes them.

After SGDR, section 4.1 and appendix A.3.2 (https://arxiv.org/abs/2606.04391). What it gives is never run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationInfo, WithJsonSchema, model_validator

from storage.errors import WrongInput
from tasks.induce.library.build import DroppedSkill, RareValues, SkillDraft, merged
from tasks.induce.replay.verify import Replay, verify
from tasks.induce.skills.actions import Arg, Body, Const, Result, SkillAction, Source, const
from tasks.induce.skills.skill import (
    InducedSkill,
    actions_of,
    code_of,
    function_name,
    identifier,
    parameters,
    skill_id_of,
)
from tasks.induce.skills.texts import redacted, unfit
from tasks.induce.skills.windows import NARROW, is_general
from tasks.induce.skills.wording import COMMON
from tasks.induce.trajectories.cleaning import ELEMENT
from tasks.models.llm.ask import Fallback, Llm, halves_of
from tasks.models.llm.errors import Rejected
from tasks.models.llm.prompt import Answer, Prompt, Values, known_of, schema_of
from tasks.models.llm.question import Question, Sampling
from tasks.models.llm.quoting import addresses_the_reader

_TOKENS = 256  # of the answer about one window
_MOST_VALUE = 60  # characters of a value that is shown
WINDOWS_ASKED = "windows"  # stands for the document: `forget` of any run drops all that was said of windows


class _Row(Answer):
    window_idx: int
    reusable: bool
    func_name: str
    description: str
    code: str


def _aligned(rows: object, info: ValidationInfo) -> list[dict[str, Any]]:
    """Return what is said of each window; of one of which nothing, or two things, are said, an `error`.

    The answer as a whole is refused if it is no list of objects with `window_idx`, or has a number that was
    not given: then none can be trusted.
    """
    count: int = known_of(info)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise Rejected('the answer is no object {"skills": [{"window_idx": 0, ...}, ...]}')
    is_numbered = all(type(row.get("window_idx")) is int for row in rows)
    _require(is_numbered, "an entry has no window_idx that is a whole number")
    for number in (row["window_idx"] for row in rows):
        _require(0 <= number < count, f"there is no window_idx {number}: they go from 0 to {count - 1}")
    return [_said_of(number, rows) for number in range(count)]


def _said_of(number: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    own = [row for row in rows if row["window_idx"] == number]
    if len(own) != 1:
        return {"error": f"there were {len(own)} entries with its window_idx instead of one"}
    return {name: own[0][name] for name in _Row.model_fields if name in own[0] and name != "window_idx"}


class Windows(Answer):
    """What is said of windows, one by one."""

    skills: Annotated[
        list[dict[str, Any]],
        BeforeValidator(_aligned),
        WithJsonSchema({"type": "array", "items": schema_of(_Row)}),
    ]

    @model_validator(mode="before")
    @classmethod
    def _one_alone(cls, value: object) -> object:
        return {"skills": [value]} if isinstance(value, dict) and "skills" not in value else value


PROMPT: Prompt[Windows] = Prompt("induce-windows-1", "tasks.induce/windows_rules.txt", Windows)


@dataclass(frozen=True, slots=True)
class ShownWindow:
    """A window as it is shown: `place` is its draft's, `record` says all that the model is told of it."""

    place: int
    record: Mapping[str, Any]
    attempt: int = 0

    def question(self, sampling: Sampling) -> Question:
        """Return that under which the answer about this window is kept, whatever stands beside it."""
        told = (("window", json.dumps(self.record, sort_keys=True)),)
        return Question(PROMPT.name, told, sampling, attempt=self.attempt, doc_ids=(WINDOWS_ASKED,))


def shown(place: int, draft: SkillDraft, complaint: str | None) -> ShownWindow:
    """Return the window of a draft, and what was wrong with the answer before, if there was one.

    It says nothing that changes with each new run: the same window is the same question the next time.
    """
    body = draft.skill.body
    record = {"does": draft.skill.description, "code": code_of(function_name(body), body)}
    told: dict[str, Any] = redacted({**record, "always": always(draft)})
    if complaint is None:
        return ShownWindow(place, told)
    return ShownWindow(place, {**told, "error": redacted(complaint)}, attempt=1)


def always(draft: SkillDraft) -> dict[str, Any]:
    """Return the values of the parameters that had one value in all tasks, at least three of them."""
    found: dict[str, Any] = {}
    for place, action in enumerate(draft.skill.body if draft.skill.support >= COMMON else ()):
        for name, source in action.args:
            if isinstance(source, Arg) and name != ELEMENT:
                values = {const(window.inside[place].action.args[name]) for window in draft.windows}
                if len(values) == 1 and len(value := values.pop()) <= _MOST_VALUE:
                    found[source.name] = json.loads(value)
    return found


def batches(windows: Sequence[ShownWindow], most: int) -> list[list[ShownWindow]]:
    """Return the windows of each question: at most `most`, in their order.

    A window that gives the model orders stands in no question about another.
    """
    is_alone = {one.place: addresses_the_reader(json.dumps(one.record)) for one in windows}
    others = [one for one in windows if not is_alone[one.place]]
    found = [others[start : start + most] for start in range(0, len(others), most)]
    return found + [[one] for one in windows if is_alone[one.place]]


def values_of(windows: Sequence[ShownWindow], sampling: Sampling) -> Values:
    """Return what is asked about some windows, numbered from 0; its answer may be as long as they need."""
    rows = [{"window_idx": number, **one.record} for number, one in enumerate(windows)]
    task = f"Decide about each of the {len(rows)} windows: one entry for each window_idx."
    longest = replace(sampling, max_tokens=max(sampling.max_tokens, _TOKENS * len(rows)))
    # One of the windows tells the attempt: all of a question are of the same round.
    return Values(
        task, [{"windows": rows}], (WINDOWS_ASKED,), known=len(rows), sampling=longest,
        attempt=windows[0].attempt,
    )  # fmt: skip


INDUCER = "llm"
_MOST_CODE, _MOST_DESCRIPTION = 4_000, 300  # characters
_LEAST_WORDS = 3  # of a description
_MOST_REASON = 300  # characters


def checked_skill(
    answer: Mapping[str, Any], draft: SkillDraft, rare: RareValues, replay: Replay
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
    _require(
        answer.get("reusable") is True and all((name, description, code)),
        "reusable must be true or false, and where it is true func_name, description and code texts",
    )
    body = _body(name, code, draft)
    description = description.strip()
    _check_words(name, description, body)
    skill = replace(
        draft.skill, skill_id=skill_id_of(draft.skill.domain, body), name=name, description=description,
        body=body, inducer=INDUCER,
    )  # fmt: skip
    _require(
        not rare.stand_in(f"{name} {description} {skill.code}"),
        "a value that belongs to a single task stands in the name, the description or the code",
    )
    verdict = verify(body, draft.windows, replay)
    place = verdict.broken and verdict.broken.place
    _require(
        place is None, f"call {place}: replayed, it does not do what was recorded, or no caller could know it"
    )
    return replace(skill, verified=verdict.how, verified_sources=len(verdict.sources))


def _body(name: str, code: str, draft: SkillDraft) -> Body:
    """Return the actions that an answer's code says, which are those of the draft."""
    own = draft.skill.body
    _require(
        len(code) <= _MOST_CODE, f"the code has {len(code)} characters, and at most {_MOST_CODE} are allowed"
    )
    try:
        called, body = actions_of(code, [action.name for action in own])
    except WrongInput as error:
        raise Rejected(str(error)[:_MOST_REASON]) from error
    _require(called == name, "func_name is not the name of the function in the code")
    _require(len(body) == len(own), f"the code has {len(body)} calls, and the window has {len(own)}")
    constant = always(draft)
    for place, (action, recorded) in enumerate(zip(body, own, strict=True)):
        wrong = _difference(action, recorded, constant)
        _require(not wrong, f"call {place}: {wrong}")
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
    named = all(identifier(each) == each for each in names) and name not in {action.name for action in body}
    _require(
        named, "names are in lower case with underscores, 60 characters at most, and none is an action's"
    )
    is_sentence = len(description) <= _MOST_DESCRIPTION and len(description.split()) >= _LEAST_WORDS
    _require(is_sentence, f"the description must be one sentence of at most {_MOST_DESCRIPTION} characters")
    for what, text in (("the description", description), ("a name", " ".join(names).replace("_", " "))):
        wrong = unfit(text)
        _require(not wrong, f"{what} {wrong}")


def _require(is_right: bool, reason: str) -> None:
    if not is_right:
        raise Rejected(reason)


Said = Mapping[str, Any]  # what is said of one window, or `{"error": reason}`
ROUNDS = 2  # each window is asked about, and once more with its error named


class LlmInducer:
    """Asks about the windows of drafts, a few a question; what it gives no skill for is left to recurrence.

    What is said of a window, right or wrong, is kept by that window beside the answers as they came, so that
    the next run asks about new windows alone; whether it may be used depends on the runs that are known, and
    is decided anew each time. A window in whose draft a value of a single task stands is not shown. The LLM's
    `fallbacks` count windows that were left, by reason; `windows` is the most of one question.
    """

    def __init__(self, llm: Llm, windows: int) -> None:
        self._llm, self._windows = llm, windows

    @property
    def name(self) -> str:
        """The model's name and the prompt's."""
        return f"{self._llm.name}:{PROMPT.name}"

    def induce(
        self, drafts: Sequence[SkillDraft], rare: RareValues, replay: Replay
    ) -> tuple[list[SkillDraft], list[DroppedSkill]]:
        """Return the drafts with the model's skills in place of theirs, and those that it finds no use for.

        Raises:
            LlmDenied: The server denies access, or has no such model.
        """
        found = dict(enumerate(drafts))
        dropped: list[DroppedSkill] = []
        texts = (f"{one.skill.name} {one.skill.description} {one.skill.code}" for one in drafts)
        wrong: dict[int, str | None] = {n: None for n, text in enumerate(texts) if not rare.stand_in(text)}
        for _ in range(ROUNDS):
            windows = [shown(place, drafts[place], complaint) for place, complaint in wrong.items()]
            answers, wrong = self._answers(windows), {}
            for place in sorted(answers):
                try:
                    skill = checked_skill(answers[place], drafts[place], rare, replay)
                except Rejected as rejection:
                    wrong[place] = rejection.reason
                    continue
                if skill is not None:
                    found[place] = SkillDraft(skill, drafts[place].windows)
                else:
                    unused = found.pop(place).skill
                    why = ("not-reusable", "the language model finds no use for it")
                    dropped.append(DroppedSkill(unused.skill_id, unused.domain, *why))
        if wrong:
            self._llm.fell_back(PROMPT, "malformed", len(wrong))
        return merged(list(found.values()), INDUCER), dropped

    def _answers(self, windows: Sequence[ShownWindow]) -> dict[int, Said]:
        """Return by place what is said of windows, asking about those that were not asked about yet."""
        known = {one.place: said for one in windows if (said := self._kept(one)) is not None}
        new = [one for one in windows if one.place not in known]

        async def work(batch: Sequence[ShownWindow]) -> None:
            parts = await self._llm.answer_parts(
                PROMPT, batch, lambda part: values_of(part, self._llm.sampling), _halves, tries=1
            )
            for part, said in parts:
                rows: Sequence[Said]
                if not isinstance(said, Fallback):
                    rows = said.skills
                elif _is_of_all(said):
                    rows = [{"error": said.detail}] * len(part)
                else:
                    self._llm.fell_back(PROMPT, said, len(part))
                    continue
                for one, answer in zip(part, rows, strict=True):
                    self._keep(one, answer)
                    known[one.place] = answer

        self._llm.gather(work(batch) for batch in batches(new, self._windows))
        return known

    def _kept(self, window: ShownWindow) -> Said | None:
        """Return what was said of a window; None: it was not asked about yet."""
        kept = self._llm.cache.answers.find(window.question(self._llm.sampling).key(self._llm.model))
        if kept is None:
            return None
        self._llm.ledger.counts["cached"] += 1
        found: Said = json.loads(kept.text)
        return found

    def _keep(self, window: ShownWindow, answer: Said) -> None:
        self._llm.cache.keep(window.question(self._llm.sampling), json.dumps(answer))


def _is_of_all(fallback: Fallback) -> bool:
    """Tell whether an answer was wrong as a whole: each of its windows is asked about once more."""
    return fallback.reason == "rejected" and not fallback.final


def _halves(batch: Sequence[ShownWindow], fallback: Fallback) -> list[Sequence[ShownWindow]]:
    return [] if _is_of_all(fallback) else halves_of(batch)
