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
# A prompt of nothing but these goes on with what is under way, or ends it.
_ASIDE = frozenset(
    re.findall(
        r"\S+",
        """
        a about again ahead all alright and as awesome bye cancel continue cool correct danke do done exactly
        fine for go good got great gracias hello help hey hi hmm i is it it's just keep ja k let let's lgtm
        looks me merci more nein never next nice no nope now of oh ok okay on oui perfect please proceed
        really retry right run si so sounds stop sure thank thanks that that's thats the then this to too try
        ty undo vale very wait well what worked works wow wrong y ya yea yeah yep yes you
        好 好的 是 是的 不 不是 谢谢 继续 可以 对 はい いいえ ありがとう 네 아니요 감사합니다 да нет спасибо
        """,
    )
)


class Prompt(NamedTuple):
    """What a person typed, cut to what is looked for, and the session, by the host's id."""

    text: str
    session: str


class Nothing(Exception):
    """No skill is looked for or told of; the message says why."""


def read_prompt(agent: str, event: bytes) -> Prompt:
    """Return the prompt of a host's event.

    Raises:
        Nothing: It is no event of a prompt, or of one that wants no skill.
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
    words = re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)?", plain.lower())
    return "" if any(word not in _ASIDE for word in words) else "only answers what was said before"
