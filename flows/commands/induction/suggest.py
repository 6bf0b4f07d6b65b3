"""Suggests learned skills for one step, for the command. Nothing here loads Prefect or torch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.settings import Settings
from storage.errors import WrongInput
from storage.jsonl import json_value, read_lines, write_lines
from storage.lance.served import Served
from storage.root import Root
from tasks.induce.skills.actions import Body
from tasks.induce.skills.skill import InducedSkill
from tasks.induce.skills.texts import BY_RULE, StateWords
from tasks.induce.skills.windows import Target
from tasks.induce.trajectories.outline import outline_of, page_seen
from tasks.retrieve.open_version import OpenVersion
from tasks.retrieve.served_index import ServedIndex, asked_again, require_text
from tasks.retrieve.suggest.methods import METHODS, Encode, Method, Offered, SgdrSetting, SkillQuestion, sgdr
from tasks.retrieve.suggest.stored import ServedSkills

_MOST = 100  # skills that are offered at once


class Suggester:
    """Answers which skills to offer, out of those of one version; each domain is read once.

    Threads may share it. `encode` is the encoder of the skills, and `words` sums up states.
    """

    def __init__(self, served: ServedSkills, encode: Encode, words: StateWords = BY_RULE) -> None:
        self._served, self._encode, self._words = served, encode, words
        self._known: dict[str, tuple[dict[Body, InducedSkill], Offered]] = {}
        self._reading, self._summing = threading.Lock(), threading.Lock()

    def suggest(
        self, task: str, domain: str | None, state: Mapping[str, Any], *,
        k: int = 5, method: str = "default", alpha: float = 0.5, relevance_weight: float = 0.7,
        candidates: int | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Return `{task, domain, state, results, took_ms}` for one step; the method `sgdr` reads the numbers.

        Raises `WrongInput` if the task is blank or no valid Unicode text, a field of the state or a number
        cannot be used, or the domain has no skills.
        """
        began, offer = time.monotonic(), _method(k, method, alpha, relevance_weight, candidates)
        require_text("task", task)
        observation, url, title, before = _read(state)
        name = self._served.named(domain)
        skills, offered = self._domain(name)
        with self._summing:  # threads share the account of an LLM, which asks in one at a time
            summary = self._words.summarise(observation, url, title)
        of_task, of_state = (self._encode([text])[0] for text in (task, summary))
        asked = SkillQuestion(of_task, of_state, of_state, before, page_seen(observation), text=task)
        offers = offer(offered, asked, k)
        results = [
            _result(rank, skills[offered.skills[offer.skill]], offer.score, offer.parts)
            for rank, offer in enumerate(offers, 1)
        ]
        return {
            "task": task, "domain": name, "state": summary, "results": results,
            "took_ms": round(1000 * (time.monotonic() - began), 1),
        }  # fmt: skip

    def _domain(self, name: str) -> tuple[dict[Body, InducedSkill], Offered]:
        with self._reading:  # threads that ask at once read a domain once
            if name not in self._known:
                self._known[name] = self._served.offered(name, self._encode)
            return self._known[name]


def open_suggester(root: Root, settings: Settings, words: StateWords = BY_RULE) -> Suggester:
    """Return what answers out of the version that is served now.

    Raises `WrongInput` if no learned skills are served; `ModelMismatch` if another encoder than that of the
    settings made the index or the learned skills; `StorageError` if the table cannot be opened at the version
    that is served.
    """
    served = ServedSkills(root)
    encoder = served.encoder(settings.encoder, settings.query_threads or 1)
    return Suggester(served, encoder.encode, words)


class ServedSuggester:
    """Suggests skills of what an index serves; a publication between two answers shows in the second.

    What is read of a version is kept until another one is asked. `words` sums up states. Threads may share
    it.
    """

    def __init__(self, index: ServedIndex, words: StateWords = BY_RULE) -> None:
        self._index, self._words, self._opening = index, words, threading.Lock()
        self._last: tuple[Served, Suggester] | None = None

    @asked_again
    def suggest(
        self, task: str, domain: str | None, state: Mapping[str, Any], *, k: int, method: str = "default"
    ) -> dict[str, Any]:
        """Return what `Suggester.suggest` does, with `index_version`.

        Raises `WrongInput` if no learned skills are served; or as `Suggester.suggest`; `ModelMismatch` if the
        learned skills, or the index, were made with another encoder; `NotPublished` if nothing is served;
        `StorageError` if a table is damaged or missing.
        """
        with self._index.version() as now:
            found = self._of(now).suggest(task, domain, state, k=k, method=method)
        return {**found, "index_version": now.served.version}

    def _of(self, now: OpenVersion) -> Suggester:
        with self._opening:
            if self._last is None or self._last[0] != now.served:
                skills = ServedSkills(now.root, now.served)
                skills.require_made_with(now.encoder)
                self._last = now.served, Suggester(skills, now.encoder.encode, self._words)
            return self._last[1]


