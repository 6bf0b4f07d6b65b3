"""The prompt that a host is about to send: read off its event, or a reason why no skill is looked for."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

EVENTS = {"claude": "UserPromptSubmit", "codex": "UserPromptSubmit", "gemini": "BeforeAgent"}
AGENTS = tuple(EVENTS)
MOST_BYTES = 4_000_000  # of an event; what is longer is no prompt that a person wrote
_ASKED = 2_500  # characters of a prompt that are looked for: of these, an address holds even emoji
_COMMAND = re.compile(r"[/!][\w:.-]*(\s|\Z)")
_FENCED = re.compile(r"^[ \t]*(```|~~~).*?(^[ \t]*\1|\Z)", re.DOTALL | re.MULTILINE)
_REMARK = ("#", "//", "/*", "*", "--")
_CODE = re.compile(
    r"""\s*(
      [^\w\s]+\Z
    | import\s+[\w.]+(\s+as\s+\w+)?\Z | from\s+[\w.]+\s+import\s.* | import\s.*\sfrom\s+["'].*
    | (def|class|fn|func|function|struct|interface)\s+\w+\s*[({:<].*
    | (let|const|var|auto|int|char|float|double|bool|string)\s+[\w{\[*].*=.*
    | return(\s+[\w.]+)?\Z | return\b.*[;)\]}"']\Z
    | (else|try|finally|do|then|fi|done|esac|end|break|pass)\s*[:{]?\Z
    | (if|elif|for|while|with|except|switch|match|catch|case)\b.*[:{]\Z
    | (\$\s|<\?|</?\w[^<]*>|@\w+\Z).*
    | .*[;{}]\Z
    | [\w.\[\]"'$]+\s*(=|:=|\+=|=>|->)\s*\S.*
    | [\w.]+\(.*\)\Z
    | File\s".*",\sline\s\d+.* | Traceback\s.* | [\w.]*(Error|Exception)(:.*|\Z) | at\s[\w.$<>]+\(.*\)
    | (SELECT|INSERT|UPDATE|DELETE|CREATE|FROM|WHERE|ORDER\sBY|GROUP\sBY)\s.*
    )\s*\Z""",
    re.VERBOSE,
)
# Words of talk, which say nothing of a task; a prompt needs others.
_TALK = frozenset(
    re.findall(
        r"\S+",
        """
        a about above actually after again ago ahead all already alright also always am an and any
        anything are as asked at away awesome back be because been before being better bit both but by
        bye can can't cancel cannot continue cool correct could couldn't danke day did didn't
        different differently do does doesn't doing don't done else ever every everything exactly few
        fine first for from get give go goes going gonna good got gotta gracias great had has hasn't
        have haven't he hello help her here hey hi him his hmm hold how i i'd i'll i'm i've idea if in
        instead into is isn't it it's its ja just k keep know last leave let let's lgtm like likes
        little look looks lot made make makes many may maybe me mean means merci mind mine moment more
        morning most much must my need nein never new next nice night no none nope not nothing now of
        off oh ok okay on once one ones only or other our out over part perfect please prefer probably
        proceed put quite rather ready really repeat retry right run said same say says second see she
        should shouldn't show si simple since skip so some something sorry sound sounds start still
        stop such sure take tell than thank thanks that that's thats the their them then there these
        they thing things think this those thought through time to today together tomorrow too try ty
        under understand undo until up us use vale very wait want wants was wasn't way we we're well
        went were what what's whatever when where which while who whole why will with won't work
        worked works worries would wouldn't wow wrong y ya yea yeah year yep yes yesterday yet you
        you're your yours
        """,
    )
)
_FEWEST = 2
_ROOT = 5  # letters, by which words of one family are one
_SCRIPTS = re.compile(r"[^\s\u2e80-\U0010ffff]+|[\u2e80-\U0010ffff]+")


class Prompt(NamedTuple):
    """What a person typed, cut to what is looked for, and the session, by the host's id."""

    text: str
    session: str


class Nothing(Exception):
    """No skill is looked for or told of; the message says why."""


def read_prompt(agent: str, event: bytes) -> Prompt:
    """Return the prompt of a host's event.

    Raises `Nothing` if it is no event of a prompt, or of one that wants no skill.
    """
    try:
        told = json.loads(event)
    except ValueError as error:  # not UTF-8, cut off in the middle
        raise Nothing(f"standard input holds no JSON event of {agent}") from error
    if not isinstance(told, dict) or not isinstance(told.get("prompt"), str):
        raise Nothing(f"the event of {agent} has no prompt")
    if told.get("hook_event_name", EVENTS[agent]) != EVENTS[agent]:
        raise Nothing(f"{str(told['hook_event_name'])[:60]} is not {EVENTS[agent]}, which this hook answers")
    if why := _wants_none(text := _clean(told["prompt"])):
        raise Nothing(f"the prompt {why}")
    return Prompt(text[:_ASKED], str(told.get("session_id") or ""))


def _clean(text: str) -> str:
    """Return a text without what no terminal and no address can hold: halves of characters, controls."""
    text = text.encode("utf-8", "ignore").decode()
    return re.sub(r"[\0-\x08\x0b-\x1f\x7f]", " ", text).strip()


def _wants_none(text: str) -> str:
    if _COMMAND.match(text):
        return "is a command"
    plain = _FENCED.sub("", text[:100_000])
    lines = [line.strip()[:500] for line in plain.splitlines() if line.strip()]
    code = [line for line in lines if _CODE.match(line)]
    if text and all(line in code or line.startswith(_REMARK) for line in lines) and (code or not lines):
        return "is code alone"
    return "" if _content(plain) >= _FEWEST else "says too little, or only answers what was said before"


def _content(text: str) -> int:
    """Return how many words of a text are no talk; of scripts without blanks, three signs are a word."""
    signs = [sum(char > "\u2e80" for char in word) for word in _words(text)]
    return signs.count(0) + round(sum(signs) / 3)


def roots(text: str) -> set[str]:
    """Return how the words that are no talk begin; of scripts without blanks, each two signs in a row."""
    found = set()
    # In such a script, a word of another has none around it either.
    for word in _SCRIPTS.findall(" ".join(_words(text))):
        signs = word > "\u2e80"
        found |= {word[at : at + 2] for at in range(len(word) - 1)} if signs else {word[:_ROOT]}
    return {root for root in found if len(root) > 2 or root > "\u2e80"}


def _words(text: str) -> set[str]:
    return set(re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)?", text.lower().replace("’", "'"))) - _TALK
