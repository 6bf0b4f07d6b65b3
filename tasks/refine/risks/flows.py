"""Flows in code: what is read, decoded or fetched at one line, and reaches a sender or an interpreter."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping

from storage.schemas import Severity
from tasks.refine.risks.rules import Hit, risk_rules
from tasks.refine.risks.scan import GRAVITY, by_address
from tasks.refine.risks.terms import has_hint, patterns, terms

# What a value holds (the data file of terms says what marks there are), with the line on which it was made.
Marks = Mapping[str, int]
NONE: Marks = {}
RULES = {
    ("send", "secret"): "exfiltration.secret-flow",
    ("send", "token"): "exfiltration.token-flow",
    ("send", "folder"): "exfiltration.folder-flow",
    ("keep", "secret"): "credential.kept",
    ("run", "encoded"): "obfuscation.decoded-run",
    ("run", "fetched"): "remote.fetched-run",
}
MAX_DEPTH = 3  # of code in strings of code

_URL = re.compile(r"(?i)\b(?:https?|ftp)://[^\s\"'`)<>|]{1,300}")
_HOST = re.compile(r"(?i)\b(?:https?|wss?|ftp)://(?:[^\s/?#\"'`@]{0,120}@)?([\w.-]{1,253}|\[[\w:.]{2,45}\])")
# An address may leave out its scheme; a name that ends as a file's does is that of a file.
_BARE_HOST = re.compile(
    r"(?i)(?<![^\s\"'`@=])(\d{1,3}(?:\.\d{1,3}){3}|[a-z\d][\w-]{0,62}(?:\.[\w-]{1,63}){0,9}"
    r"\.(?!(?:json|ya?ml|txt|csv|env|t?gz|html|xml|pem|key|log)\b)[a-z]{2,20})(?![^\s\"'`:/?])"
)
_LOCAL = re.compile(r"(?i)(?:localhost|0\.0\.0\.0|127(?:\.\d{1,3}){3}|\[::1\]|host\.docker\.internal)$")


def token_mark(name: str, line: int) -> Marks:
    """Return the mark of a variable of the environment: none unless its name is of a known service's key."""
    match = patterns()["token_name"].search(name)
    vendor = match["vendor"].lower() if match else ""
    others = dict(one.split("=") for one in terms()["vendors"])
    return {f"token:{others.get(vendor, vendor)}": line} if match else NONE


def fetched(text: str, line: int) -> Marks:
    """Return the mark of what is fetched from the gravest of the addresses that a text names."""
    urls = (match[0] for match in _URL.finditer(text))
    gravest = max(urls, key=lambda url: GRAVITY[_graded(RULES["run", "fetched"], url)], default="")
    return {f"fetched:{gravest}": line}


@functools.lru_cache(maxsize=4096)
def _graded(name: str, address: str) -> Severity:
    rules = risk_rules()
    rule = rules.by_id[name]
    return by_address(rule, address.lower(), rules.known_hosts) if rule.hosts else rule.severity


def _stays(text: str) -> bool:
    """Tell whether a text names this machine, and no other address."""
    hosts = _HOST.findall(text)
    others = _bare_hosts(text)
    return len(hosts) == text.count("://") > 0 and all(_LOCAL.match(host) for host in (*hosts, *others))


def _bare_hosts(text: str) -> list[str]:
    return [match[1] for match in _BARE_HOST.finditer(text)]


def host_marks(text: str, line: int) -> Marks:
    """Return the mark of each host that a text names, which a variable may carry to a sender."""
    hosts = _HOST.findall(text) if "://" in text else _bare_hosts(text) if "." in text else ()
    return {f"host:{host.lower()}": line for host in hosts}


def _is_home(host: str, service: str) -> bool:
    """Tell whether a host is of the service whose key goes there, or of a cloud that runs a part of it."""
    *names, end = host.split(".")
    owner = next((name for name in reversed(names) if name not in {"co", "com"}), "")
    if end in terms()["reserved_ends"]:
        return False
    lent = owner in terms()["clouds"] or service == "gitlab"  # which companies run themselves
    return owner.startswith((service, "amazon" + service)) or (lent and service in host)


def text_marks(text: str, line: int) -> Marks:
    """Return the marks of a text that names files of keys."""
    if not has_hint(text.lower(), "secrets"):
        return NONE
    if patterns()["secret_file"].search(text):
        return {"secret": line}
    return {"token:": line} if patterns()["token_file"].search(text) else NONE


def joined(*all_marks: Marks) -> Marks:
    """Return marks together; the first line counts."""
    held = [marks for marks in all_marks if marks]
    if len(held) < 2:
        return held[0] if held else NONE
    out: dict[str, int] = {}
    for marks in held:
        for mark, line in marks.items():
            out.setdefault(mark, line)
    return out


class Flows:
    """The variables of a piece of code and what they hold, and the flows found so far, each once."""

    def __init__(self) -> None:
        self.held: dict[str, Marks] = {}
        self._found: dict[tuple[str, int], Hit] = {}

    def hold(self, name: str, marks: Marks) -> None:
        """Note that a variable or a file holds what has these marks, beside what it held before."""
        if marks:
            self.held[name] = joined(self.held.get(name, NONE), marks)

    def of(self, names: Iterable[str]) -> Marks:
        """Return what some variables hold together."""
        return joined(*(self.held[name] for name in names if name in self.held))

    def sink(self, sink: str, marks: Marks, line: int, text: str, source: str | None = None) -> None:
        """Report each mark that reaches a sink: `send` (to another machine), `run` (an interpreter), `keep`.

        Addresses are looked for in the call's own source, where that is not the text that is shown.
        """
        source = text if source is None else source
        if not marks or (sink == "send" and _stays(source)):
            return
        hosts = [host.lower() for host in _HOST.findall(source)]
        hosts += [mark.partition(":")[2] for mark in marks if mark.startswith("host:")]
        for mark, since in marks.items():
            kind, _, detail = mark.partition(":")
            # A key that goes to its own service, or to an address that is not said, is what keys are for.
            if kind == "token" and (not hosts or not detail or any(_is_home(host, detail) for host in hosts)):
                continue
            if name := RULES.get((sink, kind)):
                at, until, severity = min(since, line), max(since, line), _graded(name, detail)
                said = " ".join(text.split()) + (f" ({detail})" if kind == "fetched" and detail else "")
                known = self._found.get((name, line))
                if known is None or GRAVITY[severity] > GRAVITY[known.severity or "info"]:
                    self._found[name, line] = Hit(name, at, said, until if until > at else None, severity)

    def hits(self) -> list[Hit]:
        """Return what was found, by line."""
        return sorted(self._found.values(), key=lambda hit: (hit.line, hit.rule))
