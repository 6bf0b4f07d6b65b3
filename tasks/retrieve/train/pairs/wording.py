"""Wording: what an author says of a user's wish becomes the sentence with which a person asks for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tasks.retrieve.train.pairs.verbs import base_of_gerunds, base_of_thirds, base_verbs

_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_SIGNS = re.compile(r"\*+|`+|(?<!\w)_+|_+(?!\w)|<!--.*?-->|[✅✓✔❌⚡•]|[\U0001F300-\U0001FAFF]")
_MARK = re.compile(r"^(?:[\s>]*(?:[-*+•]|\d+[.)]|\(\d\))\s+)+(?:\[[ xX]\]\s+)?")
_OPENER = re.compile(
    r"(?i)^(?:(?:also|or|and|only|e\.g\.,?)\s+)*(?:(?:use|invoke|activate|apply)\s+(?:this|the|it)?\s*"
    r"(?:skill|agent|tool|command)?\s*)?(?:(?P<how>when(?:ever)?|if|for|to|on|while)\s+)+"
)
_LABEL = re.compile(r"^[^:(]{2,50}:\s+(?=\S+\s+\S+\s+\S+)")
_EXPLAINED = re.compile(r"\s+(?:[-–—]+|->|=>)\s+|\s*[→➡⇒]")
_USER = (
    r"(?:(?:the|a|an|your)\s+)?(?:users?|you|someone|people|developers?|clients?|team|customers?)"
    r"(?:\s+(?:explicitly|specifically|also|may|might|just|directly|would|often))*"
)
_FOR_HELP = (
    r"(?:\s+(?:you|claude|codex|for|help|the agent|an agent|assistance|guidance|agent|me|copilot|gemini))*"
)
_SEPARATOR = re.compile(r"\s*,\s*(?:and/or|and|or)?\s+|\s+(?:and/or|and|or|&)\s+|\s*,\s*")
_STATES = (
    r"encountering|experiencing|facing|seeing|hitting|struggling"
    r"|getting(?=\s.*\b(?:errors?|failures?|warnings?|exceptions?)\b)"
)
# "Funding rates" and "testing strategies" are things, however much they begin as a wish.
_THING = re.compile(
    r"(?i)[a-z]+ing (?:rates?|strateg\w+|patterns?|mechanics|(?:best )?practices|rules|data|environments?)\b"
)
Maker = Callable[[re.Match[str]], list[str]]


def requests_of(piece: str, *, spoken: bool) -> list[str]:
    """Return the requests in a piece, without markup; none if no rule says how a person would ask.

    A user's own words (`spoken`) stay as they are. Otherwise the user's part is taken off, gerunds become
    imperatives ("when writing tests" asks "Write tests"), and a list of wishes becomes a request each.
    """
    text = plain(piece)
    if spoken:
        return [_finished(text)]
    text = _LABEL.sub("", text)
    opener = _OPENER.match(text)
    how = opener["how"].lower() if opener else ""
    told = _EXPLAINED.split(text[opener.end() :] if opener else text)[0].strip(" .;:,")
    for pattern, make in _FORMS:
        if found := pattern.match(told):
            made, who = make(found), found.groupdict().get("who") or ""
            break
    else:
        made, who = _by_verb(told, how), ""
    return [_finished(_first_person(one, who)) for one in made]


def plain(piece: str) -> str:
    """Return a text on one line without links, marks of lists, emphasis and code, and emoji."""
    text = _MARK.sub("", _LINK.sub(r"\1", piece))
    return " ".join(_SIGNS.sub("", text).split()).strip(" |>")


def _by_verb(told: str, how: str) -> list[str]:
    if _is_gerund(told):
        return list(_imperatives(told))
    # After "for" and "when" a first word in lower case is a noun, however much it looks like a verb.
    if _word(told).lower() in base_verbs() and (how == "to" or told[:1].isupper()):
        return list(_infinitives(told))
    verb = base_of_thirds().get(_word(told).lower()) if told[:1].isupper() else None
    return [f"{verb}{told[len(_word(told)) :]}"] if verb else []


def _imperatives(told: str) -> Iterator[str]:
    """Yield a request for each gerund that begins a part of a list, with what belongs to it."""
    for part in _listed(told, _is_gerund):
        yield " ".join(_chain(part))


def _infinitives(told: str) -> Iterator[str]:
    yield from _listed(told, lambda text: _word(text).lower() in base_verbs())


def _listed(told: str, begins: Callable[[str], bool]) -> list[str]:
    """Cut a list where a part begins so and says more than that; single words stay with their neighbours."""
    parts, start, whole = [], 0, re.sub(r"\(.*?\)|\".*?\"", lambda m: "x" * len(m[0]), told)
    cuts = [*_SEPARATOR.finditer(whole)]
    for at, cut in enumerate(cuts):
        end = cuts[at + 1].start() if at + 1 < len(cuts) else len(told)
        heavy = len(told[cut.end() : end].split()) > 1
        said = any(not begins(word) for word in _SEPARATOR.sub(" ", told[start : cut.start()]).split())
        if begins(told[cut.end() :]) and heavy and said:
            parts.append(told[start : cut.start()])
            start = cut.end()
    return [*parts, told[start:]]


def _chain(part: str) -> Iterator[str]:
    """Yield the words of a part; the gerunds it begins with are infinitives."""
    words, begun = part.split(), True
    for place, word in enumerate(words):
        parts = [part.lower() for part in word.strip(",").split("/")]
        if begun and all(part in base_of_gerunds() for part in parts):
            yield "/".join(base_of_gerunds()[part] for part in parts) + "," * word.endswith(",")
            begun = word.endswith(",") or (place + 1 < len(words) and words[place + 1] in ("and", "or", "&"))
        else:
            begun &= word in ("and", "or", "&")
            yield word


def _is_gerund(text: str) -> bool:
    return _word(text).lower() in base_of_gerunds() and not _THING.match(text)


def _word(text: str) -> str:
    found = re.match(r"[A-Za-z]+(?:-[A-Za-z]+)*", text)
    return found[0] if found else ""


def _first_person(text: str, who: str) -> str:
    text = re.sub(r"(?i)\b(?:the\s+user['’]s|users?['’]s?|your)\b(?=\s)", "my", text)
    text = re.sub(r"(?i)^(help|assist|guide|teach) (?:(?:the|a) )?users?\b", r"\1 me", text)
    if who and "you" not in who.lower():
        text = re.sub(r"(?i)\btheir\b", "my", text)
    return text


def _finished(text: str) -> str:
    """Return a request with a capital, and without blanks and signs of lists at its ends."""
    bare = text.strip(" \t,;:.…|\"“”'‘’()") if text.count("(") != 1 else text.strip(" \t,;:.…|\"“”'‘’")
    return bare[:1].upper() + bare[1:]


def _asked_how(found: re.Match[str]) -> list[str]:
    rest = found["rest"].rstrip("?")
    how_to = re.match(r"(?i)how to\s+(.*)", rest)
    return [f"How do I {how_to[1]}?"] if how_to else [f"{rest}?"]


def _wished(found: re.Match[str]) -> list[str]:
    rest = found["rest"]
    return list(_infinitives(rest)) if _word(rest).lower() in base_verbs() else []


def _asking(words: str) -> Maker:
    """Return what makes imperatives of gerunds, and of anything else these words with it."""

    def make(found: re.Match[str]) -> list[str]:
        rest = found["rest"]
        return list(_imperatives(rest)) if _is_gerund(rest) else [f"{words} {rest}"]

    return make


def _doing(found: re.Match[str]) -> list[str]:
    rest = found["rest"]
    if state := re.match(rf"(?i)(?:{_STATES})\b.*", rest):
        return [f"I am {state[0][:1].lower()}{state[0][1:]}"]
    if work := re.match(r"(?i)(?:working|dealing|interacting) (?:with|on|in)\s+(.*)", rest):
        return [f"Help me with {work[1]}"]
    return list(_imperatives(rest)) if _is_gerund(rest) else []


def _forms() -> list[tuple[re.Pattern[str], Maker]]:
    """Return the forms in which a wish is told, with what makes requests of each; the first that fits."""
    asks = r"(?:asks?|asked|asking|requests?|requested|inquires?|told|tells?|instructed)"
    wants = (
        r"(?:wants?|wanting|needs?|needing|wish(?:es)?|likes?|tr(?:y|ies)|trying|intends?|plans?|seeks?"
        r"|looking(?=\s(?:for|to)\b))"
    )
    who = rf"(?P<who>{_USER}\s+(?:is\s+|are\s+|has\s+|have\s+)?|)"
    about = r"(?:has|have|having)\s+(?:a\s+)?questions?"
    help_ = r"(?:help|assistance|guidance|advice|support)\s+(?:with|on|for|in|about)"
    tasks = r"(?:tasks?|work|projects?|requests?|questions?|issues?)"
    involve = r"(?:(?:that\s+)?(?:involv|requir|need)(?:es?|ing|s)?|(?:is|are)\s+about|about)"
    helped = _asking("Help me with")
    forms: list[tuple[str, Maker]] = [
        (rf"{who}(?:{asks}|{wants}){_FOR_HELP}\s+to\s+(?P<rest>.+)", _wished),
        (rf"{who}(?:{asks}|{wants})\s+(?:for\s+)?{help_}\s+(?P<rest>.+)", helped),
        (rf"{who}(?:{asks}|{wants})(?:\s+to\s+know)?(?:\s+about)?\s+(?P<rest>(?:how|what|why|where|which)\s.+)",
         _asked_how),
        (rf"{who}(?:{asks}|{about})\s+(?:about|on|regarding)\s+(?P<rest>.+)",
         _asking("Tell me about")),
        (rf"{who}(?:{asks}\s+for|requests?|{wants}(?:\s+for)?)\s+(?P<rest>.+)", _asking("I need")),
        (rf"(?:(?:the|a|any|your|you)\s+)?{tasks}\s+{involve}\s+(?P<rest>.+)", helped),
        (rf"{_USER}\s+(?:has|have)\s+(?P<rest>.+)", lambda m: [f"I have {m['rest']}"]),
        (rf"{who}(?P<rest>(?:{_STATES}|working|dealing|interacting)\s.+)", _doing),
        (rf"(?P<who>{_USER}(?:\s+(?:is|are)|['’]re)\s+)(?P<rest>[a-z]+ing\s.+)", _doing),
    ]  # fmt: skip
    return [(re.compile(f"(?i){pattern}$"), make) for pattern, make in forms]


_FORMS = _forms()