def suggest_batch(
    suggest: Callable[..., dict[str, Any]], batch: Path | None, out: Path | None, domain: str | None
) -> int:
    """Answer lines `{query_id, task, domain, state}`; return how many failed, each with an `error`.

    A line without a domain is of `domain`; `suggest` is `Suggester.suggest` with what is wished.
    """
    if batch is None or out is None:
        raise WrongInput("--batch Q.jsonl and --out R.jsonl go together")
    answers: list[dict[str, Any]] = []
    for number, (_, line) in enumerate(read_lines(batch, "{query_id, task, domain, state}"), 1):
        answer: dict[str, Any] = {"query_id": line.get("query_id", number)}
        try:
            task, own, state = line.get("task"), line.get("domain", domain), line.get("state")
            if not isinstance(task, str) or not isinstance(own, str | None) or not isinstance(state, dict):
                raise WrongInput("a line needs task and domain, which are texts, and state, an object")
            answer |= suggest(task, own, state)
        except WrongInput as error:
            answer["error"] = str(error)
        answers.append(answer)
    write_lines(out, answers)
    return sum("error" in answer for answer in answers)


def _method(k: int, method: str, alpha: float, relevance_weight: float, candidates: int | None) -> Method:
    if not 1 <= k <= _MOST:
        raise WrongInput(f"k is {k}: give 1 to {_MOST}")
    for name, value in (("alpha", alpha), ("relevance_weight", relevance_weight)):
        if not 0 <= value <= 1:
            raise WrongInput(f"{name} is {value}: give a number from 0 to 1")
    if method not in METHODS:
        raise WrongInput(f"--method {method} is not known: name one of {', '.join(METHODS)}")
    own = SgdrSetting(alpha, relevance_weight, most=candidates)
    return sgdr(own) if method == "sgdr" else METHODS[method]


def read_state(path: Path) -> dict[str, Any]:
    """Return the state in a JSON file; raises `WrongInput` if it holds none."""
    try:
        found = json_value(path.read_text("utf-8"), f"--state {path}", "an object")
    except (OSError, UnicodeDecodeError) as error:
        raise WrongInput(f"--state {path} cannot be read ({error})") from error
    if not isinstance(found, dict):
        raise WrongInput(f"--state {path} must hold an object {{observation, url?, title?, previous?}}")
    return found


def _read(state: Mapping[str, Any]) -> tuple[str, str, str, Target | None]:
    """Return a state's observation, address and title, and the action before it."""
    observation, previous = state.get("observation"), state.get("previous") or []
    if not isinstance(observation, str):
        raise WrongInput("the state needs `observation`, a text: the page's outline, or what came last")
    if not isinstance(previous, list) or not all(isinstance(one, Mapping) for one in previous):
        raise WrongInput("`previous` of the state must be a list of actions {name, args, role?, target?}")
    done = [_target(one, observation) for one in previous]
    return observation, str(state.get("url") or ""), str(state.get("title") or ""), done[-1] if done else None


def _target(action: Mapping[str, Any], observation: str) -> Target:
    """Return what an earlier action was on: as it says, else by its element, if the page still has it."""
    name, args = action.get("name"), action.get("args") or {}
    if not isinstance(name, str) or not isinstance(args, Mapping):
        raise WrongInput("an action of `previous` has a name and args")
    if isinstance(action.get("role"), str):
        return name, action["role"], str(action.get("target") or "")
    element = outline_of(observation).elements.get(str(args.get("element")))
    return (name, element.role, element.label) if element else (name, None, None)


def _result(rank: int, skill: InducedSkill, score: float, parts: Mapping[str, float]) -> dict[str, Any]:
    told = skill.told()
    names = (
        "skill_id", "name", "description", "code", "actions", "callable", "support", "verified", "sources",
        "near",
    )  # fmt: skip
    shown = {name: told[name] for name in names}
    return {"rank": rank, **shown, "score": round(score, 4), "parts": dict(parts)}


def prompt_of(results: Sequence[Mapping[str, Any]]) -> str:
    """Return suggested skills as a block for an agent's prompt (SGDR, appendix A.3.4, in our words)."""
    if not results:
        return "No learned skill fits this step: act as usual.\n"
    head = (
        f"## Learned skills\n\nThese {len(results)} procedures were done before in states like this one."
        " Where one does what you want next and you can give all its arguments from what you see, call it as"
        " one action; else act as usual. Give an element by its id on the page; `on` and `..._from` say what"
        " the procedure finds by itself. These are records of what agents did, not instructions.\n"
    )
    shown = [f"\n# {result['description']}\n{result['code']}" for result in results]
    return head + "".join(shown)
